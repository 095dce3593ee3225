"""The protocol behind the default score: candidates, the criterion, the one-error rule, halves."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata, spearmanr

from experiments.data import DATASET, DEFAULT, Data
from experiments.paper import PAPER, default_score
from experiments.paper.default_score import (
    FAR,
    OF_A_RUN,
    all_sums,
    criterion,
    log_ranks,
    made_of,
    simplest,
)
from experiments.paper.measures import HELD_EQUAL

TERMS = ("params", "layers", "field", "longest_path")


def some_cells(count: int = 60) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    values = pd.DataFrame(rng.normal(size=(count, len(TERMS))), columns=list(TERMS))
    # A count has ties.
    values["longest_path"] = values["longest_path"].round()
    accuracy = (values["params"] + values["layers"] + rng.normal(size=count)).rank()
    return values, accuracy.to_numpy() / count


def test_the_criterion_is_that_of_every_sum_by_itself() -> None:
    values, accuracy = some_cells()
    sums = all_sums(TERMS, most=3)
    assert sums.shape == (4 + 6 + 4, 4)  # one, two or three of four
    assert made_of(sums, TERMS[:3]).sum() == 7
    fold = np.arange(0, 60, 2)  # ranks are among all cells, coefficients among the fold's
    best = fold[np.argsort(-accuracy[fold])[:3]]
    got = criterion(sums, log_ranks(values, TERMS), accuracy, fold)
    for name, found in zip(sums.index, got, strict=True):
        total = np.sum([np.log(rankdata(values[t])) for t in name.split("+")], axis=0)
        wanted = sum(spearmanr(total[cells], accuracy[cells])[0] for cells in (fold, best))
        assert found == pytest.approx(wanted), name


def test_the_simplest_sum_within_one_paired_error_of_the_best_is_chosen() -> None:
    sums = all_sums(TERMS, most=2)
    hard = np.array([0.0, 1.0, 2.0, 3.0])  # folds are hard for all alike
    found = pd.DataFrame(hard - 9 + np.zeros((len(sums), 1)), sums.index)
    found.loc["params+field"] = hard
    noise = np.array([0.2, -0.2, 0.2, -0.2])  # an error of 0.2 · √(4 / 3) / √4 = 0.115
    assert simplest(found, 4) == "params+field"
    found.loc["field"] = hard - 0.11 + noise
    assert simplest(found, 4) == "field"
    found.loc["params"] = hard - 0.1 + noise
    assert simplest(found, 4) == "params"
    found.loc["params"] = found.loc["field"] = hard - 0.12 + noise
    assert simplest(found, 4) == "params+field"
    assert simplest(found[made_of(sums, ("layers", "field"))], 4) == "field"
    assert simplest(pd.concat([found, found], axis=1), 1) == "params"  # one fold of each cut


def test_halves_that_choose_and_test_share_no_cell() -> None:
    functions = np.arange(101) // 3
    found = [pair for seed in range(2) for pair in default_score.halves(functions, seed, 3)]
    for choosing, testing in found:
        assert sorted([*choosing, *testing]) == list(range(101))
        assert len({*functions[choosing]} & {*functions[testing]}) <= 1
    assert len({tuple(choosing) for choosing, _ in found}) == 6


@pytest.mark.thorough
def test_the_default_beats_counting_parameters(data: Data) -> None:
    """On the halves that chose nothing, of one split for each of two seeds."""
    study = PAPER["default-score"].at(splits=1, seeds=2)
    frame = study.frame(data)
    worth = frame.groupby(["way", "tested"])[["spearman", "top10"]].mean()
    for dataset in (DATASET, FAR):
        default, params = (
            worth.loc[(default_score.FIXED[name], dataset)] for name in (str(DEFAULT), "params")
        )
        assert (default - params)["spearman"] > 0.09 and (default - params)["top10"] > 0.05
    ways = 2 * len(default_score.FAMILIES) + len(default_score.FIXED)
    halves = frame[frame["tested"] == DATASET].groupby(["seed", "split"])
    assert set(halves["way"].nunique()) == {ways}
    assert set(HELD_EQUAL) > set(default_score.COUNTS) and OF_A_RUN in default_score.FAMILIES
