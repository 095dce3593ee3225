"""Search into a directory: only what is visited is scored, and a killed search goes on."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tiny import (
    IMAGES,
    RESIDUAL,
    RESIDUAL_OPTIONS,
    finish,
    invoke,
    refused,
    refuses,
    rows_in,
    start,
)

import ntkscore

pytestmark = pytest.mark.slow


def searched(out: Path, **choices: Any) -> pd.DataFrame:
    run = ntkscore.search(IMAGES, out, space=RESIDUAL, **choices)
    return run.rank(choices["by"])


@pytest.mark.parametrize("method", ["local", "evolution"])
def test_a_search_scores_what_it_visits_and_ranks_it(tmp_path: Path, method: str) -> None:
    steps: list[int] = []
    found = searched(
        tmp_path / "run",
        method=method,
        budget=12,
        by="clean.trace",
        report=lambda step: steps.append(step.visited),
    )
    assert len(found) == 12 == steps[-1]
    assert steps == sorted(steps)
    assert found["clean.trace"].is_monotonic_decreasing
    assert set(rows_in(tmp_path / "run")["skips"]) == set(found["skips"])
    # The same search over what is on disk computes nothing, and goes further.
    before = sorted(p.name for p in (tmp_path / "run").glob("part-*"))
    again = searched(tmp_path / "run", method=method, budget=12, by="clean.trace")
    assert list(again["skips"]) == list(found["skips"])
    assert sorted(p.name for p in (tmp_path / "run").glob("part-*")) == before
    more = searched(tmp_path / "run", method=method, budget=14, by="clean.trace")
    assert set(found["skips"]) < set(more["skips"])


def test_the_best_of_a_whole_space_is_found(tmp_path: Path) -> None:
    whole = ntkscore.score("all", IMAGES, space=RESIDUAL).rank("clean.trace")
    found = searched(tmp_path / "run", budget=16, by="clean.trace")
    assert list(found["skips"]) == list(whole["skips"])


def test_a_search_of_ones_own_asks_and_is_told(tmp_path: Path) -> None:
    """As Optuna or pymoo would: whoever drives scores what it likes, and is given numbers."""
    space = RESIDUAL
    networks = list(space.architectures("all"))
    told: list[int] = []

    def in_pairs(space: ntkscore.Space, rng: object):
        for first in range(0, 8, 2):
            values = yield networks[first : first + 2]
            told.append(len(values))
        while True:
            yield []

    found = searched(tmp_path / "driven", method=in_pairs, budget=16, by="clean.trace")
    assert set(found["skips"]) == {space.key(each) for each in networks[:8]} and told == [
        2,
        4,
        6,
        8,
    ]


def test_a_search_of_ones_own_may_end(tmp_path: Path) -> None:
    def once(space: ntkscore.Space, rng: object):
        yield space.architectures("all")[:3]

    assert len(searched(tmp_path / "once", method=once, budget=3, by="clean.trace")) == 3
    assert len(searched(tmp_path / "once", method=once, budget=9, by="clean.trace")) == 3


def test_the_command(tmp_path: Path) -> None:
    options = [*RESIDUAL_OPTIONS, "--out", tmp_path / "run", "--budget", 9]
    text = invoke("search", *options).stdout
    assert "Ranked by params+clean.naswot" in text and "9 networks, 2 without this score" in text
    plot = tmp_path / "search.svg"
    rows = json.loads(invoke("search", *options, "--format", "json", "--plot", plot).stdout)
    assert len(rows) == 9 and rows[0]["rank"] == 1
    assert "<!-- 7 networks, 2 without this score; the first 7 in orange -->" in plot.read_text()
    other = [*RESIDUAL_OPTIONS, "--out", tmp_path / "other"]
    refused("expected a budget of at least 1 network, got 0", "search", *other, "--budget", 0)
    refused("expected one of local, evolution, nsga2, got 'x'", "search", *other, "--method", "x")
    refused(
        "expected costs to search beside (pareto) for nsga2, and for it alone, got none",
        "search",
        *other,
        "--method",
        "nsga2",
    )
    refused(
        "got params for local; leave the method local out",
        "search",
        *other,
        "--method",
        "local",
        "--pareto",
        "params",
    )
    refused("got 'size'; name some of these", "search", *other, "--pareto", "params,size")
    refused("each cost once", "search", *other, "--pareto", "params,params")
    refused("expected KERNEL.SCORE", "search", *other, "--by", "x")
    refused("expected a picture that ends in .png", "search", *other, "--plot", "x.gif")
    assert not (tmp_path / "other").exists()


def test_a_space_without_neighbours_is_refused(tmp_path: Path) -> None:
    file = Path(__file__).with_name("own_space.py")
    space = ntkscore.spaces.space_class(str(file))()
    with refuses("one_hidden", remedy="`neighbours`"):
        ntkscore.search(IMAGES, tmp_path / "run", space=space)
    assert not (tmp_path / "run").exists()


def test_a_stopped_search_for_a_front_goes_on_to_the_same_end(tmp_path: Path) -> None:
    options = ("--budget", 12, "--by", "clean.trace", "--pareto", "params,shortcuts", "--depth", 6)
    options = (*RESIDUAL_OPTIONS, *options, "--format", "csv", "--out")
    whole = invoke("search", *options, tmp_path / "whole").stdout

    def stop(step: object) -> None:
        raise KeyboardInterrupt

    asked = {"budget": 12, "by": "clean.trace", "pareto": ("params", "shortcuts")}
    space = ntkscore.spaces.space_class("residual")(width=8, depth=6)
    with pytest.raises(KeyboardInterrupt):
        ntkscore.search(IMAGES, tmp_path / "run", space=space, report=stop, **asked)
    on_disk = set(rows_in(tmp_path / "run")["skips"])
    assert 0 < len(on_disk) < 12
    assert invoke("search", *options, tmp_path / "run").stdout == whole
    assert on_disk < set(rows_in(tmp_path / "run")["skips"])
    # The front of the run is what was printed, and `rank` prints it too.
    front = ntkscore.open_run(tmp_path / "run").rank("clean.trace", pareto=asked["pareto"])
    assert list(front["skips"]) == [line.split(",")[1] for line in whole.splitlines()[1:]]
    plot = tmp_path / "front.svg"
    asked = ("rank", tmp_path / "run", "--by", "clean.trace", "--pareto", "params,shortcuts")
    assert invoke(*asked, "--format", "csv", "--plot", plot).stdout == whole
    assert f"{len(front)} that none beats in orange" in plot.read_text()


@pytest.mark.thorough
def test_a_killed_search_goes_on_to_the_same_end(tmp_path: Path) -> None:
    options = [*RESIDUAL_OPTIONS, "--budget", 12, "--out"]
    whole = invoke("search", *options, tmp_path / "whole", "--format", "csv").stdout
    process = start("search", *options, tmp_path / "killed")
    while not list((tmp_path / "killed").glob("part-*")) and process.poll() is None:
        pass
    process.kill()
    process.communicate()
    again = invoke("search", *options, tmp_path / "killed", "--format", "csv").stdout
    assert again == whole
    finish(start("search", *options, tmp_path / "killed"))
