"""Scores beside accuracies: whose table it is, and which networks it has."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pages import small_run
from tiny import refuses

from cells.nasbench201.space import NASBench201
from cells.residual import Residual
from ntkscore.analysis.comparison import in_keys_of, scores_in
from ntkscore.analysis.frames import cost_table
from ntkscore.api.accuracies import correlate, lookup
from ntkscore.data.tables import Table, load_table
from ntkscore.results.result_set import ResultSet
from ntkscore.run.selection import select

SPACE = NASBench201()
DIGITS = ("003233", "323133", "421211", "443233")
CELLS = [SPACE.parse(digits) for digits in DIGITS]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A person's own accuracies, written with digits, some of which begin with zeros."""
    rows = [f"{digits},{0.2 + 0.1 * i}" for i, digits in enumerate(DIGITS)]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["cell,pgd8", *rows]))
    return load_table(path, "cifar10")


@pytest.fixture
def scores() -> pd.DataFrame:
    index = pd.Index([cell.index for cell in CELLS], name="cell")
    return pd.DataFrame({"robust.trace": [1.0, 2.0, 3.0, 4.0]}, index=index)


def test_a_table_may_use_any_name_of_a_network(table: Table, scores: pd.DataFrame) -> None:
    frame = correlate(scores, table, "cifar10", "pgd8", space=SPACE, resamples=10)
    assert frame.loc[0, ["n", "spearman"]].tolist() == [4, 1]
    more = scores.assign(**{"clean.lambda_min_normalized": scores["robust.trace"]})
    params = cost_table(scores.index, SPACE).set_axis(scores.index)["params"]
    alone, beside = (
        correlate(frame, table, "cifar10", "pgd8", space=SPACE, resamples=10)
        .set_index("score")["spearman"]
        .sort_index()
        for frame in (more, more.assign(params=params))
    )
    assert SPACE.order in alone.index
    pd.testing.assert_series_equal(alone, beside)
    assert select("table", SPACE, table) == tuple(CELLS)
    assert lookup(CELLS[:1], table, space=SPACE)["val_pgd_8_acc"].item() == 0.2


def test_digits_alone_are_digits_and_indices_are_indices() -> None:
    for keys in ([323133, 421211], [2581, 0], ["2581", "421211"]):
        frame = pd.DataFrame({"pgd8": [0.4, 0.3]}, index=keys)
        own = in_keys_of(SPACE, Table.from_frame(frame, dataset="cifar10"))
        assert own.own == (2581, 0)


def test_two_names_of_one_network_are_refused(scores: pd.DataFrame) -> None:
    frame = pd.DataFrame({"pgd8": [0.4, 0.3, 0.5]}, index=[2581, 7, 323133])
    twice = Table.from_frame(frame, name="mine", dataset="cifar10")
    with refuses(2581, 323133, expected="mine"):
        lookup(CELLS, twice, space=SPACE)
    with refuses(2581, 323133, expected="mine"):
        correlate(scores, twice, "cifar10", "pgd8", space=SPACE)


def test_networks_without_results_are_left_out(table: Table, scores: pd.DataFrame) -> None:
    more = pd.concat([scores, pd.DataFrame({"robust.trace": [0.0, np.nan]}, index=[7, 8])])
    frame = correlate(more, table, "cifar10", "pgd8", space=SPACE, resamples=10)
    assert frame.loc[0, ["n", "excluded", "spearman"]].tolist() == [4, 0, 1]
    with refuses(0, 4, expected=(3, "own table")):
        other = pd.DataFrame({"pgd8": [0.4, 0.3, 0.1]}, index=["0", "1", "01"])
        correlate(
            scores,
            Table.from_frame(other, dataset="cifar10"),
            "cifar10",
            "pgd8",
            space=Residual(width=8),
        )


def test_a_row_that_is_no_network_of_the_space_stays(table: Table) -> None:
    frame = pd.DataFrame({"pgd8": [0.4, 0.3]}, index=["resnet-18", "323133"])
    own = in_keys_of(SPACE, Table.from_frame(frame, dataset="cifar10"))
    assert own.has("resnet-18") and own.has(2581) and not own.has(0)


def test_the_indices_of_a_published_table_are_no_skip_patterns(data_dir: Path) -> None:
    """Its cells 0, 1, 10 and 101 have nothing to do with the networks of these patterns."""
    table = load_table(data_dir / "nas-robbench-201")
    patterns = pd.DataFrame({"robust.trace": [1.0, 2.0, 3.0, 4.0]}, index=["0", "1", "10", "101"])
    with refuses(0, 4, expected=(3, "nas-robbench-201")):
        correlate(patterns, table, "cifar10", "pgd8", space=Residual(width=8))
    own = pd.DataFrame({"pgd8": [0.1, 0.2, 0.3, 0.4]}, index=[0, 1, 10, 101])
    named = Table.from_frame(own, dataset="cifar10")
    frame = correlate(patterns, named, "cifar10", "pgd8", space=Residual(width=8), resamples=10)
    assert frame.loc[0, ["n", "spearman"]].tolist() == [4, 1]


def test_two_networks_that_the_table_has_are_too_few_and_lack_nothing() -> None:
    two = pd.DataFrame({"robust.trace": [1.0, 2.0]}, index=[0, 2581])
    own = Table.from_frame(pd.DataFrame({"pgd8": [0.1, 0.2]}, index=[0, 2581]), dataset="cifar10")
    with refuses(2, 2, expected=(3, "own table")) as caught:
        correlate(two, own)
    assert caught.value.got == "2 of 2"


def test_a_run_says_which_networks_lack_a_seed(tmp_path: Path) -> None:
    run = ResultSet.open(small_run(tmp_path / "whole", 4))
    rows = run.read()
    assert "mean of 2 seeds, 50 images" in scores_in(tmp_path / "whole", "cifar10")[1]
    part = ResultSet.create_or_resume(tmp_path / "part", run.configuration, run.identity)
    part.append(rows[(rows["seed"] == 0) | (rows["cell"] == rows["cell"].max())])
    note = scores_in(tmp_path / "part", "cifar10")[1]
    assert "mean of 2 seeds, of fewer for 3 of 4 networks" in note
