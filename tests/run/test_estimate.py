"""How long a run will take: the networks that are asked, and what the command says and keeps."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny import RESIDUAL_OPTIONS, invoke, refused

from cells import distinct_cells
from ntkscore import NASBench201
from ntkscore.results import ResultSet
from ntkscore.run.devices import Plan
from ntkscore.run.estimate import CALLS, CALLS_OF_GROUPS, few

SPACE = NASBench201()
CELLS = distinct_cells()
CORE, CORES, GPU = Plan(("a",), 1, 1), Plan(("a", "b"), 1, 4), Plan(("a",), 16, 64)


def cost(cells: list) -> float:
    return float(np.mean([SPACE.costs(cell)["flops"] for cell in cells]))


@pytest.mark.parametrize(("plan", "calls"), [(CORE, CALLS), (CORES, CALLS), (GPU, CALLS_OF_GROUPS)])
def test_what_is_timed_costs_what_the_whole_costs(plan: Plan, calls: int) -> None:
    chosen = few(SPACE, CELLS, plan)
    assert len(set(chosen)) == len(chosen) == calls * plan.per_call
    # The first call compiles and is not timed.
    assert cost(chosen[plan.per_call :]) / cost(CELLS) == pytest.approx(1, abs=0.05)


def test_each_call_has_a_like_mixture() -> None:
    chosen = few(SPACE, CELLS, CORES)
    calls = [chosen[i : i + 8] for i in range(0, len(chosen), 8)]
    ratios = [cost(call) / cost(CELLS) for call in calls]
    assert ratios == pytest.approx(np.ones(CALLS), abs=0.15)


def test_networks_side_by_side_are_those_of_the_run() -> None:
    ordered = sorted(CELLS, key=SPACE.needs)
    chosen = few(SPACE, CELLS, GPU)
    for start in range(0, len(chosen), GPU.group):
        place = ordered.index(chosen[start])
        assert place % GPU.group == 0
        assert chosen[start : start + GPU.group] == ordered[place : place + GPU.group]


def test_a_short_run_is_asked_whole() -> None:
    assert few(SPACE, CELLS[:20], CORES) == list(CELLS[:20])


@pytest.mark.slow
def test_the_command_says_what_is_left_and_keeps_what_is_done(tmp_path: Path) -> None:
    out = tmp_path / "run"
    # Eight networks by two seeds, and as many networks a call as there are devices.
    options = ("--cells", "all", *RESIDUAL_OPTIONS, "--depth", "5", "--seeds", "2", "--out", out)
    told = invoke("rank", *options, "--batch", "1", "--estimate").stdout
    first = ResultSet.open(out).finished()
    assert {seed for _, seed in first} == {0}
    assert told.startswith(f"{16 - len(first)} of 16 networks are left")
    invoke("rank", *options, "--seeds", "1")
    # The first seed is whole; the second tells the time.
    printed = invoke("rank", *options, "--batch", "1", "--estimate", "--format", "json").stdout
    done = ResultSet.open(out).finished()
    assert {seed for _, seed in done} == {0, 1} and first < done
    (row,) = json.loads(printed)
    assert (row["networks"], row["left"]) == (16, 16 - len(done))
    invoke("rank", *options)
    told = invoke("rank", *options, "--estimate").stdout
    assert told == "0 of 16 networks are left\n"


def test_one_of_several_processes_cannot_tell(tmp_path: Path) -> None:
    refused(
        "expected --estimate in a single process, got several; leave --processes",
        *("rank", "--out", tmp_path / "run", "--estimate", "--processes", "2", "--process", "0"),
    )
    assert not list(tmp_path.iterdir())
