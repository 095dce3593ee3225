"""Numbers with intervals, over a few random seeds or over cells."""

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import linalg

from experiments.data import bootstrap
from experiments.frame import Interval
from ntkscore.analysis.agreement import agreement
from ntkscore.analysis.correlation import (
    FEWEST,
    as_columns,
    centred_ranks,
    draws,
    percentile_interval,
    rank_codes,
)

RESAMPLES = 2000


def over_seeds(values: np.ndarray, statistic: Callable[[np.ndarray], float]) -> Interval:
    """A statistic of all seeds, and its 95 % interval over seeds drawn with repetition.

    Args:
        values: what each seed measured, a row for each.
        statistic: of an array of as many seeds; where it is NaN for a draw, that draw is left out.

    Example:
        >>> over_seeds(np.array([1.0, 2.0, 3.0, 4.0]), np.mean)
        Interval(value=2.5, low=1.5, high=3.5)
    """
    drawn = [float(statistic(values[seeds])) for seeds in draws(len(values), RESAMPLES)]
    low, high = percentile_interval(np.array(drawn))
    return Interval(float(statistic(values)), low, high)


def mean(values: pd.Series) -> Interval:
    """The mean over seeds, with its interval."""
    return over_seeds(values.to_numpy(float), np.mean)


def by_seed(frame: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """The means of y: a row for each seed, a column for each value of x, ascending."""
    return frame.pivot_table(index="seed", columns=x, values=y)


def difference(frame: pd.DataFrame, x: str, y: str) -> Interval:
    """The mean of y at the largest x less that at the smallest, seed by seed; NaN of one x."""
    table = by_seed(frame, x, y)
    change = table.iloc[:, -1] - table.iloc[:, 0]
    return mean(change if table.shape[1] > 1 else change * np.nan)


def slope(frame: pd.DataFrame, x: str, y: str) -> Interval:
    """The slope of log y, averaged over the seeds first, against log x."""
    table = by_seed(frame, x, y)
    at = table.columns.to_numpy(float)
    return over_seeds(table.to_numpy(), lambda rows: log_slope(at, rows.mean(0)))


def log_slope(x: np.ndarray, y: np.ndarray) -> float:
    """The slope of log y against log x; NaN of fewer than two points.

    Example:
        >>> x = np.array([1.0, 2.0, 4.0])
        >>> round(log_slope(x, 3 / x**2), 6)
        -2.0
    """
    return float("nan") if len(x) < 2 else float(np.polyfit(np.log(x), np.log(y), 1)[0])


def spearman_interval(
    values: ArrayLike, accuracy: ArrayLike, cells: Iterable[object], seed: int = 0
) -> Interval:
    """Spearman's coefficient of cells' scores with their accuracies, with its interval.

    Cells that compute one function are drawn together.
    """
    found = agreement(values, accuracy, **bootstrap(cells, seed))
    return Interval(found.spearman, found.spearman_low, found.spearman_high)


def partial_spearman(
    values: ArrayLike, accuracy: ArrayLike, given: ArrayLike, *, squares: bool = False
) -> float:
    """Partial Spearman coefficient of a score with accuracy, given other quantities.

    The Pearson correlation of the residuals of both ranks after a linear regression on the ranks
    of `given`; for one quantity g

        (r_va − r_vg r_ag) / √((1 − r_vg²)(1 − r_ag²))

    of the three Spearman coefficients between v, a and g.

    Args:
        values: the score, shape (cells,).
        accuracy: measured accuracy as a fraction, shape (cells,).
        given: the other quantities, shape (cells,), or (cells, k) for k of them. Cells where any
            number is not finite are left out.
        squares: whether to regress on the squares of the ranks of `given` too.

    Returns:
        The coefficient in [-1, 1]; NaN where a column is constant, where `given` orders cells as
        one of the others does, or for fewer than three cells.

    Example:
        >>> accuracy, params = [0.1, 0.2, 0.4, 0.3, 0.5], [1, 2, 3, 4, 5]
        >>> round(partial_spearman([1, 2, 4, 3, 5], accuracy, params), 3)  # says more than size
        1.0
        >>> round(partial_spearman([1, 3, 2, 4, 5], accuracy, params), 3)  # misleads beside size
        -0.579
    """
    given = np.asarray(given, np.float64)
    columns = np.stack(as_columns(values, accuracy, *(given.T if given.ndim == 2 else [given])))
    finite = columns[:, np.isfinite(columns).all(axis=0)]
    if finite.shape[1] < FEWEST:
        return np.nan
    ranks = np.stack([centred_ranks(rank_codes(column)) for column in finite])
    if (np.ptp(ranks, axis=1) == 0).any():
        return np.nan
    (score, of, *held), cells = ranks, ranks.shape[1]
    explaining = np.array(held) / cells
    if squares:
        explaining = np.concatenate([explaining, explaining**2])
    design = np.concatenate([explaining, np.ones((1, cells))]).T
    # The directions of the design, without those that the ones before them explain; a fifth of the
    # time of least squares.
    basis, triangle, _ = linalg.qr(design, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    basis = basis[:, sizes > len(design) * np.finfo(float).eps * sizes[0]]
    both = np.stack([score, of])
    left = both - (both @ basis) @ basis.T
    rounding = np.linalg.norm(left, axis=1) <= 1e-6 * np.linalg.norm(both, axis=1)
    return np.nan if rounding.any() else float(np.corrcoef(left)[0][1])
