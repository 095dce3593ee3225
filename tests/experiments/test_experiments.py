"""Experiments on the benchmark table: their files, their key numbers, and the searchers."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cells import EDGES, SIZE, Cell
from experiments.__main__ import EXPERIMENTS, THEORY, TRAINING, app
from experiments.paper import search, searchers
from experiments.paper.accuracies import histogram
from experiments.paper.picks import Picks, space_accuracies, summary
from experiments.paper.ranks import agreements, ranks
from experiments.paper.sparsity import best_by_sparsity
from experiments.paper.table_agreement import accuracies, pairs
from experiments.paper.top_operations import (
    commonest,
    difference,
    older_means,
    top_operations,
)
from experiments.study import Outcome, Study, read_record, write_outcome
from ntkscore.analysis.comparison import table_scores
from ntkscore.errors import InputError

NAMES = (
    "benchmark-boxplots",
    "accuracy-distribution",
    "rank-by-metric",
    "rank-across-datasets",
    "top-operations",
    "benchmark-agreement",
    "sparsity",
)
runner = CliRunner()


def invoke(*arguments: object) -> str:
    result = runner.invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_leaves_figure_data_and_record(name: str, data_dir: Path, tmp_path: Path) -> None:
    printed = invoke(name, "--out", tmp_path, "--data-dir", data_dir)
    for ending in ("png", "svg", "csv", "json"):
        path = tmp_path / f"{name}.{ending}"
        assert path.stat().st_size > 100
        assert str(path) in printed
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads((tmp_path / f"{name}.json").read_text())
    assert record["experiment"] == name and record["seed"] == 0
    assert record["configuration"]["table"].startswith("nas-robbench-201")
    assert len(pd.read_csv(tmp_path / f"{name}.csv")) >= 5


def test_list_names_them_all() -> None:
    lines = invoke("list").splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [*EXPERIMENTS, *THEORY, *TRAINING]
    assert set(NAMES) <= set(EXPERIMENTS)
    assert lines[-1].startswith("recordings: space, trainability, perturbations, weights")


@pytest.mark.slow
def test_reruns_from_its_record(data_dir: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    invoke("sparsity", "--out", first, "--data-dir", data_dir)
    invoke("rerun", first / "sparsity.json", "--out", second, "--data-dir", data_dir)
    for ending in ("csv", "svg"):
        file = f"sparsity.{ending}"
        assert (first / file).read_bytes() == (second / file).read_bytes()


def test_a_record_holds_the_size(tmp_path: Path) -> None:
    study, record = Study(tmp_path, seed=3, full=True), tmp_path / "name.json"
    write_outcome(Outcome(pd.DataFrame({"a": [1]})), study, "name", tmp_path)
    assert read_record(record, tmp_path) == ("name", study, study.checksums())
    record.write_text('{"experiment": "name"}')
    with pytest.raises(InputError, match=r"expected the JSON .*, got .*give"):
        read_record(record, tmp_path)


def test_says_where_a_table_is_missing(tmp_path: Path) -> None:
    result = runner.invoke(app, ["sparsity", "--data-dir", str(tmp_path), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "expected a readable file" in result.stderr


def test_table_1_to_three_digits(study: Study) -> None:
    frame = pairs(accuracies(study), resamples=20).set_index(["first", "second"])
    assert (frame["low"] < frame["spearman"]).all() and (frame["spearman"] < frame["high"]).all()
    unclear = {"PGD*", "FGSM*"}  # the older table does not state their radius
    clear = [pair for pair in frame.index if not unclear & set(pair)]
    assert len(clear) == 6
    assert frame.loc[clear, "three_digits"].all()
    assert frame.loc[("Clean", "PGD"), "spearman"] == pytest.approx(0.98501, abs=1e-5)


def test_histogram_holds_every_cell(study: Study) -> None:
    shares = histogram(study.table).groupby("metric")["share"].sum()
    np.testing.assert_allclose(shares, 1)


def test_ranks_and_their_agreement() -> None:
    frame = pd.DataFrame({"a": [0.9, 0.5, 0.7], "b": [0.6, 0.8, 0.8]}, index=[4, 2, 7])
    places = ranks(frame.rename_axis("cell"), "a")
    assert places.to_dict("list") == {"cell": [4, 7, 2], "a": [1, 2, 3], "b": [3, 1, 1]}
    statistics = agreements(places, "a").loc["b"]
    assert statistics["spearman"] == pytest.approx(-np.sqrt(3) / 2)
    assert statistics["shared_best"] == 3


def test_the_older_tables_best_cells_are_others(study: Study) -> None:
    older = top_operations(older_means(study.older))
    newer = top_operations(table_scores(study.table, "cifar10"))
    found = difference(newer, older)
    assert found.verdict == "reproduced" and found.ours.startswith("0 of 10 cells in common")
    assert difference(newer, newer).verdict == "not reproduced"
    assert older["robust_mean"].is_monotonic_decreasing


def test_top_operations_and_the_commonest() -> None:
    digits = ["323133", "333133", "000000"]
    cells = [Cell.from_digits(text).index for text in digits]
    accuracy = pd.DataFrame({"robust_mean": [0.6, 0.59, 0.1]}, index=cells)
    frame = top_operations(accuracy, top=2)
    assert list(frame["digits"].unique()) == digits[:2]
    assert list(frame["nodes"][:6]) == [f"{source}→{target}" for source, target in EDGES]
    most = commonest(frame).set_index("edge")
    assert most.loc[4].tolist() == ["skip_connect", 2]
    assert most.loc[1].tolist() == ["nor_conv_3x3", 2]


def test_sparsity_counts_empty_edges() -> None:
    cells = [Cell.from_digits(text).index for text in ("333333", "323133", "030102")]
    best = best_by_sparsity(pd.DataFrame({"robust_mean": [0.5, 0.6, 0.4]}, index=cells))
    assert best["empty"].tolist() == [0, 3]
    assert best["cells"].tolist() == [2, 1]
    assert best["digits"].tolist() == ["323133", "030102"]


def test_sparsity_on_the_table(study: Study) -> None:
    frame = pd.DataFrame(
        {"robust_mean": study.table.accuracies("cifar10", "pgd_8")}, index=list(study.table.own)
    )
    best = best_by_sparsity(frame)
    assert best["empty"].tolist() == [0, 1, 2, 3, 4]
    assert best["cells"].sum() == 6466
    assert best["best"][0] == 2581


def ring(size: int) -> np.ndarray:
    """Two neighbours of every cell on a ring, shape (size, 2)."""
    places = np.arange(size)
    return np.stack([(places - 1) % size, (places + 1) % size], axis=1)


@pytest.mark.thorough
def test_neighbours_differ_on_one_edge() -> None:
    neighbours = searchers.cell_neighbours()
    assert neighbours.shape == (SIZE, 24)
    for index in (0, 2581, 15624):
        digits = Cell(index).digits
        for other in neighbours[index]:
            changed = zip(digits, Cell(int(other)).digits, strict=True)
            assert sum(a != b for a, b in changed) == 1


def test_first_distinct_keeps_order_and_stops_in_time() -> None:
    def stream() -> Iterator[int]:
        yield from (3, 1, 3, 2)
        raise AssertionError("asked for more than the budget")

    assert searchers.first_distinct(stream(), 3).tolist() == [3, 1, 2]
    assert searchers.first_distinct([5, 5], 3).tolist() == [5]
    assert searchers.first_distinct(itertools.repeat(5), 3, patience=4).tolist() == [5]


@pytest.mark.parametrize("method", search.SEARCHERS)
@pytest.mark.parametrize("queries", [1, 7, 40, 50])
def test_searches_keep_to_their_budget(method: str, queries: int) -> None:
    accuracy = np.random.default_rng(0).random(40)
    options = {"queries": queries, "runs": 5, "seed": 3}
    picks = search.run_search(method, "val_acc", accuracy, ring(40), **options)
    assert (picks.queries <= queries).all()
    assert (picks.found_after <= picks.queries).all() and (picks.found_after >= 1).all()
    if method != "regularised evolution":  # which may be stuck between the hills of a ring
        assert (picks.queries == min(queries, 40)).all()
        assert queries < 40 or (picks.cells == accuracy.argmax()).all()
    again = search.run_search(method, "val_acc", accuracy, ring(40), **options)
    np.testing.assert_array_equal(picks.cells, again.cells)


@pytest.mark.parametrize("method", search.SEARCHERS)
def test_searches_look_up_distinct_cells_and_differ_by_seed(method: str) -> None:
    accuracy = np.random.default_rng(0).random(200)
    looked_up = [
        searchers.first_distinct(
            search.SEARCHERS[method](accuracy, ring(200), np.random.default_rng(seed)), 10
        )
        for seed in (0, 1)
    ]
    for cells in looked_up:
        assert len(set(cells.tolist())) == len(cells) == 10
        assert cells.min() >= 0 and cells.max() < 200
    assert (looked_up[0] != looked_up[1]).any()


def test_climb_ends_in_a_local_optimum() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        accuracy = rng.random(60)
        start = int(rng.integers(60))
        cells = list(searchers.climb(start, accuracy, ring(60), rng))
        best = max(cells, key=lambda cell: accuracy[cell])
        assert cells[0] == start
        assert (accuracy[ring(60)[best]] <= accuracy[best]).all()


def test_local_search_climbs_a_slope_and_starts_anew() -> None:
    accuracy = np.minimum(np.arange(30), 30 - np.arange(30)) / 30
    stream = searchers.local_search(accuracy, ring(30), np.random.default_rng(0))
    assert 15 in searchers.first_distinct(stream, 25)
    flat = searchers.local_search(np.zeros(30), ring(30), np.random.default_rng(0))
    assert len(searchers.first_distinct(flat, 30)) == 30


def test_evolution_replaces_the_oldest() -> None:
    accuracy = np.arange(20) / 20
    rng = np.random.default_rng(0)
    cells = []
    stream = searchers.regularised_evolution(accuracy, ring(20), rng, population=2, tournament=1)
    for cell in stream:
        cells.append(cell)
        if len(cells) == 200:
            break
    for place in range(2, 200):
        parents = ring(20)[cells[place - 2 : place]]
        assert cells[place] in parents


def test_summary_holds_interval_and_paper() -> None:
    accuracy = {"val_acc": np.array([0.1, 0.2, 0.4]), "val_pgd_8_acc": np.zeros(3)}
    one = np.ones(2)
    picks = [Picks("val_acc", "a", np.array([1, 2]), 5 * one, 3 * one, 0.1)]
    frame = summary(picks, accuracy, {("val_acc", "a"): (0.5,)})
    row = frame.iloc[0]
    assert row["mean"] == pytest.approx(0.3)
    assert row["low"] == pytest.approx(0.205) and row["high"] == pytest.approx(0.395)
    assert row["standard_error"] == pytest.approx(0.1)
    assert (row["queries"], row["found_after"], row["runs"]) == (5, 3, 2)
    assert row["within"] is False
    assert pd.isna(frame.iloc[1]["within"]) and pd.isna(frame.iloc[1]["paper"])


@pytest.mark.slow
def test_table_2_within_the_runs(study: Study) -> None:
    table = study.table
    whole = space_accuracies(table, "cifar10")
    assert whole["val_acc"][3599] == table.accuracy(table.representative(3599), "cifar10", "clean")
    frame = summary(search.search_all(table, whole, runs=30), whole, search.PAPER)
    optimum = frame[frame["method"] == search.OPTIMUM].set_index("metric")["mean"]
    assert optimum["val_pgd_8_acc"] == pytest.approx(0.4811, abs=5e-5)
    searches = frame[(frame["method"] != search.OPTIMUM) & frame["paper"].notna()]
    assert len(searches) == 45
    assert (searches["queries"] == 150).all()
    assert searches["within"].all()
    assert (searches["mean"] - searches["paper"]).abs().max() < 0.006
