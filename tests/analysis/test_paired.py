"""Paired differences of Spearman coefficients, and partial ones."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata
from tiny import refuses

from ntkscore.analysis.agreement import agreement
from ntkscore.analysis.correlation import spearman
from ntkscore.analysis.paired import difference, partial_spearman


def scores(size: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A good score, a bad one, and the accuracy."""
    rng = np.random.default_rng(0)
    accuracy = rng.normal(size=size)
    good, bad = (accuracy + noise * rng.normal(size=size) for noise in (0.3, 1.0))
    return good, bad, accuracy


def test_knows_which_score_is_better() -> None:
    good, bad, accuracy = scores()
    gap = difference(good, bad, accuracy, resamples=100)
    assert gap.status == "ok" and gap.n == 500
    assert 0 < gap.low < gap.value < gap.high
    assert gap.value == gap.first - gap.second
    assert gap.first == pytest.approx(agreement(good, accuracy, resamples=1).spearman)
    back = difference(bad, good, accuracy, resamples=100)
    assert [back.value, back.low, back.high] == pytest.approx([-gap.value, -gap.high, -gap.low])


def test_both_scores_see_the_same_resamples() -> None:
    good, bad, accuracy = scores(60)
    gap = difference(good, bad, accuracy, resamples=150, seed=5, confidence=0.8)
    rng = np.random.default_rng(5)
    gaps = []
    for _ in range(150):
        cells = rng.integers(60, size=60)
        first, second = (
            pd.Series(score[cells]).corr(pd.Series(accuracy[cells]), method="spearman")
            for score in (good, bad)
        )
        gaps.append(first - second)
    assert [gap.low, gap.high] == pytest.approx(np.quantile(gaps, [0.1, 0.9]))


def test_a_score_does_not_differ_from_what_orders_alike() -> None:
    good, _, accuracy = scores()
    gap = difference(good, np.exp(good), accuracy, resamples=20)
    assert (gap.value, gap.low, gap.high) == (0, 0, 0)


def test_two_accuracies_of_one_score() -> None:
    good, bad, accuracy = scores()
    gap = difference(good, good, accuracy, bad, resamples=20)
    assert gap.first == spearman(good, accuracy)
    assert gap.second == spearman(good, bad)


def test_cells_without_either_score_are_left_out_of_both() -> None:
    good, bad, accuracy = scores(40)
    whole = difference(good, bad, accuracy, resamples=20)
    gap = difference(
        np.append(good, [np.nan, 1.0]),
        np.append(bad, [1.0, -np.inf]),
        np.append(accuracy, [9.0, 9.0]),
        resamples=20,
    )
    assert (gap.n, gap.excluded) == (40, 2)
    assert (gap.value, gap.low, gap.high) == (whole.value, whole.low, whole.high)


@pytest.mark.parametrize(
    ("first", "second", "accuracy", "status"),
    [
        ([1, np.nan, 2], [1, 2, 3], [0.1, 0.2, 0.3], "too_few"),
        ([], [], [], "too_few"),
        ([1, 1, 1], [1, 2, 3], [0.1, 0.2, 0.3], "constant"),
        ([1, 2, 3], [1, 3, 2], [0.1, 0.1, 0.1], "constant"),
    ],
)
def test_undefined_differences_are_nan_with_a_status(first, second, accuracy, status) -> None:
    gap = difference(first, second, accuracy)
    assert gap.status == status
    assert np.isnan([gap.value, gap.low, gap.high, gap.first, gap.second]).all()


@pytest.mark.parametrize(
    ("arguments", "options", "got"),
    [
        (([1, 2], [1, 2], [1]), {}, [(2,), (1,)]),
        (([1, 2], [1, 2], [1, np.nan]), {}, [1, 2]),
        (([1, 2], [1, 2], [1, 2], [1, np.inf]), {}, [1, 2]),
        (([1, 2], [1, 2], [1, 2]), {"resamples": 0}, [0]),
        (([1, 2], [1, 2], [1, 2]), {"confidence": 95}, [95]),
    ],
)
def test_bad_input_is_refused(arguments, options, got) -> None:
    with refuses(*got):
        difference(*arguments, **options)


def test_partial_correlation_takes_out_what_is_given() -> None:
    rng = np.random.default_rng(0)
    size = rng.normal(size=4000)
    accuracy = size + rng.normal(size=4000)
    proxy, better = size + 0.1 * rng.normal(size=4000), accuracy + rng.normal(size=4000)
    assert abs(partial_spearman(proxy, accuracy, size)) < 0.08
    assert partial_spearman(better, accuracy, size) > 0.5


def test_partial_correlation_is_that_of_residual_ranks() -> None:
    good, bad, accuracy = scores(200)
    ranks = pd.DataFrame({"v": good, "a": accuracy, "g": bad}).rank()
    residuals = [
        ranks[name] - np.polyval(np.polyfit(ranks["g"], ranks[name], 1), ranks["g"])
        for name in ("v", "a")
    ]
    expected = np.corrcoef(residuals)[0, 1]
    assert partial_spearman(good, accuracy, bad) == pytest.approx(expected)


def test_partial_correlation_given_several_is_that_of_what_a_fit_leaves():
    rng = np.random.default_rng(2)
    given = rng.normal(size=(200, 2))
    value = given @ [1.0, -2.0] + rng.normal(size=200)
    accuracy = rankdata(given @ [0.5, 1.0] + 0.5 * value) / 300
    ranks = [rankdata(column) for column in (value, accuracy, *given.T)]
    for squares in (False, True):
        powers = [g**p for g in ranks[2:] for p in ((0, 1, 2) if squares else (0, 1))]
        fit = np.stack(powers, 1)
        left = [r - fit @ np.linalg.pinv(fit) @ r for r in ranks[:2]]
        expected = np.corrcoef(left)[0, 1]
        found = partial_spearman(value, accuracy, given, squares=squares)
        assert found == pytest.approx(expected, rel=1e-6)
    alone = partial_spearman(value, accuracy, given[:, 0])
    assert partial_spearman(value, accuracy, given[:, :1]) == pytest.approx(alone)
    assert np.isnan(partial_spearman(given[:, 0], accuracy, given))


def test_partial_correlation_leaves_out_failed_scores_and_may_be_undefined() -> None:
    good, bad, accuracy = scores(50)
    failed = np.where(np.arange(50) < 5, np.nan, good)
    assert partial_spearman(failed, accuracy, bad) == partial_spearman(
        good[5:], accuracy[5:], bad[5:]
    )
    assert np.isnan(partial_spearman(good, accuracy, good))
    assert np.isnan(partial_spearman(good, accuracy, np.ones(50)))
