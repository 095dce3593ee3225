"""Which architectures a specification names, and which score a name."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tiny import refuses

from cells.nasbench201 import Cell, distinct_cells
from cells.nasbench201.space import NASBench201
from cells.residual import Residual, Skips
from ntkscore.analysis.frames import pick_rho, score_table
from ntkscore.analysis.score_names import ScoreName
from ntkscore.data.tables import Table, load_table
from ntkscore.run.selection import select

SPACE = NASBench201()


@pytest.mark.slow
def test_specifications(tmp_path: Path) -> None:
    assert len(select("all", SPACE)) == 15_625
    assert select("distinct", SPACE) == distinct_cells()
    assert select("2581,323133,0", SPACE) == (Cell(2581), Cell(0))
    listed = tmp_path / "cells.txt"
    listed.write_text(f"# chosen by hand\n2581\n\n{Cell(7).string}\n")
    assert select(str(listed), SPACE) == (Cell(2581), Cell(7))


@pytest.mark.slow
def test_random_cells_are_seeded_distinct_and_nested() -> None:
    few, many = select("random:10", SPACE), select("random:50", SPACE)
    assert few == many[:10]
    assert len(set(many)) == 50
    assert set(many) <= set(distinct_cells())
    assert select("random:10", SPACE, seed=1) != few


@pytest.mark.slow
def test_table_cells(data_dir: Path) -> None:
    table = load_table(data_dir / "nas-robbench-201")
    assert len(select("table", SPACE, table)) == 6_466
    some = select("table:20", SPACE, table)
    assert some[:5] == select("table:5", SPACE, table)
    assert {cell.index for cell in some} <= set(table.own)
    with refuses("table:0"):
        select("table:0", SPACE, table)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["random:0", "random:-1", "random:x", "random:99999"])
def test_bad_random_counts(spec: str) -> None:
    with refuses(spec, expected=("random:K", "5,234")):
        select(spec, SPACE)


def test_strings_with_commas_of_their_own_are_kept_whole() -> None:
    class Named(Residual):
        def parse(self, text: str) -> Skips:
            return super().parse(text.partition("(")[0])

    assert select("01(a, [b, c]),10", Named()) == (Skips("01"), Skips("10"))
    # Too long for a file's name.
    assert select(f"01({'x, ' * 1000})", Named()) == (Skips("01"),)


def test_bad_specifications(tmp_path: Path) -> None:
    with refuses("none", expected="table", remedy="--table"):
        select("table", SPACE)
    with refuses("somewhere", expected=(2581, 323133)):
        select("somewhere", SPACE)
    empty = tmp_path / "empty.txt"
    empty.write_text("# nothing\n")
    with refuses("none", expected=empty):
        select(str(empty), SPACE)


def test_score_names() -> None:
    assert str(ScoreName.parse("robust.frobenius")) == "robust.frobenius"
    assert ScoreName.parse("joint_robust.trace", (0.25,)).beta == 0.25
    assert str(ScoreName.parse("joint_clean@0.5.condition")) == "joint_clean@0.5.condition"
    assert ScoreName.parse("joint_clean@0.25.trace", (0.25, 0.5)).beta == 0.25


@pytest.mark.parametrize("name", ["frobenius", "dirty.trace", "cross.lambda_min", "clean.loss", ""])
def test_unknown_scores(name: str) -> None:
    with refuses(name, expected=("KERNEL.SCORE", "clean", "cross")):
        ScoreName.parse(name)


def test_a_refusal_offers_what_the_run_has() -> None:
    there = ("twice.trace", "cross.trace", "clean.frobenius", "joint_clean@0.25.trace", "params")
    for text, near in (
        ("trace", "cross.trace"),
        ("twice.trac", "twice.trace"),
        ("frobenius", "clean.frobenius"),
    ):
        with refuses(text, expected="cross, clean", remedy=near) as caught:
            ScoreName.parse(text, there=there)
        assert "robust" not in str(caught.value) and "lambda" not in str(caught.value)


def test_betas_of_score_names() -> None:
    with refuses("0.5"):
        ScoreName.parse("clean@0.5.trace")
    with refuses("none", expected="joint_clean.trace", remedy="joint_clean@0.25.trace"):
        ScoreName.parse("joint_clean.trace", (0.25, 0.5))
    with refuses(0.75, remedy="joint_clean@0.5.trace"):
        ScoreName.parse("joint_clean@0.75.trace")


def rows() -> pd.DataFrame:
    lines = [
        (cell, seed, 8 / 255, "clean", np.nan, "trace", cell + seed / 2)
        for cell in (3, 1)
        for seed in (0, 1)
    ]
    lines.append((1, 2, 8 / 255, "clean", np.nan, "trace", np.nan))
    names = ["cell", "seed", "rho", "kernel", "beta", "score", "value"]
    return pd.DataFrame(lines, columns=names)


def test_score_table_averages_seeds_and_keeps_failures() -> None:
    table = score_table(rows())
    assert table.loc[3, "clean.trace"] == 3.25
    assert np.isnan(table.loc[1, "clean.trace"])


def test_radii() -> None:
    one = rows()
    assert len(pick_rho(one, None)) == len(pick_rho(one, 8 / 255)) == len(one)
    two = pd.concat([one, one.assign(rho=3 / 255)])
    assert len(pick_rho(two, 3 / 255)) == len(one)
    with refuses("none", expected=("3/255", "8/255"), remedy="--at-rho"):
        pick_rho(two, None)
    with refuses("1/255"):
        pick_rho(one, 1 / 255)
    with refuses("none", expected="networks"):
        pick_rho(one[:0], 8 / 255)


def test_a_space_of_another_kind_is_selected_from_alike() -> None:
    space = Residual(depth=4)
    assert [skips.pattern for skips in select("all", space)] == ["00", "01", "10", "11"]
    assert select("0,01,0110", space) == (Skips("0"), Skips("01"), Skips("0110"))
    assert select("01,01", space) == (Skips("01"),)
    few = select("random:2", space)
    assert few == select("random:3", space)[:2]
    with refuses("random:5", expected=("random:K", 4), remedy="random:4"):
        select("random:5", space)
    with refuses("2", expected="0110"):
        select("0,2", space)


def test_cells_of_a_persons_own_table() -> None:
    space = Residual(depth=4)
    table = Table.from_frame(pd.DataFrame({"clean": [0.5, 0.6]}, index=["11", "00"]), dataset="x")
    assert set(select("table", space, table)) == {Skips("11"), Skips("00")}
