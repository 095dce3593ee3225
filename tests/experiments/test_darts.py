"""The study of DARTS cells, on the recorded scores and accuracies that are made up."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau, rankdata

from cells.darts import Darts, Genotype
from cells.darts.genotype import OPERATIONS
from experiments.darts import measures, transfer
from experiments.study import DARTS_TABLE, Study
from ntkscore.data.downloads import SOURCES

SPACE = Darts()


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Accuracies that rise with the parameters."""
    monkeypatch.setattr(measures, "RESAMPLES", 10)
    monkeypatch.setattr(measures, "PERMUTATIONS", 10)
    monkeypatch.setattr(transfer, "SPLITS", 1)
    monkeypatch.setattr(transfer, "SEEDS", 2)
    study = Study(tmp_path)
    keys = study.rows(measures.TRAINED)["genotype"].unique()
    params = rankdata([SPACE.costs(SPACE.parse(key))["params"] for key in keys])
    entries = []
    for key, rank in zip(keys, params, strict=True):
        genotype, accuracy = Genotype.parse(key), 30 + float(rank) / 100
        normal, reduce = (
            [[OPERATIONS[o], source] for o, source in cell] for cell in genotype.cells
        )
        epochs = [accuracy] * 5
        entries.append(
            {
                "net": {"genotype": {"normal": normal, "reduce": reduce}},
                "test_ep_top1_original": epochs,
                "test_ep_top1_adv": epochs,
                "max_test_top1_original": accuracy,
                "max_test_top1_adv": accuracy,
            }
        )
    folder = tmp_path / DARTS_TABLE
    folder.mkdir()
    first, *others = SOURCES[DARTS_TABLE].contents
    (folder / first).write_text(json.dumps(entries))
    for other in others:
        (folder / other).write_text("[]")
    return study


@pytest.mark.slow
def test_what_the_accuracies_follow_is_found(study: Study) -> None:
    outcome = measures.run(study)
    frame = outcome.frame.set_index(["networks", "measure"])
    assert frame.loc[("C = 16, L = 8", "params"), "kendall"] == pytest.approx(1)
    for size in measures.SIZES.values():
        part = frame.loc[size]
        assert set(part["cells"]) == {223}
        assert (part["low"] <= part["kendall"] + 0.2).all() and part["kendall"].abs().max() <= 1
        # Nothing is left beside counts that hold the accuracies.
        assert part["beside"].abs().max() < 0.9
        assert part["beside"].isna().sum() == len(measures.COUNTED)
    shown = outcome.summary
    assert shown is not None and shown["measure"].iloc[0] == "params"
    printed = shown.set_index("measure")["printed τ"]
    assert {name: float(printed[name]) for name in measures.PRINTED} == measures.PRINTED


@pytest.mark.slow
def test_the_count_that_decides_is_chosen(study: Study) -> None:
    scores = transfer.of_darts(study)
    accuracy = measures.accuracy_of(study, scores.index)
    frame = transfer.nested(study, scores, accuracy)
    chosen = [row for row in frame if row["way"] == transfer.CHOSEN]
    assert [row["sum"] for row in chosen] == ["params"] * 2
    assert all(row["kendall"] == pytest.approx(1) for row in chosen)
    assert transfer.chosen_on_all(study, scores, accuracy) == "params"


def test_a_sum_of_log_ranks_knows_which_way_is_better(study: Study) -> None:
    scores = transfer.of_darts(study)
    total = transfer.log_rank_sum("params+path_pools", scores)
    ranks = rankdata(scores["params"]), rankdata(-scores["path_pools"])
    np.testing.assert_allclose(total, np.log(ranks[0]) + np.log(ranks[1]))
    pools = scores["path_pools"].to_numpy()
    assert kendalltau(transfer.log_rank_sum("path_pools", scores), pools)[0] == pytest.approx(-1)
