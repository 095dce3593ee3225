import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import refuses

from cells.nasbench201 import EDGES, OPERATIONS, SIZE, Cell, all_cells
from cells.nasbench201.checkpoints import write_state_dict
from cells.nasbench201.network import abstract_variables
from cells.nasbench201.paths import PATHS
from cells.nasbench201.space import NASBench201
from ntkscore.data.benchmarks import load_operations
from ntkscore.errors import InputError
from ntkscore.task import Task

BEST = (
    "|nor_conv_3x3~0|+|nor_conv_1x1~0|nor_conv_3x3~1|"
    "+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
)


@pytest.mark.slow
def test_every_cell_round_trips_through_its_three_forms() -> None:
    cells = list(all_cells())
    assert [cell.index for cell in cells] == list(range(15_625))
    assert len({cell.digits for cell in cells}) == len({cell.string for cell in cells}) == SIZE
    for cell in cells:
        assert Cell.parse(str(cell.index)) == cell
        assert Cell.parse(cell.digits) == Cell.from_digits(cell.digits) == cell
        assert Cell.parse(cell.string) == Cell.from_string(cell.string) == cell


def test_the_order_is_the_benchmarks() -> None:
    order = ["".join(digits) for digits in itertools.product("01234", repeat=6)]
    random.Random(88).shuffle(order)
    assert [cell.digits for cell in all_cells()] == order
    assert {i: Cell(i).digits for i in (0, 2581, 1462)} == {
        0: "421211",
        2581: "323133",
        1462: "333333",
    }


def test_indices_and_digits_agree_with_the_published_list(data_dir: Path) -> None:
    published = load_operations(data_dir / "nas-robbench-201" / "ops.json")
    assert len(published) == SIZE
    assert [cell.digits for cell in all_cells()] == published
    assert [Cell.parse(digits).index for digits in published] == list(range(SIZE))


def test_the_digits_name_the_operations_of_the_edges_in_order() -> None:
    cell = Cell(2581)
    assert cell.string == BEST
    assert cell.operations == (3, 2, 3, 1, 3, 3)
    named = [part.split("~") for part in cell.string.replace("+", "").strip("|").split("|") if part]
    assert [OPERATIONS.index(name) for name, _ in named] == list(cell.operations)
    assert [int(source) for _, source in named] == [source for source, _ in EDGES]


@pytest.mark.parametrize(
    "given_as",
    [
        2581,
        "2581",
        " 2581\n",
        np.int64(2581),
        np.uint16(2581),
        np.array(2581),
        "323133",
        BEST,
        f"  {BEST} ",
        BEST.replace("|", " | "),
        Cell(2581),
    ],
    ids=repr,
)
def test_parse_accepts_every_form(given_as: Any) -> None:
    cell = Cell.parse(given_as)
    assert cell == Cell(2581)
    assert type(cell.index) is int


def test_cells_are_values() -> None:
    assert Cell(3) < Cell(4)
    assert len({Cell(3), Cell.parse("3"), Cell.from_digits(Cell(3).digits)}) == 1
    assert [0, 10, 20, 30][Cell(3)] == 30


@pytest.mark.parametrize("index", [-1, SIZE, 10**9])
def test_an_index_out_of_range_is_refused(index: int) -> None:
    for form in (index, str(index)) if abs(index) < 10**5 else (index,):
        with refuses(index, expected=15624):
            Cell.parse(form)


@pytest.mark.parametrize("digits", ["323135", "999999", "٣٢٣١٣٣"])
def test_digits_that_name_no_operation_are_refused(digits: str) -> None:
    with refuses(digits, expected=(0, 4), remedy="avg_pool_3x3"):
        Cell.parse(digits)


@pytest.mark.parametrize("digits", ["", "32313", "3231334", "323133\n", "32313a"])
def test_from_digits_wants_six(digits: str) -> None:
    with refuses(digits, expected=(0, 4)):
        Cell.from_digits(digits)


def test_an_unknown_operation_is_refused() -> None:
    with refuses("dil_conv_3x3", expected=("skip_connect", "nor_conv_1x1")):
        Cell.parse(BEST.replace("skip_connect", "dil_conv_3x3"))


@pytest.mark.parametrize(
    ("string", "count"),
    [
        ("|none~0|", 1),
        (BEST.replace("|nor_conv_3x3~2|", "|"), 5),
        (BEST.replace("|nor_conv_3x3~2|", "|none~2|none~3|"), 7),
        (BEST.replace("~2", "~1"), 6),
        (BEST.replace("+", ""), 6),
        ("~", 0),
        (f"|none~{'1' * 5000}|", 1),
    ],
)
def test_a_wrong_number_of_edges_is_refused(string: str, count: int) -> None:
    with refuses(count, string, remedy="none"):
        Cell.parse(string)


@pytest.mark.parametrize(
    "string", [BEST + "|", BEST.replace("+", "+|", 1), BEST[1:], BEST.replace("~0", "~00", 1)]
)
def test_wrong_separators_are_refused(string: str) -> None:
    with refuses(string, expected=BEST):
        Cell.parse(string)


