"""The table of all measures, the protocol behind the default score, and the search by it."""

import itertools
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata, spearmanr

from experiments.ours import default_score, measures, train_free_search
from experiments.ours.default_score import Half, chosen, criterion, half_of, name_of, sums_of, worth
from experiments.study import DATASET, METRIC, METRICS, Outcome, Study
from ntkscore.analysis.score_names import DEFAULT

TERMS = ("a", "b", "c", "d")
CELLS = [3, 5, 7, 11, 2581]
SCORES = pd.DataFrame(
    {term: np.arange(5.0) for term in DEFAULT.terms}, index=pd.Index(CELLS, name="cell")
).assign(path_pools=-np.arange(5.0))


def some_cells(count: int = 60) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    values = pd.DataFrame(rng.normal(size=(count, len(TERMS))), columns=list(TERMS))
    # A count has ties.
    values["d"] = values["d"].round()
    accuracy = (values["a"] + values["b"] + rng.normal(size=count)).rank().to_numpy() / count
    return values, accuracy


def naive(values: pd.DataFrame, accuracy: np.ndarray, terms: tuple[str, ...]) -> tuple[float, ...]:
    total = sum(np.log(rankdata(values[term])) for term in terms)
    best = np.argsort(-accuracy)[: round(0.1 * len(accuracy))]
    return spearmanr(total, accuracy)[0], spearmanr(total[best], accuracy[best])[0]


def test_the_criterion_is_that_of_every_sum_by_itself() -> None:
    values, accuracy = some_cells()
    half = half_of(values, {"cifar10": accuracy}, np.arange(len(values)))
    members = sums_of(TERMS, TERMS[:3])
    assert members.shape == (4, 7)  # one, two or three of three
    got = dict(zip((name_of(TERMS, m) for m in members.T), criterion(half, members), strict=True))
    for count in (1, 2, 3):
        for terms in itertools.combinations(TERMS[:3], count):
            assert got["+".join(terms)] == pytest.approx(sum(naive(values, accuracy, terms)))
    tied = sums_of(TERMS, "d")
    assert criterion(half, tied)[0] == pytest.approx(sum(naive(values, accuracy, ("d",))))


def test_what_a_sum_is_worth_on_cells_that_did_not_choose() -> None:
    values, accuracy = some_cells()
    cells = np.arange(0, 60, 2)
    half: Half = half_of(values, {"cifar10": accuracy, "cifar100": -accuracy}, cells)
    found = dict(worth(half, np.array([1.0, 1.0, 0.0, 0.0])))
    there = values.iloc[cells].reset_index(drop=True)
    overall, top = naive(there, accuracy[cells], ("a", "b"))
    assert found["cifar10"]["spearman"] == pytest.approx(overall)
    assert found["cifar10"]["top10"] == pytest.approx(top)
    total = np.log(rankdata(there["a"])) + np.log(rankdata(there["b"]))
    order = np.argsort(-total)
    picked = accuracy[cells][order]
    assert found["cifar10"]["best_accuracy"] == picked[0]
    assert found["cifar10"]["best_rank"] == 1 + (accuracy[cells] > picked[0]).sum()
    assert found["cifar10"]["first_ten"] == pytest.approx(picked[:10].mean())
    assert found["cifar100"]["spearman"] == pytest.approx(-overall)


def test_the_sum_chosen_most_often_wins_and_a_tie_goes_to_the_better() -> None:
    rows = [("x", 1.0), ("y", 1.2), ("y", 1.1), ("x", 1.4), ("z", 2.0)]
    frame = pd.DataFrame(rows, columns=["sum", "criterion"]).assign(family="f", dataset="cifar10")
    assert chosen(frame, "f") == "x"


@pytest.mark.thorough
def test_the_table_has_every_measure_and_accuracy(outcome_of: Callable[[str], Outcome]) -> None:
    frame = outcome_of("measures").frame
    counts = frame.groupby(["dataset", "metric"])["measure"].nunique()
    assert len(counts) == 3 * len(METRICS) and counts.nunique() == 1
    pgd = frame[(frame["metric"] == METRIC) & (frame["dataset"] == "cifar10")].set_index("measure")
    assert pgd.loc["params", "spearman"] == pytest.approx(0.820, abs=5e-4)
    assert pgd.loc["path_pools", "spearman"] == pytest.approx(-0.589, abs=5e-4)
    # Counts are what is held equal; the shape of the kernel's spectrum is not among them.
    assert np.isnan(pgd.loc["path_pools", "beside_counts"])
    assert pgd.loc["clean.lambda_min_normalized", "beside_counts"] > 0.4
    assert abs(pgd.loc["clean.frobenius", "beside_counts"]) < 0.2


@pytest.mark.thorough
def test_no_cell_chooses_and_is_tested(outcome_of: Callable[[str], Outcome]) -> None:
    outcome = outcome_of("default-score")
    frame, families = outcome.frame, {*default_score.FAMILIES, *default_score.FIXED}
    assert set(frame["family"]) == families
    assert len(frame) == default_score.SPLITS * len(families) * 3
    assert set(measures.HELD_EQUAL) > set(default_score.COUNTED)
    held_out = frame[frame["dataset"] == "cifar10"].set_index("family")["spearman"]
    assert held_out["kernels and counts"].min() > held_out["counts alone"].max()


def test_the_cell_taken_is_the_best_scored_or_the_most_accurate_of_those_looked_up() -> None:
    accuracy = pd.Series([0.9, 0.1, 0.5, 0.4, 0.3], index=CELLS)
    picked = [
        train_free_search.picked(SCORES, accuracy, CELLS[:4], queries) for queries in (0, 1, 2, 3)
    ]
    assert picked == [11, 11, 7, 7]
    assert train_free_search.picked(SCORES, accuracy, CELLS, 5) == 3


@pytest.mark.thorough
def test_every_way_of_choosing(study: Study, outcome_of: Callable[[str], Outcome]) -> None:
    frame = outcome_of("train-free-search").frame
    assert frame["scored"].max() == 5_234
    accuracy = study.table.accuracies(DATASET, METRIC, [int(c) for c in frame["cell"]])
    np.testing.assert_array_equal(frame[DATASET], accuracy)
    best = max(study.table.accuracies(DATASET, METRIC))
    assert (frame.loc[frame["rank"] == 1, DATASET] == best).all()
    # More accuracies to choose from never make a choice worse.
    asked = frame[frame["queries"] > 0].sort_values("queries")
    for _, part in asked.groupby(["method", "start", "scored"]):
        assert part[DATASET].is_monotonic_increasing
    whole = frame[frame["method"] == train_free_search.EVERYTHING].set_index("queries")
    assert whole.loc[0, "rank"] == 2 and whole.loc[10, "rank"] == 1
