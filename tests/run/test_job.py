"""Calls of one job that follow each other; what is computed is stubbed."""

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import pytest
from tiny import IMAGES, RESIDUAL, refuses

import ntkscore
from attacks import Attack, fgsm, pgd
from cells.residual import Residual
from ntkscore.api.runs import Run
from ntkscore.cli.display import describe, input_errors
from ntkscore.cli.ranking import on_disk
from ntkscore.config import Config
from ntkscore.kernels.attacks import ATTACKS
from ntkscore.kernels.readouts import READOUTS
from ntkscore.measures import MEASURES
from ntkscore.measures.activations import naswot
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.registry import identity
from ntkscore.options import option
from ntkscore.results import ResultSet, result_set, store
from ntkscore.results.rows import Rows
from ntkscore.run import calls, engine, fingerprints, scorer
from ntkscore.run.devices import Plan, one_device
from ntkscore.run.scorer import Scorer
from ntkscore.run.scoring import Scoring
from ntkscore.space import Space

SPACE = replace(RESIDUAL, depth=9)
NETWORKS = SPACE.architectures("all")


def counted(work: calls.Work, **_: object) -> Iterator[tuple[Plan, list[Rows]]]:
    """For each network one row, with the number of its skips."""
    space, plan, done = work.space, one_device(), work.done
    yield plan, []
    for seed in work.draws:
        for network in work.architectures:
            key = space.key(network)
            if (key, seed) not in done:
                row: dict[str, object] = {**space.identity(network), "seed": seed}
                row |= {"rho": 8 / 255, "steps": 1, "step_size": 8 / 255, "beta": None}
                row |= {"kernel": "clean", "score": "trace", "status": "ok"}
                yield plan, [[row | {"value": float(key.count("1"))}]]


@pytest.fixture(autouse=True)
def stubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "compute", counted)
    monkeypatch.setattr(scorer, "check_network", lambda *given: None)


def job(space: ntkscore.Space = SPACE, seeds: int = 1, **choices: Any) -> Scoring:
    return Scoring.of(IMAGES, Config(**choices), space=space, seeds=seeds)


def score(networks: Any, out: Path, made: Scoring | None = None, **how: Any) -> Run:
    """A run of these networks at their configuration."""
    made = made or job()
    return Run(engine.run(made, networks, out, **how), made.space)


def test_a_process_records_its_session_once(tmp_path: Path) -> None:
    for count in range(1, 5):
        score(NETWORKS[:count], tmp_path / "rank")
    searched(tmp_path / "search", budget=20)
    for name in ("rank", "search"):
        assert len(ResultSet.open(tmp_path / name).sessions) == 1
    score(NETWORKS[:9], tmp_path / "rank", session={"cells": "nine"})
    assert len(ResultSet.open(tmp_path / "rank").sessions) == 2


