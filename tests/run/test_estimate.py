"""How long a run will take: the networks that are asked, and what the command says and keeps."""

from pathlib import Path

import numpy as np
import pytest
from tiny import RESIDUAL_OPTIONS, invoke, refused

from cells import distinct_cells
from ntkscore import NASBench201
from ntkscore.results import ResultSet
from ntkscore.run.devices import Plan
from ntkscore.run.estimate import CALLS, few

SPACE = NASBench201()
CELLS = distinct_cells()
CPU, GPU = Plan(("a", "b"), 1, 4), Plan(("a",), 16, 64)


def cost(cells: list) -> float:
    return float(np.mean([SPACE.costs(cell)["flops"] for cell in cells]))


@pytest.mark.parametrize("plan", [CPU, GPU])
def test_each_call_costs_what_the_whole_costs(plan: Plan) -> None:
    chosen = few(SPACE, CELLS, plan)
    assert len(set(chosen)) == len(chosen) == CALLS * plan.per_call
    calls = [chosen[i : i + plan.per_call] for i in range(0, len(chosen), plan.per_call)]
    ratios = [cost(call) / cost(CELLS) for call in calls]
    assert np.mean(ratios) == pytest.approx(1, abs=0.03)
    assert ratios == pytest.approx(np.ones(CALLS), abs=0.15)


def test_networks_side_by_side_are_those_of_the_run() -> None:
    ordered = sorted(CELLS, key=SPACE.needs)
    chosen = few(SPACE, CELLS, GPU)
    for start in range(0, len(chosen), GPU.group):
        place = ordered.index(chosen[start])
        assert place % GPU.group == 0
        assert chosen[start : start + GPU.group] == ordered[place : place + GPU.group]


def test_a_short_run_is_asked_whole() -> None:
    assert few(SPACE, CELLS[:20], CPU) == list(CELLS[:20])


@pytest.mark.slow
def test_the_command_says_what_is_left_and_keeps_what_is_done(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ("--cells", "all", *RESIDUAL_OPTIONS, "--depth", "7", "--seeds", "2", "--out", out)
    told = invoke("rank", *options, "--batch", "1", "--estimate").stdout
    first = ResultSet.open(out).finished()
    # Thirty-two networks by two seeds; calls of as many networks as there are devices.
    assert 0 < len(first) < 32
    assert told.startswith(f"{64 - len(first)} of 64 networks are left: about ")
    assert told.rstrip().endswith("a second")
    assert {seed for _, seed in first} == {0}
    invoke("rank", *options)
    assert first < ResultSet.open(out).finished()
    told = invoke("rank", *options, "--estimate").stdout
    assert told == "0 of 64 networks are left\n"


def test_one_of_several_processes_cannot_tell(tmp_path: Path) -> None:
    refused(
        "expected --estimate in a single process, got several; leave --processes",
        *("rank", "--out", tmp_path / "run", "--estimate", "--processes", "2", "--process", "0"),
    )
    assert not list(tmp_path.iterdir())
