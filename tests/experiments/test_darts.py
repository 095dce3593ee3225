"""The study of DARTS cells, on the recorded scores and accuracies that are made up."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import rankdata

from cells.darts import Darts, Genotype
from cells.darts.genotype import OPERATIONS
from experiments.darts import measures, transfer
from experiments.ours import default_score
from experiments.study import DARTS_TABLE, Study
from ntkscore.data.downloads import SOURCES

SPACE = Darts()


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Accuracies that rise with the parameters, but for some noise."""
    monkeypatch.setattr(measures, "RESAMPLES", 10)
    monkeypatch.setattr(measures, "PERMUTATIONS", 10)
    monkeypatch.setattr(default_score, "SPLITS", 1)
    monkeypatch.setattr(default_score, "SEEDS", 2)
    study = Study(tmp_path)
    keys = study.rows(measures.TRAINED)["genotype"].unique()
    params = rankdata([SPACE.costs(SPACE.parse(key))["params"] for key in keys])
    params += np.random.default_rng(0).normal(0, 2, len(params))
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
    assert frame.loc[("C = 16, L = 8", "params"), "kendall"] > 0.95
    for size in measures.SIZES.values():
        part = frame.loc[size]
        assert set(part["cells"]) == {223}
        assert (part["low"] <= part["kendall"] + 0.2).all() and part["kendall"].abs().max() <= 1
        # Noise is left beside counts that hold the accuracies.
        assert part["beside"].abs().max() < 0.4
        assert part["beside"].isna().sum() == len(measures.COUNTED)
    shown = outcome.summary
    assert shown is not None and shown["measure"].iloc[0] == "params"
    printed = shown.set_index("measure")["printed τ"]
    assert {name: float(printed[name]) for name in measures.PRINTED} == measures.PRINTED


@pytest.mark.slow
def test_the_count_that_decides_is_chosen(study: Study) -> None:
    scores = transfer.of_darts(study)
    accuracy = measures.accuracy_of(study, scores.index)
    sums = default_score.candidates(scores, transfer.TERMS)
    frame = transfer.nested(study, scores, accuracy, sums)
    chosen = [row for row in frame if row["way"] == transfer.CHOSEN]
    assert [row["sum"] for row in chosen] == ["params"] * 2
    assert all(row["kendall"] > 0.95 for row in chosen)
    assert transfer.chosen_on_all(study, accuracy, sums) == "params"


def test_tau_within_tenths_is_over_the_pairs_of_a_tenth() -> None:
    rng = np.random.default_rng(0)
    params, values, accuracy = (
        rng.permutation(40).astype(float),
        rng.normal(size=40),
        rng.normal(size=40),
    )
    order, signs = np.argsort(params), []
    for tenth in np.array_split(order, measures.TENTHS):
        signs += [
            (np.sign(values[i] - values[j]), np.sign(accuracy[i] - accuracy[j]))
            for i, j in itertools.combinations(tenth, 2)
        ]
    expected = np.mean([x * a for x, a in signs])
    tau, low, high = measures.within_tenths(values, accuracy, params)
    assert tau == pytest.approx(expected) and low < tau < high