def test_calls_that_follow_each_other_read_each_part_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And write few of them again."""
    read, written = [], []
    whole = store.Folder.read, store.Folder.write

    def reading(self: store.Folder, names: Any) -> Any:
        read.extend(name for name in names if name.startswith("part-"))
        return whole[0](self, names)

    def writing(self: store.Folder, name: str, content: bytes) -> None:
        written.append(name)
        whole[1](self, name, content)

    monkeypatch.setattr(store.Folder, "read", reading)
    monkeypatch.setattr(store.Folder, "write", writing)
    monkeypatch.setattr(engine, "MANY_PARTS", 8)
    found = searched(tmp_path / "out", method="evolution", budget=40)
    assert len(found) == 40
    assert max(Counter(read).values()) <= 2  # at the end once more
    merged = [name for name in written if name.startswith(result_set.MERGED)]
    assert len(written) <= 50 and 1 <= len(merged) <= 4
    assert len([*(tmp_path / "out").glob("part-*")]) == 1


def test_no_network_is_a_sentence_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with refuses("none", expected="architecture"):
        score([], out)
    assert not out.exists()


def test_progress_says_that_it_counts_each_seed(tmp_path: Path) -> None:
    for seeds, expected in ((3, "12 of 12 networks × seeds"), (1, "4 of 4 networks")):
        told: list[str] = []
        each = job(seeds=seeds)
        out = tmp_path / str(seeds)
        score(NETWORKS[:4], out, each, report=lambda p, told=told: told.append(describe(p)))
        assert told[-1].split(", ")[0] == expected
        assert on_disk(str(out)) == f"{expected.partition(' of ')[2]} are on disk"


def searched(out: Path, **how: Any) -> Any:
    run = ntkscore.search(IMAGES, out, space=SPACE, by="clean.trace", **how)
    return run.rank("clean.trace")


def of_steps(steps: int) -> Any:
    return lambda rho: Attack(rho, steps=steps, step_size=rho / 4)


@dataclass(frozen=True)
class Strong:
    steps: int

    def __call__(self, rho: Any) -> Attack:
        return Attack(rho, steps=self.steps, step_size=rho / 4)


def by_a_helper(steps: int) -> Any:
    scope: dict[str, Any] = {"Attack": Attack, "__name__": "__main__"}
    exec(
        f"STEPS = {steps}\n"
        "def length(rho): return rho / STEPS\n"
        "def strong(rho): return Attack(rho, steps=20, step_size=length(rho))",
        scope,
    )
    return scope["strong"]


ATTACKS_OF_MY_OWN = {
    "a closure": of_steps,
    "an object": Strong,
    "arguments": lambda steps: partial(pgd, steps=steps),
    "a number and a helper of the module": by_a_helper,
}


@pytest.mark.parametrize("kind", ATTACKS_OF_MY_OWN)
def test_a_run_does_not_go_on_with_another_attack_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for steps in (20, 20, 2):
        monkeypatch.setitem(ATTACKS, "strong", ATTACKS_OF_MY_OWN[kind](steps))
        mine = job(attack="strong")
        if steps == 20:
            score(NETWORKS[:4], tmp_path / "out", mine)
    with refuses("functions.attack", expected=tmp_path / "out"):
        score(NETWORKS[:5], tmp_path / "out", mine)
    with refuses("functions.attack", expected=tmp_path / "out"):
        engine.check(mine, tmp_path / "out")


def test_a_program_is_of_what_an_attack_refers_to_now(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = {"steps": 20}
    monkeypatch.setitem(ATTACKS, "strong", lambda rho: Attack(rho, setting["steps"], rho / 4))
    first, again = (Scorer(SPACE, Config(attack="strong"))._compute for _ in range(2))
    setting["steps"] = 2
    assert first is again is not Scorer(SPACE, Config(attack="strong"))._compute


def test_an_attribute_is_not_the_global_value_of_its_name() -> None:
    scope: dict[str, Any] = {"__name__": "__main__", "scale": 2, "values": 0}
    exec("top = lambda spectrum: scale * spectrum.values[-1]", scope)
    first = fingerprints.fingerprint(scope["top"])
    scope["values"] = 1  # a loop of the notebook, say
    assert fingerprints.fingerprint(scope["top"]) == first
    scope["scale"] = 3
    assert fingerprints.fingerprint(scope["top"]) != first


def test_an_attack_without_a_hash_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # so that networks are checked
    monkeypatch.setitem(ATTACKS, "strong", type("Weak", (Strong,), {})(2))
    monkeypatch.setattr(type(ATTACKS["strong"]), "__hash__", None)
    with refuses("Weak"):
        score(NETWORKS[:4], tmp_path / "out", job(attack="strong"))
    assert not (tmp_path / "out").exists()
    with refuses("Weak"):
        Scorer(SPACE, Config(attack="strong"))


def test_an_attack_or_a_space_of_lists_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # so that networks are checked

    @dataclass(frozen=True)
    class Listed:
        steps: list[int] = field(default_factory=lambda: [1])

        def __call__(self, rho: float) -> Attack:
            return fgsm(rho)

    monkeypatch.setitem(ATTACKS, "strong", Listed())
    with refuses("Listed", "list", expected="an attack"):
        score(NETWORKS[:4], tmp_path / "out", job(attack="strong"))
    monkeypatch.setattr(type(SPACE), "__hash__", None)
    with refuses(type(SPACE).__name__, expected="a space"):
        score(NETWORKS[:4], tmp_path / "out", job())
    assert not (tmp_path / "out").exists()


def test_a_run_does_not_go_on_where_a_name_of_ours_was_given_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(NETWORKS[:4], tmp_path / "attack", job(attack="fgsm"))
    monkeypatch.setitem(ATTACKS, "fgsm", of_steps(2))
    with refuses("functions.attack", "built in", expected=tmp_path / "attack"):
        engine.check(job(attack="fgsm"), tmp_path / "attack")


def test_a_run_does_not_go_on_with_another_reading_or_network_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(READOUTS, "mine", lambda logits, labels: logits * 2)
    before = job(output="mine").configuration
    monkeypatch.setitem(READOUTS, "mine", lambda logits, labels: logits * 3)
    assert before["functions"] != job(output="mine").configuration["functions"]

    def space(factor: float, comment: str = "") -> ntkscore.Space:
        class Mine(Residual):
            """Wider at its start."""

            name = "mine"

            def draw(self, *given: Any) -> Any:
                return jax.tree.map(self._scaled, super().draw(*given))

            def _scaled(self, weight: Any) -> Any:
                return factor * weight

            def names(self, architecture: Any) -> Any:
                return {"name": comment}

        return Mine(width=8, depth=9)

    score(NETWORKS[:4], tmp_path / "space", job(space(2.0)))
    score(NETWORKS[:5], tmp_path / "space", job(space(2.0, "what it prints decides no number")))
    with refuses("functions.space", expected=tmp_path / "space"):
        score(NETWORKS[:4], tmp_path / "space", job(space(3.0)))


def test_a_run_goes_on_with_the_same_measures_alone(tmp_path: Path) -> None:
    score(NETWORKS[:4], tmp_path / "out")
    try:
        ntkscore.add_score("top", lambda s: s.values[-1], direction=+1, formula="top")
        with refuses("top", expected=tmp_path / "out"):
            score(NETWORKS[:5], tmp_path / "out")
        score(NETWORKS[:4], tmp_path / "top")
        del MEASURES["top"]
        ntkscore.add_score("top", lambda s: s.values[0], direction=+1, formula="top")
        with refuses("functions.measures.top", "Python", expected=tmp_path / "top"):
            score(NETWORKS[:5], tmp_path / "top")
        # A reference that lacks it ranks by its own measures all the same.
        other = score(NETWORKS[:4], tmp_path / "other")
        other.rank("clean.trace", among=tmp_path / "out")
        with refuses("functions.measures.top", expected=("scores", tmp_path / "top")):
            other.rank("clean.trace", among=tmp_path / "top")
    finally:
        del MEASURES["top"]
    with refuses("functions.measures.top", "nothing", expected=tmp_path / "top"):
        score(NETWORKS[:5], tmp_path / "top")
    score(NETWORKS[:5], tmp_path / "out")


def test_a_run_from_before_functions_were_recorded_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    score(NETWORKS[:4], out)
    content = json.loads((out / "run.json").read_text())
    del content["configuration"]["functions"]
    content["sessions"] = []
    (out / "run.json").write_text(json.dumps(content))
    assert len(score(NETWORKS[:6], out).rank("clean.trace")) == 6
    # What made its older rows is not known.
    assert "functions" not in json.loads((out / "run.json").read_text())["configuration"]
    assert "functions" not in ResultSet.open(out).read()
    score(NETWORKS[:6], tmp_path / "new").rank("clean.trace", among=out)


def test_a_run_that_another_version_began_says_so_when_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    score(NETWORKS[:4], out)
    (session,) = out.glob("session-*.json")
    content = json.loads(session.read_text())
    content["packages"]["ntkscore"] = "0.1.0"
    session.write_text(json.dumps(content))
    score(NETWORKS[:4], out)  # nothing is computed
    with pytest.warns(UserWarning, match=r"has rows of ntkscore 0\.1\.0, and ntkscore .* goes on"):
        score(NETWORKS[:5], out)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with input_errors():
            score(NETWORKS[:6], out)
    told = capsys.readouterr().err
    assert told.startswith("warning: ") and told.count("\n") == 1


def test_what_has_moved_has_the_name_by_which_runs_know_it() -> None:
    moved = {
        "cells.space.Space": Space,
        "cells.options.option": option,
        "ntkscore.measures.inside.naswot": naswot,
        "ntkscore.measures.declaration.identity": identity,
        "ntkscore.measures.forward.Pass": Pass,
    }
    for name, value in moved.items():
        assert fingerprints._plain(value, []) == name
    # What it was when runs recorded the measures' modules by their first names.
    recorded = fingerprints.functions_of(SPACE, Config(proxies=True))["measures"]
    assert recorded["grad_norm"] == "bdd8ece42ffca19a"
