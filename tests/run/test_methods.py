"""Searches over neighbours: what they visit, in which order, and what they find."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tiny import refuses

from cells.darts import Darts
from cells.darts.published import PUBLISHED
from cells.nasbench201 import Cell, distinct_cells
from cells.nasbench201.canonical import canonical
from cells.nasbench201.space import NASBench201
from cells.residual import Residual
from ntkscore.run.search import METHODS, visit
from ntkscore.run.selection import select

CELLS, RESIDUAL = NASBench201(), Residual(depth=8)


def by_ones(seen: dict[Any, float], calls: list[int] | None = None) -> Any:
    def evaluate(new: Sequence[Any]) -> dict[Any, float]:
        assert new and not {a.pattern for a in new} & seen.keys()
        seen.update({a.pattern: a.pattern.count("1") for a in new})
        if calls is not None:
            calls.append(len(new))
        return seen

    return evaluate


def test_neighbours_are_other_functions_one_operation_away() -> None:
    for digits in ("323133", "000000", "030003"):
        cell = Cell.from_digits(digits)
        found = CELLS.neighbours(cell)
        assert found == list(dict.fromkeys(map(canonical, found)))
        assert canonical(cell) not in found
        assert set(found) | {canonical(cell)} >= {canonical(n) for n in cell.neighbours()}
    assert {s.pattern for s in RESIDUAL.neighbours(RESIDUAL.parse("010"))} == {"110", "000", "011"}


@pytest.mark.parametrize("method", METHODS)
def test_a_search_visits_each_architecture_once_and_as_many_as_it_may(method: str) -> None:
    calls: list[int] = []
    found = visit(method, RESIDUAL, by_ones({}, calls), 30, np.random.default_rng(1))
    assert len(found) == len(set(found)) == 30 == sum(calls)
    again = visit(method, RESIDUAL, by_ones({}), 30, np.random.default_rng(1))
    assert again == found
    other = visit(method, RESIDUAL, by_ones({}), 30, np.random.default_rng(2))
    assert other != found
    # What it does with a budget is the beginning of what it does with more.
    assert visit(method, RESIDUAL, by_ones({}), 12, np.random.default_rng(1)) == found[:12]


def test_a_search_ends_when_it_finds_nothing_new() -> None:
    found = {m: visit(m, RESIDUAL, by_ones({}), 1000, np.random.default_rng(0)) for m in METHODS}
    assert len(found["local"]) == 64
    # Evolution stays around the best.
    assert 20 < len(found["evolution"]) <= 64


def test_local_search_climbs_to_the_best_neighbour() -> None:
    seen: dict[Any, float] = {}
    found = visit("local", RESIDUAL, by_ones(seen), 25, np.random.default_rng(0))
    start = found[0].pattern
    # From k ones of six, 6 − k steps; each looks at neighbours that are not known yet.
    assert [a.pattern for a in found[1:7]] == [
        n.pattern for n in RESIDUAL.neighbours(RESIDUAL.parse(start))
    ]
    assert "111111" in seen


def test_several_objectives_cover_more_than_chance() -> None:
    """By the area below the front, of 150 cells of 5,234; in the median of five drawn targets."""

    def area(found: Sequence[Cell], table: np.ndarray) -> float:
        pairs = [table[:, range(6), list(each.operations)].sum(1) for each in found]
        covered, height = 0.0, 0.0
        for right, high in sorted(pairs, key=tuple, reverse=True):
            covered += right * max(0.0, high - height)
            height = max(height, high)
        return covered

    shares = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        table, seen = rng.random((2, 6, 5)), {}

        def evaluate(new: Sequence[Cell], seen: Any = seen, table: Any = table) -> dict[Any, Any]:
            for each in new:
                seen[CELLS.key(each)] = table[:, range(6), list(each.operations)].sum(1)
            return seen

        found = visit("nsga2", CELLS, evaluate, 150, rng)
        everyone = distinct_cells()
        chance = [everyone[i] for i in rng.choice(len(everyone), 150, replace=False)]
        whole = area(everyone, table)
        shares.append([area(found, table) / whole, area(chance, table) / whole])
    ours, random = np.median(shares, axis=0)
    assert ours > 0.95 and ours > random + 0.05


def test_a_network_without_values_is_no_parent() -> None:
    """As one out of bounds, or whose score failed."""

    def evaluate(new: Sequence[Any]) -> dict[Any, Any]:
        seen.update({a.pattern: (a.pattern.count("1"), -len(a.pattern)) for a in new})
        return {k: v if v[0] > 2 else (-np.inf, v[1]) for k, v in seen.items()}

    seen: dict[Any, Any] = {}
    found = visit("nsga2", RESIDUAL, evaluate, 40, np.random.default_rng(0))
    assert len(found) == 40


def test_evolution_finds_more_than_chance() -> None:
    targets = {cell: sum(op == 3 for op in cell.operations) for cell in distinct_cells()}

    def best(method: str, seed: int) -> int:
        seen: dict[Any, float] = {}

        def evaluate(new: Sequence[Cell]) -> dict[Any, float]:
            seen.update({CELLS.key(cell): targets[cell] for cell in new})
            return seen

        visit(method, CELLS, evaluate, 150, np.random.default_rng(seed))
        return max(seen.values())

    chance = [
        max(targets[c] for c in np.random.default_rng(s).permutation(list(targets))[:150])
        for s in range(5)
    ]
    for method in METHODS:
        assert np.mean([best(method, seed) for seed in range(5)]) > np.mean(chance)


@pytest.mark.parametrize("method", METHODS)
def test_a_search_stays_within_bounds(method: str) -> None:
    bounds = {"params": 6e5, "path_pools": 1}

    known: list[Cell] = []

    def evaluate(new: Sequence[Cell]) -> dict[Any, float]:
        known.extend(new)
        return {CELLS.key(cell): CELLS.costs(cell)["params"] for cell in known}

    found = visit(method, CELLS, evaluate, 40, np.random.default_rng(0), bounds)
    assert len(found) == 40
    seen = {CELLS.key(cell) for cell in found}
    assert seen == {CELLS.key(cell) for cell in known}
    for cell in found:
        counted = CELLS.costs(cell) | CELLS.structure(cell)
        assert all(counted[name] <= bound for name, bound in bounds.items())
    rng = np.random.default_rng(0)
    with refuses("none", expected=("params", 1)):
        visit(method, CELLS, evaluate, 40, rng, {"params": 1})
    with refuses("size"):
        visit(method, CELLS, evaluate, 40, rng, {"size": 1})


def test_what_is_no_search_is_refused() -> None:
    rng = np.random.default_rng(0)
    with refuses("random"):
        visit("random", RESIDUAL, by_ones({}), 5, rng)
    with refuses(0, expected="budget"):
        visit("local", RESIDUAL, by_ones({}), 0, rng)


def test_children_out_of_bounds_do_not_push_others_out() -> None:
    steps = METHODS["evolution"](CELLS, np.random.default_rng(0))
    first = next(steps)
    values = {CELLS.key(cell): 1.0 for cell in first}
    for _ in range(5):  # none of the children gets a value
        children = steps.send(values)
        around = {CELLS.key(n) for cell in first for n in CELLS.neighbours(cell)}
        assert {CELLS.key(child) for child in children} <= around


def test_published_genotypes_are_a_set_of_darts() -> None:
    space = Darts()
    found = select("published", space)
    assert len(found) == len(set(found)) == len(set(PUBLISHED.values()))
    with refuses("1,076,746,950,455,072,400", "darts", expected="1,000,000"):
        select("all", space)
    some = select("random:5", space)
    assert select("random:3", space) == some[:3] and len(set(some)) == 5
