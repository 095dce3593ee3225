"""The order in which networks are handed to an accelerator."""

import random

import numpy as np
import pytest
from tiny import RESIDUAL

from cells import NASBench201
from cells.nasbench201 import distinct_cells
from ntkscore.run.calls import in_order

SPACE = NASBench201()


def over_needed(cells: list, size: int) -> float:
    """3×3 convolutions that groups compute, over those that cells have."""
    wide = np.array([cell.operations for cell in cells]) == 3
    parts = [wide[start : start + size] for start in range(0, len(wide), size)]
    return sum(len(part) * part.any(0).sum() for part in parts) / wide.sum()


@pytest.mark.parametrize("count", [160, 163])
def test_groups_share_what_they_need(count: int) -> None:
    cells = random.Random(0).sample(distinct_cells(), count)
    ordered = in_order(SPACE, cells, 16)
    assert sorted(ordered) == sorted(cells)
    assert over_needed(ordered, 16) < 0.7 * over_needed(cells, 16)
    # Each full group starts at a multiple of the size, and has neighbours in the order of needs.
    place = {cell: k for k, cell in enumerate(sorted(cells, key=SPACE.needs))}
    for start in range(0, count, 16):
        places = [place[cell] for cell in ordered[start : start + 16]]
        assert places[0] % 16 == 0
        assert places == list(range(places[0], places[0] + len(places)))


def test_the_whole_space_computes_little_that_no_cell_needs() -> None:
    assert over_needed(in_order(SPACE, list(distinct_cells()), 16), 16) < 1.2


def test_one_by_one_the_order_is_the_given_one() -> None:
    cells = [SPACE.parse(index) for index in (7, 100, 3)]
    assert in_order(SPACE, cells, 1) == cells


def test_groups_of_a_space_without_needs_of_its_own_are_those_given() -> None:
    networks = [RESIDUAL.parse(f"{number:03b}") for number in range(7)]
    ordered = in_order(RESIDUAL, networks, 2)
    pairs = {tuple(ordered[start : start + 2]) for start in range(0, 7, 2)}
    assert pairs == {tuple(networks[start : start + 2]) for start in range(0, 7, 2)}
    assert ordered[-1] == networks[-1]
