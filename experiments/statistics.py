"""Numbers with intervals, over a few random seeds or over cells."""

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from experiments.data import bootstrap
from experiments.frame import Interval
from ntkscore.analysis.agreement import agreement
from ntkscore.analysis.correlation import draws, percentile_interval

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
