"""The table of all measures, and the protocol behind the default score."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata, spearmanr

from experiments.ours import default_score, measures
from experiments.ours.default_score import Means, candidates, criterion, simplest, worth
from experiments.study import METRIC, METRICS, Outcome, Study
from ntkscore.analysis.score_names import DEFAULT

TERMS = ("params", "layers", "field", "longest_path")
CELLS = [3, 5, 7, 11, 2581]
SCORES = pd.DataFrame(
    {term: np.arange(5.0) for term in DEFAULT.terms}, index=pd.Index(CELLS, name="cell")
).assign(path_pools=-np.arange(5.0))


def some_cells(count: int = 60) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    values = pd.DataFrame(rng.normal(size=(count, len(TERMS))), columns=list(TERMS))
    # A count has ties.
    values["longest_path"] = values["longest_path"].round()
    accuracy = (values["params"] + values["layers"] + rng.normal(size=count)).rank()
    return values, accuracy.to_numpy() / count


def sum_of(values: pd.DataFrame, terms: tuple[str, ...]) -> np.ndarray:
    return np.sum([np.log(rankdata(values[term])) for term in terms], axis=0)


def test_the_criterion_is_that_of_every_sum_by_itself() -> None:
    values, accuracy = some_cells()
    sums = candidates(values, TERMS, most=3)
    assert sums.members.shape == (4 + 6 + 4, 4)  # one, two or three of four
    assert len(sums.of(TERMS[:3])) == 7
    fold = np.arange(0, 60, 2)  # ranks are among all cells, coefficients among the fold's
    best = fold[np.argsort(-accuracy[fold])[:3]]
    got = criterion(sums, accuracy, fold)
    for place in range(len(sums.members)):
        total = sum_of(values, tuple(sums.name(place).split("+")))
        wanted = sum(spearmanr(total[cells], accuracy[cells])[0] for cells in (fold, best))
        assert got[place] == pytest.approx(wanted), sums.name(place)


def test_the_simplest_sum_within_one_error_of_the_best_is_chosen() -> None:
    values, _ = some_cells()
    sums = candidates(values, TERMS, most=2)
    place = {sums.name(k): k for k in range(len(sums.members))}
    mean, error = np.zeros(len(place)), np.full(len(place), 0.5)
    mean[place["params+field"]], error[place["params+field"]] = 1.0, 0.1
    everything = np.arange(len(place))
    assert sums.name(simplest(sums, everything, Means(mean, error))) == "params+field"
    mean[place["layers+field"]], mean[place["field"]] = 0.95, 0.91
    assert sums.name(simplest(sums, everything, Means(mean, error))) == "field"
    mean[place["params"]] = 0.92
    assert sums.name(simplest(sums, everything, Means(mean, error))) == "params"
    mean[place["params"]] = mean[place["field"]] = 0.89  # further than the error of the best
    assert sums.name(simplest(sums, everything, Means(mean, error))) == "params+field"
    without = sums.of(("layers", "field"))
    assert sums.name(simplest(sums, without, Means(mean, error))) == "field"


def test_what_a_sum_is_worth_on_cells_that_did_not_choose() -> None:
    values, accuracy = some_cells()
    cells = np.arange(0, 60, 2)
    total = sum_of(values, ("params", "layers"))
    found = {row["dataset"]: row for row in worth(total, {"a": accuracy, "b": -accuracy}, cells)}
    total, picked = total[cells], accuracy[cells][np.argsort(-total[cells])]
    best = np.argsort(-accuracy[cells])[:3]
    assert found["a"]["spearman"] == pytest.approx(spearmanr(total, accuracy[cells])[0])
    assert found["a"]["top10"] == pytest.approx(spearmanr(total[best], accuracy[cells][best])[0])
    assert found["a"]["best_rank"] == 1 + (accuracy[cells] > picked[0]).sum()
    assert found["a"]["first_ten"] == pytest.approx(picked[:10].mean())
    assert found["b"]["spearman"] == pytest.approx(-found["a"]["spearman"])


def test_halves_that_choose_and_test_share_no_cell(study: Study) -> None:
    functions = np.arange(101) // 3
    found = list(default_score.halves(study, functions))
    assert len(found) == default_score.SPLITS * default_score.SEEDS
    for _, _, choosing, testing in found:
        assert sorted([*choosing, *testing]) == list(range(101))
        assert len({*functions[choosing]} & {*functions[testing]}) <= 1
    assert len({tuple(choosing) for _, _, choosing, _ in found}) == len(found)


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
def test_every_way_of_choosing_is_tested_on_the_same_halves(
    outcome_of: Callable[[str], Outcome],
) -> None:
    outcome = outcome_of("default-score")
    families, fixed = [*default_score.FAMILIES], [*default_score.FIXED.values()]
    ways = {*families, *(family + default_score.BEST for family in families), *fixed}
    assert set(outcome.frame["way"]) == ways
    assert set(outcome.frame.groupby(["seed", "split"])["way"].nunique()) == {len(ways)}
    assert set(measures.HELD_EQUAL) > set(default_score.COUNTS)
    assert outcome.configuration["chosen"]["terms of a usual run"] == str(DEFAULT)
