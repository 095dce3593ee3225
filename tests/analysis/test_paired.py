"""Paired differences of Spearman coefficients."""

import numpy as np
import pandas as pd
import pytest
from tiny import refuses

from ntkscore.analysis.agreement import agreement
from ntkscore.analysis.correlation import spearman
from ntkscore.analysis.paired import difference


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
