"""Names of networks in tables and files that a spreadsheet or pandas has written again."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny import refuses, scored

import ntkscore
from cells.nasbench201 import Cell
from cells.nasbench201.space import NASBench201
from cells.residual import Residual
from ntkscore import Table
from ntkscore.analysis.comparison import in_keys_of
from ntkscore.run.selection import select

SPACE = NASBench201()
DIGITS = ["012343", "000001", "323133", "421211", "012341"]
CELLS = [Cell.parse(digits).index for digits in DIGITS]
STRIPPED = [int(digits) for digits in DIGITS]


def written(folder: Path, heading: str, names: list[Any]) -> Path:
    path = folder / "mine.csv"
    rows = [f"{name},0.{i + 1}" for i, name in enumerate(names)]
    path.write_text("\n".join([f"{heading},pgd8", *rows]))
    return path


def keys_in(path: Path) -> list[Any]:
    return list(in_keys_of(SPACE, path, "cifar10").own)


@pytest.mark.parametrize("heading", ["digits", " Digits ", "digits"])
def test_digits_under_their_heading_get_their_zeros_back(tmp_path: Path, heading: str) -> None:
    assert keys_in(written(tmp_path, heading, STRIPPED)) == CELLS
    assert keys_in(written(tmp_path, heading, DIGITS)) == CELLS
    frame = pd.read_csv(written(tmp_path, "digits", DIGITS)).set_index("digits")
    assert list(in_keys_of(SPACE, Table.from_frame(frame, dataset="cifar10")).own) == CELLS
    # As floats, which pandas makes of a column with gaps.
    frame.index = frame.index.astype(float)
    assert list(in_keys_of(SPACE, Table.from_frame(frame, dataset="cifar10")).own) == CELLS
    assert keys_in(written(tmp_path, heading, [f"{n}.0" for n in STRIPPED])) == CELLS


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("network", STRIPPED),
        ("cell", STRIPPED),
        ("arch", [12343, 1]),
        ("", [0, 1, 2]),
        ("network", ["12343.0", "323133.0"]),
        ("cell", [2581, 0, 323133]),
    ],
)
def test_what_may_be_either_is_refused(tmp_path: Path, heading: str, names: list[Any]) -> None:
    with refuses(heading, remedy="`digits`"):
        keys_in(written(tmp_path, heading, names))
    index = pd.Index(names, name=heading or None)
    own = Table.from_frame(pd.DataFrame({"pgd8": [0.1] * len(names)}, index), dataset="cifar10")
    with refuses(heading, remedy="`digits`"):
        in_keys_of(SPACE, own)


@pytest.mark.parametrize(
    ("heading", "names", "cells"),
    [
        ("cell", [12343, 0, 1], [12343, 0, 1]),
        ("Index", [0, 1, 2], [0, 1, 2]),
        ("network", [0, 1, 9], [0, 1, 9]),  # 9 is no operation
        ("network", [12343.0, 2581.0], [12343, 2581]),
        ("network", ["012343", "323133"], [CELLS[0], 2581]),
        ("network", ["000000", "0", "1"], [Cell.parse("000000").index, 0, 1]),  # zeros are kept
        ("network", [2581, 421211], [2581, 0]),
    ],
)
def test_what_can_be_one_alone_is_that(
    tmp_path: Path, heading: str, names: list[Any], cells: list[int]
) -> None:
    assert keys_in(written(tmp_path, heading, names)) == cells


def test_cells_themselves_are_clear() -> None:
    index = [Cell(0), Cell(1), Cell(12343)]
    own = Table.from_frame(pd.DataFrame({"pgd8": [0.1, 0.2, 0.3]}, index), dataset="cifar10")
    assert in_keys_of(SPACE, own).own == (0, 1, 12343)


def test_rows_that_are_no_networks_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ntkscore"):
        keys_in(written(tmp_path, "cell", [2581, "resnet-18", 99999, 1462]))
    assert caplog.messages == [
        "2 of the 4 rows of mine are no networks of the space nasbench201, such as 'resnet-18'"
    ]


@pytest.mark.parametrize("blank", ["", " ", "\u00a0"])
def test_blank_names_are_refused(blank: str) -> None:
    frame = pd.DataFrame({"pgd8": [0.1, 0.2]}, index=["323133", blank])
    with refuses(expected=("key", "own table")):
        Table.from_frame(frame, dataset="cifar10")


def test_two_names_of_one_cell_are_refused(tmp_path: Path) -> None:
    with refuses("012343", "12343", expected="mine"):
        keys_in(written(tmp_path, "digits", ["012343", 12343, "323133"]))


def test_files_of_names_may_have_a_heading(tmp_path: Path) -> None:
    path = tmp_path / "cells.txt"
    path.write_text("\n".join(map(str, STRIPPED)))
    with refuses(12343, remedy="`digits`"):
        select(str(path), SPACE)
    path.write_text("\n".join(["digits", *map(str, STRIPPED)]))
    assert [cell.index for cell in select(str(path), SPACE)] == CELLS
    path.write_text("cell\n12343\n1\n")
    assert select(str(path), SPACE) == (Cell(12343), Cell(1))
    # By hand on the command line nothing has been lost.
    assert select("323133,0", SPACE) == (Cell(2581), Cell(0))


def test_predictions_and_correlations_read_names_alike(tmp_path: Path) -> None:
    scores = pd.DataFrame({"clean.trace": [1.0, 2, 3, 5, 4]}, pd.Index(CELLS, name="cell"))
    values = [0.1, 0.2, 0.3, 0.5, 0.4]
    frames = [
        ntkscore.predict(scores, pd.Series(values, pd.Index(names, name="digits")))
        for names in (DIGITS, STRIPPED, np.array(STRIPPED, float))
    ]
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frame, frames[0])
    with refuses(12343, remedy="`digits`"):
        ntkscore.predict(scores, dict(zip(STRIPPED, values, strict=True)))
    path = written(tmp_path, "digits", STRIPPED)
    for named in (
        scores,
        scores.set_axis(pd.Index(DIGITS)),
        scores.set_axis(pd.Index(STRIPPED, name="digits")),
        path,
    ):
        found = ntkscore.correlate(named, path, metric="pgd8", resamples=10)
        assert found["n"].tolist()[0] == 5
    with refuses(2581):
        twice = scores.set_axis(pd.Index([2581, "323133", 7, 8, 9]))
        ntkscore.correlate(twice, path, metric="pgd8")


def test_too_few_accuracies_of_these_networks_name_the_others() -> None:
    scores = pd.DataFrame({"clean.trace": [1.0, 2, 3, 5]}, pd.Index([2581, 1462, 0, 7]))
    with refuses(3, 2, 9999):
        ntkscore.predict(scores, {2581: 0.1, 1462: 0.2, 9999: 0.3})


def test_skip_patterns_lose_zeros_too() -> None:
    patterns = ["0110", "0001", "1000", "1011"]
    for names, heading in ((patterns, "skips"), (["0", "10", "101"], None)):
        frame = pd.DataFrame({"pgd8": [0.1] * len(names)}, pd.Index(names, name=heading))
        own = in_keys_of(Residual(), Table.from_frame(frame, dataset="cifar10"))
        assert list(own.own) == names
    frame = pd.DataFrame({"pgd8": [0.1] * 4}, [int(pattern) for pattern in patterns])
    with refuses(110, "0110"):
        in_keys_of(Residual(), Table.from_frame(frame, dataset="cifar10"))


@pytest.mark.parametrize(
    "names",
    [
        (4, 0, 3, 1, 4, 3),
        [4, 0, 3, 1, 4, 3],
        np.array([4, 0, 3, 1, 4, 3]),
        np.array([4.0, 0, 3, 1, 4, 3]),
        pd.Series([4, 0, 3, 1, 4, 3]),
        ["4", "0", "3", "1", "4", "3"],
        [(4, 0, 3, 1, 4, 3), (0, 0, 0, 0, 0, 1)],
        np.array([[4, 0, 3, 1, 4, 3]]),
        "(4, 0, 3, 1, 4, 3)",
        "4,0,3,1,4,3",
        "4 0 3 1 4 3",
    ],
)
def test_six_operations_are_no_six_cells(names: Any, unchecked: None) -> None:
    with refuses(4, 0, 3, expected="cells", remedy=("410242", "403143")):
        SPACE.parse_all(names)
    with refuses(4, 0, 3, expected="cells", remedy=("410242", "403143")):
        select(names, SPACE)
    images = np.random.default_rng(0).uniform(size=(2, 8, 8, 3))
    with refuses(4, 0, 3, expected="cells", remedy=("410242", "403143")):
        scored(names, images, np.array([0, 1]))


def test_six_numbers_of_which_one_is_no_operation_are_six_cells() -> None:
    for names in ((0, 1, 2, 3, 4, 5), range(6), np.arange(6), [*"012345"]):
        assert SPACE.parse_all(names) == [Cell(i) for i in range(6)]
    assert SPACE.parse_all([Cell(0), Cell(1)] * 3) == [Cell(0), Cell(1)] * 3
    assert SPACE.parse_all(np.int64(7)) == SPACE.parse_all("7") == [Cell(7)]


@pytest.mark.parametrize(
    ("spec", "came", "expected", "remedy"),
    [
        ("33333", ["33333"], 15624, 5),
        ("rand:64", ["rand:64"], ("distinct", "all", "random:K", "table", "table:K"), "random:64"),
        ("distnct", ["distnct"], "table:K", "distinct"),
        ("my.txt", [], "my.txt", ()),
        ("lists/mine", [], "lists/mine", ()),
    ],
)
def test_a_slip_in_a_set_of_cells_is_named(
    spec: str, came: list, expected: Any, remedy: Any
) -> None:
    with refuses(*came, expected=expected, remedy=remedy):
        select(spec, SPACE)