@pytest.mark.parametrize("text", ["", "best", "25.81", "3 2 3 1 3 9", "--5", "1e3", "9" * 5000])
def test_rubbish_is_refused(text: str) -> None:
    with refuses(text, expected=(2581, 323133)):
        Cell.parse(text)


PIECES = st.sampled_from(
    [*OPERATIONS, "~", "|", "+", "0", "1", "2", "3", "4", "-", " ", "\n", "٣", "²", "~0", "~1", "é"]
)
TEXTS = st.one_of(
    st.text(),
    st.text("0123456789-", max_size=8),
    st.lists(PIECES, max_size=24).map("".join),
    st.tuples(
        st.integers(0, len(BEST)), st.integers(0, len(BEST)), st.sampled_from([BEST, ""])
    ).map(lambda cut: BEST[: cut[0]] + cut[2] + BEST[cut[1] :]),
    st.integers(0, SIZE - 1).map(lambda index: Cell(index).string),
)


@pytest.mark.slow
@given(TEXTS)
def test_any_text_is_a_cell_or_a_cell_error(text: str) -> None:
    for parser in (Cell.parse, Cell.from_digits, Cell.from_string):
        try:
            cell = parser(text)
        except InputError:
            continue
        assert Cell.parse(cell.index) == Cell.parse(cell.digits) == Cell.parse(cell.string) == cell


@given(st.integers())
def test_any_number_is_a_cell_or_a_cell_error(index: int) -> None:
    if 0 <= index < SIZE:
        assert Cell.parse(index).index == Cell.parse(str(index)).index == index
    else:
        with pytest.raises(InputError):
            Cell.parse(index)


@pytest.mark.slow
def test_neighbours_differ_in_one_edge_and_are_mutual() -> None:
    for index in random.Random(0).sample(range(SIZE), 100):
        cell = Cell(index)
        neighbours = cell.neighbours()
        assert len(neighbours) == len(set(neighbours)) == 24
        for other in neighbours:
            differing = [a != b for a, b in zip(cell.digits, other.digits, strict=True)]
            assert sum(differing) == 1
            assert cell in other.neighbours()


@pytest.mark.parametrize(
    ("digits", "params"),
    [("333333", 1_531_546), ("323133", 1_073_466), ("341231", 587_386), ("000000", 73_306)],
)
def test_parameter_counts_of_the_benchmark(digits: str, params: int) -> None:
    assert NASBench201().costs(Cell.from_digits(digits))["params"] == params


def test_multiply_adds_of_the_best_cell() -> None:
    def flops(digits: str) -> float:
        return NASBench201().costs(Cell.from_digits(digits))["flops"]

    assert round(flops("323133") / 1e6, 2) == 153.27
    nothing, small, large = (flops(f"{d}14410") for d in "023")
    assert nothing == flops("000000")
    assert (
        large - nothing == 9 * (small - nothing) == 9 * 5 * 16**2 * (32**2 + 4 * 16**2 + 16 * 8**2)
    )
    head = 64 * 10
    sides = ((32, 32), (16, 16), (16, 64), (64, 16))
    spaces = [NASBench201().on(Task((*shape, 3), 10)) for shape in sides]
    whole, quarter, *others = (space.costs(Cell(2581))["flops"] - head for space in spaces)
    assert whole == 4 * quarter and others == [whole, whole]


@pytest.mark.parametrize(("channels", "cells_per_stage", "classes"), [(4, 1, 10), (16, 5, 120)])
def test_parameters_are_those_of_the_written_state_dict(
    channels: int, cells_per_stage: int, classes: int
) -> None:
    sizes = {"channels": channels, "cells_per_stage": cells_per_stage}
    space = NASBench201(task=Task(num_classes=classes), **sizes)
    shapes = abstract_variables(space)["params"]
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.int8), shapes)
    for index in random.Random(1).sample(range(SIZE), 10):
        state = write_state_dict({"params": params}, Cell(index), space)
        assert sum(leaf.size for leaf in state.values()) == space.costs(Cell(index))["params"]


ROUTES = ((3,), (0, 4), (1, 5), (0, 2, 5))
"""The edges of every way from input to output."""


def edges_from(node: int) -> Iterator[tuple[int, ...]]:
    """The edges of each way from a node to the output, node 3."""
    if node == 3:
        yield ()
    for edge, (source, target) in enumerate(EDGES):
        if source == node:
            yield from ((edge, *rest) for rest in edges_from(target))


def test_counts_on_paths_are_those_of_the_four_routes() -> None:
    assert {*edges_from(0)} == {*ROUTES} == {*PATHS}
    for cell in [*all_cells()][::7]:
        ways = [[cell.operations[edge] for edge in route] for route in ROUTES]
        ways = [way for way in ways if 0 not in way]
        convolutions = [way.count(2) + way.count(3) for way in ways]
        assert NASBench201(cells_per_stage=2).structure(cell) == {
            "layers": 8 + 6 * sum(cell.digits.count(digit) for digit in "23"),
            "paths": len(ways),
            "path_convs": sum(convolutions),
            "path_pools": sum(way.count(4) for way in ways),
            "shortest_path": min(convolutions, default=0),
            "longest_path": max(convolutions, default=0),
            "field": max((2 * way.count(3) + way.count(4) for way in ways), default=0),
        }
