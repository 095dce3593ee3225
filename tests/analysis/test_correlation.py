"""Spearman against scipy, the bootstrap against itself drawn by hand."""

import numpy as np
import pytest
from scipy import stats
from tiny import refuses

from ntkscore.analysis.correlation import draws, percentile_interval, spearman


def test_spearman_equals_scipys_with_and_without_ties() -> None:
    rng = np.random.default_rng(0)
    for decimals in (0, 1, 8):
        x = np.round(rng.normal(size=80), decimals)
        y = np.round(x + rng.normal(size=80), decimals)
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-12)


def test_spearman_leaves_out_cells_that_are_not_finite() -> None:
    holes = [1, np.nan, 2, 4, np.inf, 3]
    assert spearman(holes, [1, 9, 2, 3, 9, 4]) == pytest.approx(
        spearman([1, 2, 4, 3], [1, 2, 3, 4])
    )


@pytest.mark.parametrize("columns", [([], []), ([1, 2], [2, 1]), ([1, 1, 1], [1, 2, 3])])
def test_spearman_is_nan_where_it_is_undefined(columns) -> None:
    assert np.isnan(spearman(*columns))


def test_spearman_refuses_columns_of_different_length() -> None:
    with refuses((3,), (2,)):
        spearman([1, 2, 3], [1, 2])


def test_interval_holds_the_quantiles_of_the_statistic() -> None:
    values = np.random.default_rng(1).normal(size=50)
    drawn = np.array([values[cells].mean() for cells in draws(50, 300, seed=7)])
    rng = np.random.default_rng(7)
    means = [values[rng.integers(50, size=50)].mean() for _ in range(300)]
    assert percentile_interval(drawn, 0.8) == pytest.approx(np.quantile(means, [0.1, 0.9]))


def test_interval_ignores_resamples_without_a_statistic() -> None:
    assert percentile_interval(np.array([1.0, np.nan, 1.0])) == (1.0, 1.0)
    assert np.isnan(percentile_interval(np.full(3, np.nan))).all()
