"""A few networks trained, each chosen by what those before it reached."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny import RESIDUAL_OPTIONS, invoke, refused, refuses, start

from cells.residual import Residual
from ntkscore.analysis.prediction import Predictor
from ntkscore.data.images import ImageSet, load_images
from ntkscore.training import few as module
from ntkscore.training.few import DIVERGED, OK, PENDING, FewTrainings, train_few, train_one
from ntkscore.training.fit import Diverged
from ntkscore.training.recipe import Recipe

SPACE = Residual(depth=6, width=8)
KEYS = [SPACE.key(each) for each in SPACE.architectures("all")]
RECIPE = Recipe(epochs=1, batch=50, held_out=100, attack_steps=1)
SCORES = pd.DataFrame(
    np.random.default_rng(0).normal(size=(len(KEYS), 3)), KEYS, columns=["a", "b", "c"]
)
ACCURACY = 0.3 + 0.05 * SCORES["a"]


class Trained:
    """Stands for a trained network."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def model(self) -> Any:
        return self.key


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Trainings that are looked up; the keys of all that took place."""
    taken: list[str] = []

    def train(key: Any, *_: object, **how: Any) -> Trained:
        taken.append(key)
        how["out"].mkdir(parents=True, exist_ok=True)
        return Trained(key)

    def evaluate(key: Any, images: np.ndarray, *_: object, **how: Any) -> pd.DataFrame:
        assert len(images) == 100
        rows = [("clean", 0, -1, 0.5), ("pgd", 8 / 255, 2, 0.8)]
        rows.append(("pgd", 8 / 255, -1, ACCURACY[key]))
        return pd.DataFrame(rows, columns=["metric", "rho", "class", "value"])

    monkeypatch.setattr(module, "train", train)
    monkeypatch.setattr(module, "evaluate", evaluate)
    return taken


def begun(out: Path, budget: int = 8, batch: int = 1) -> FewTrainings:
    predictor = Predictor(SCORES)
    return FewTrainings(out=out, space=SPACE, predictor=predictor, budget=budget, batch=batch)


def images() -> ImageSet:
    return load_images("synthetic")


def test_finds_the_best_and_trains_none_twice(tmp_path: Path, trainings: list[str]) -> None:
    few = begun(tmp_path)
    done = list(train_few(few, images(), RECIPE))
    assert [entry.status for entry in done] == [OK] * 8
    assert len(set(trainings)) == len(trainings) == 8
    assert ACCURACY.idxmax() in trainings
    frame = few.accuracies()
    assert frame.index.tolist() == trainings
    assert frame["pgd8"].tolist() == ACCURACY[trainings].tolist()
    assert list(train_few(begun(tmp_path), images(), RECIPE)) == []
    assert len(list(train_few(begun(tmp_path, budget=9), images(), RECIPE))) == 1


@pytest.mark.parametrize("batch", [1, 3])
def test_goes_on_as_if_it_had_not_been_stopped(
    tmp_path: Path, trainings: list[str], monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    list(train_few(begun(tmp_path / "whole", batch=batch), images(), RECIPE))
    whole, train = list(trainings), module.train
    trainings.clear()

    def until(limit: int) -> Any:
        def stopped(*given: Any, **how: Any) -> Any:
            if len(trainings) == limit:
                raise KeyboardInterrupt
            return train(*given, **how)

        return stopped

    for limit in (2, 4, 5, 99):
        monkeypatch.setattr(module, "train", until(limit))
        try:
            list(train_few(begun(tmp_path / "part", batch=batch), images(), RECIPE))
        except KeyboardInterrupt:
            continue
    assert trainings == whole
    names = ("queue.csv", "accuracies.csv")
    for name in names:
        one, other = (tmp_path / part / name for part in ("whole", "part"))
        assert one.read_text() == other.read_text()


def test_trains_all_where_the_budget_is_larger(tmp_path: Path, trainings: list[str]) -> None:
    list(train_few(begun(tmp_path, budget=99, batch=7), images(), RECIPE))
    assert sorted(trainings) == sorted(KEYS)


def test_a_network_that_diverged_is_not_asked_for_again(
    tmp_path: Path, trainings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train, second = module.train, []

    def diverging(key: Any, *given: Any, **how: Any) -> Any:
        if len(trainings) == 1 and not second:
            second.append(key)
            raise Diverged(step=3, epoch=1)
        return train(key, *given, **how)

    monkeypatch.setattr(module, "train", diverging)
    done = list(train_few(begun(tmp_path), images(), RECIPE))
    assert [entry.status for entry in done].count(DIVERGED) == 1
    assert second[0] not in trainings and len(done) == 8
    assert f"{second[0]},{DIVERGED}" in (tmp_path / "queue.csv").read_text()
    assert second[0] not in (tmp_path / "accuracies.csv").read_text()


def test_trainings_elsewhere_count_when_their_result_is_there(
    tmp_path: Path, trainings: list[str]
) -> None:
    few = begun(tmp_path, batch=2)
    first, second = few.next()
    assert first.status == second.status == PENDING and few.next() == [first, second]
    ended = train_one(few.space, first, images(), RECIPE)
    assert (ended.status, ended.accuracies) == (OK, {"clean": 0.5, "pgd8": ACCURACY[first.key]})
    assert train_one(few.space, first, images(), RECIPE) == ended  # and trains nothing
    assert [entry.key for entry in begun(tmp_path, batch=2).next()] == [second.key]
    rest = list(train_few(begun(tmp_path, batch=2), images(), RECIPE))
    assert len(rest) == 7 and trainings.count(first.key) == 1


def test_two_that_train_side_by_side_train_nothing_twice(
    tmp_path: Path, trainings: list[str]
) -> None:
    here, there = (train_few(begun(tmp_path, batch=3), images(), RECIPE) for _ in range(2))
    for _ in range(20):
        next(here, None), next(there, None)
    assert len(set(trainings)) == len(trainings) == 8


def test_the_workers_of_an_executor_train_a_batch_at_a_time(
    tmp_path: Path, trainings: list[str]
) -> None:
    list(train_few(begun(tmp_path / "here", batch=3), images(), RECIPE))
    for images_or_load in ({}, {"load": images}):
        folder = tmp_path / str(len(images_or_load))
        with ThreadPoolExecutor(2) as executor:
            how = {"executor": executor, **images_or_load}
            done = list(train_few(begun(folder, batch=3), images(), RECIPE, **how))
        assert len(done) == 8
        there, here = (each / "accuracies.csv" for each in (folder, tmp_path / "here"))
        assert there.read_bytes() == here.read_bytes()


def test_a_second_host_trains_the_next_entry_and_ends_where_none_is_left(
    tmp_path: Path, trainings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first trains, the second neither waits for it nor repeats its work."""
    train, begins, goes_on = module.train, threading.Event(), threading.Event()

    def slowly(*given: Any, **how: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and not begins.is_set():
            begins.set()
            assert goes_on.wait(60)
        return train(*given, **how)

    monkeypatch.setattr(module, "train", slowly)
    first: list[Any] = []
    run = partial(train_few, images=images(), recipe=RECIPE)
    host = threading.Thread(target=lambda: first.extend(run(begun(tmp_path, 5, batch=3))))
    host.start()
    try:
        assert begins.wait(60)
        busy, *free = [entry.key for entry in begun(tmp_path).entries()]
        second = list(run(begun(tmp_path, 5, batch=3)))
        assert [entry.key for entry in second] == [*free, busy]
        assert [entry.status for entry in second] == [OK, OK, PENDING]
        assert trainings == free
    finally:
        goes_on.set()
        host.join(60)
    assert [entry.status for entry in first] == [OK] * 5
    assert len(set(trainings)) == len(trainings) == 5


def test_a_folder_is_of_one_recipe(tmp_path: Path, trainings: list[str]) -> None:
    list(train_few(begun(tmp_path), images(), RECIPE))
    for how in ({"recipe": replace(RECIPE, epochs=2)}, {"recipe": RECIPE, "seed": 1}):
        with refuses(list(how)[-1], expected=tmp_path):
            next(train_few(begun(tmp_path, budget=9), images(), **how))  # type: ignore[arg-type]
    assert len(trainings) == 8


def test_a_damaged_file_is_named(tmp_path: Path, trainings: list[str]) -> None:
    list(train_few(begun(tmp_path, budget=2), images(), RECIPE))
    result, queue = tmp_path / "networks" / "0" / "result.json", tmp_path / "queue.csv"
    for path, content in ((result, b""), (result, b"{}"), (queue, b"\xff"), (queue, b"a\n\n\n")):
        kept = path.read_bytes()
        path.write_bytes(content)
        with refuses(path):
            begun(tmp_path).entries()
        path.write_bytes(kept)
    lines = queue.read_text().splitlines()
    queue.write_text("\n".join([*lines, lines[1]]))
    with refuses(2, expected=queue):
        begun(tmp_path).entries()
    queue.write_text("\n".join(lines))
    result.unlink()
    assert [entry.status for entry in begun(tmp_path).entries()] == [PENDING, OK]


def test_refuses_what_cannot_be_trained(tmp_path: Path) -> None:
    with refuses(0, expected=("batch", 1)):
        begun(tmp_path, batch=0)
    with refuses("none", remedy="--held-out"):
        next(train_few(begun(tmp_path), images(), replace(RECIPE, held_out=0)))
    waiting = begun(tmp_path).next()
    other = Predictor(SCORES.set_axis([f"{key}0" for key in KEYS]))
    few = FewTrainings(out=tmp_path, space=SPACE, predictor=other, budget=4)
    with refuses(waiting[0].key, expected=tmp_path / "queue.csv"):
        few.next()


TRAINING = ("--data", "synthetic", "--epochs", 1, "--batch-size", 50, "--attack-steps", 1)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scored") / "run"
    invoke("score", "all", "--depth", 5, "--out", out, *RESIDUAL_OPTIONS)
    return out


def stored(scored: Path, out: Path, *more: object) -> tuple[object, ...]:
    return ("choose", scored, "--out", out, *TRAINING, *more)


@pytest.mark.thorough
def test_the_command_trains_is_killed_and_goes_on(scored: Path, tmp_path: Path) -> None:
    options = ("--held-out", 300, "--budget", 4, "--format", "csv")
    whole = invoke(*stored(scored, tmp_path / "whole", *options)).stdout
    process = start(*stored(scored, tmp_path / "killed", *options))
    while not list((tmp_path / "killed").glob("networks/1")) and process.poll() is None:
        pass
    process.kill()
    process.communicate()
    begun = (tmp_path / "killed" / "queue.csv").read_text().splitlines()
    assert 1 < len(begun) < 5
    assert invoke(*stored(scored, tmp_path / "killed", *options)).stdout == whole
    file = tmp_path / "whole" / "accuracies.csv"
    predicted = invoke("predict", scored, "--table", file, "--metric", "pgd8").stdout
    assert "from 4 accuracies" in " ".join(predicted.split())


def test_the_command_refuses(scored: Path, tmp_path: Path) -> None:
    refused("held out of training to choose by", *stored(scored, tmp_path / "few"))
    refused("the test images must not", *stored(scored, tmp_path / "few"))
    refused("expected the space residual", *stored(scored, tmp_path / "few", "--space", "darts"))
    refused("give --space residual", *stored(scored, tmp_path / "few", "--channels", 8))
    refused(
        "expected budget to be at least 1, got 0", *stored(scored, tmp_path / "few", "--budget", 0)
    )
    assert not (tmp_path / "few").exists()
