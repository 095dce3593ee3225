"""Partial Spearman coefficients."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from experiments.statistics import partial_spearman


def scores(size: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A good score, a bad one, and the accuracy."""
    rng = np.random.default_rng(0)
    accuracy = rng.normal(size=size)
    good, bad = (accuracy + noise * rng.normal(size=size) for noise in (0.3, 1.0))
    return good, bad, accuracy


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
