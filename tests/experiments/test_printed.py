"""Printed accuracies: their files' form, orders within equal FLOPs, and what is left out."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import report
from experiments.darts import printed
from experiments.darts.printed_tables import (
    GENOTYPES,
    GROUP,
    MISPRINT,
    PGD20,
    PUBLISHED,
    WIDE,
    genotype_table,
    named_genotypes,
    wide_networks,
    wide_table,
)
from experiments.study import Experiment, Outcome, Study
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.errors import InputError


def test_wide_networks_are_read_with_their_groups(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    rows = [
        ["other", "", "D", "1", "1", "1", "1", "1", "1", "1M", "1G", "50"],
        ["", "", "Scale by", "D_1", "W_1", "D_2", "W_2", "D_3", "W_3", "#P", "#F", "PGD"],
        ["", "", "D", "2", "4", "2", "4", "1", "4", "1M", "1G", "50.5"],
        ["", "1G", "W", "1", "5", "1", "6", "1", "3", "1M", "1G", "51"],
        ["", "", "D&W", "3", "2", "3", "3", "2", "1", "1M", "1G", "52"],
        ["", "", "D", *["14", "16", "13", "16", "11", "16"], "1M", "2G", "53"],
        ["", "2G", "W", "2", "6", "2", "7", "2", "4", "1M", "2G", "54"],
        ["", "", "D&W", "4", "3", "4", "4", "3", "2", "1M", "2G", "55"],
    ]
    lines = [",".join([row[0] or PUBLISHED, *row[1:]]) for row in rows]
    path.write_text("\n".join(lines))
    found = wide_networks(path)
    assert list(found[GROUP]) == ["1G"] * 3 + ["2G"] * 3
    assert found.loc["2-2-1x4-4-4", PGD20] == 0.505
    assert MISPRINT[1] in found.index and MISPRINT[0] not in found.index
    assert wide_table(path).accuracy("3-3-2x2-3-1", "cifar10", "pgd20") == 0.52
    path.write_text("something,else\n")
    with pytest.raises(InputError, match=r"expected rows of a table 'Table 2.*got none; give that"):
        wide_networks(path)


def test_genotypes_of_one_source_are_read(tmp_path: Path) -> None:
    path = tmp_path / "genotypes.csv"
    edges = (
        '[[""sep_conv_3x3"", 0], [""sep_conv_5x5"", 1], [""skip_connect"", 0], '
        '[""sep_conv_3x3"", 1], [""skip_connect"", 0], [""sep_conv_3x3"", 1], '
        '[""skip_connect"", 0], [""sep_conv_3x3"", 1]]'
    )
    ours = f'"normal={edges} concat=[2, 3, 4, 5] reduce={edges} concat=[2, 3, 4, 5]"'
    path.write_text(
        "architecture,train_protocol,pgd20,genotype\n"
        f'Mine,"TRADES-1 AT, 20 cells",45.5,{ours}\n'
        f'Mine,"another recipe",55.5,{ours}\n'
        f'Larger,"TRADES-1 AT, 20 cells",46,{ours.replace("4, 5", "4, 5, 6")}\n'
    )
    found = named_genotypes(path)
    cell = "4051304130413041"
    assert found.to_dict("index") == {f"{cell}-{cell}": {PGD20: 0.455, "name": "Mine"}}
    assert genotype_table(path).accuracy(f"{cell}-{cell}", "cifar10", "pgd20") == 0.455
    path.write_text("architecture,train_protocol,pgd20,genotype\n")
    with pytest.raises(InputError, match=r"expected rows with the protocol 'TRADES-1.*got none"):
        named_genotypes(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^expected published accuracies in .*, got no such file"):
        wide_networks(tmp_path / WIDE)


def test_the_files_of_the_data_folder(data_dir: Path) -> None:
    for name in (WIDE, GENOTYPES):
        if not (data_dir / name).is_file():
            pytest.skip(f"published accuracies not found at {data_dir / name}; put the file there")
    wide = wide_networks(data_dir / WIDE)
    assert list(wide.groupby(GROUP).size()) == [3] * 4
    assert len(named_genotypes(data_dir / GENOTYPES)) == 6


def test_orders_within_groups() -> None:
    accuracy, groups = np.arange(6.0), list("aaabbb")
    assert printed.within_groups(accuracy, accuracy, groups) == (6, 6)
    assert printed.within_groups(np.array([1.0, 2, 3, 1, 1, 0]), accuracy, groups) == (3, 6)


def test_ways_are_resampled_as_a_whole() -> None:
    accuracy, ways = np.array([1.0, 3, 2, 4]), ["D", "W", "D", "W"]
    values = np.array([1.0, 4, 2, 3])
    found = printed.ways_resampled(values, accuracy, ways)
    once, of_d, of_w = 4 / 6, 1, -1
    np.testing.assert_allclose(sorted(found), [of_w, once, once, of_d])


def test_orders_have_the_signs_that_they_claim() -> None:
    scores = pd.DataFrame(
        {
            "params": [1.0, 2, 3],
            "n_pool": [3.0, 2, 1],
            "field": [5.0, 5, 6],
            "clean.naswot": [1.0, 2, 3],
            "clean.condition": [3.0, 2, 1],
            "clean.jacov": [1.0, np.nan, 2],
        }
    )
    found = printed.orders(scores, ("n_pool",))
    assert "clean.jacov" not in found
    names = ("n_pool", "clean.condition", str(DEFAULT))
    assert all(np.all(np.diff(found[name]) > 0) for name in names)
    without = printed.orders(scores.drop(columns="n_pool"), ())
    assert np.all(np.diff(without[str(DEFAULT)]) > 0)


def test_verdicts_follow_the_intervals() -> None:
    row = {"n": 12, "networks": "networks", "gap": 0.3, "gap low": 0.1, "gap high": 0.5}
    row |= {"ways low": 0.2, "ways high": 0.4}
    found = printed.better("a", row)
    assert found.verdict == "reproduced"
    assert found.ours == "0.300 [0.100, 0.500]; ways resampled [0.200, 0.400]"
    for end in ("gap low", "ways low"):
        assert printed.better("a", {**row, end: -0.1}).verdict == "not decidable"
    alone = {**row, "ways low": np.nan, "ways high": np.nan}
    assert printed.better("a", alone).verdict == "reproduced"
    worse = {**alone, "gap low": -0.5, "gap high": -0.1}
    assert printed.better("a", worse).verdict == "not reproduced"


def test_a_page_leaves_out_what_its_files_are_missing_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = Experiment("There", lambda study: Outcome(pd.DataFrame()))
    absent = Experiment("Absent", lambda study: Outcome(pd.DataFrame()), ("absent.csv",))
    study = Study(tmp_path)
    sections, _, times = report.run_all(
        study, {"there": there, "absent": absent}, tmp_path / "PAGE.md"
    )
    assert "## There" in sections and "## Absent" not in sections
    assert "absent left out, for want of absent.csv" in capsys.readouterr().err
    assert "absent" not in times
