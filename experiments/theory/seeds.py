"""Intervals of slopes, crossings and ratios from what a few random seeds measured."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ntkscore.analysis.correlation import draws, percentile_interval

RESAMPLES = 2000


class Interval(NamedTuple):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def over_seeds(
    values: Float[np.ndarray, "seeds ..."],
    statistic: Callable[[np.ndarray], float],
    resamples: int = RESAMPLES,
) -> Interval:
    """A statistic of all seeds, and its 95 % interval over seeds drawn with repetition.

    Args:
        values: what each seed measured.
        statistic: of an array of as many seeds; where it is NaN for a draw, that draw is left out.
        resamples: of the bootstrap.

    Example:
        >>> over_seeds(np.array([1.0, 2.0, 3.0, 4.0]), np.mean)
        Interval(value=2.5, low=1.5, high=3.5)
    """
    drawn = [float(statistic(values[seeds])) for seeds in draws(len(values), resamples)]
    low, high = percentile_interval(np.array(drawn))
    return Interval(float(statistic(values)), low, high)


def log_slope(x: Float[np.ndarray, " k"], y: Float[np.ndarray, " k"]) -> float:
    """The slope of log y against log x.

    Example:
        >>> x = np.array([1.0, 2.0, 4.0])
        >>> round(log_slope(x, 3 / x**2), 6)
        -2.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def crossing(x: Float[np.ndarray, " k"], y: Float[np.ndarray, " k"], level: float) -> float:
    """The first x at which y crosses a level, on straight lines between its values; else NaN.

    Args:
        x: ascending.
        y: falling or rising.
        level: of y.

    Example:
        >>> crossing(np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.8, 0.0]), 0.4)
        1.5
    """
    above = y > level
    (changes,) = np.nonzero(above[1:] != above[:-1])
    if not len(changes):
        return float("nan")
    k = changes[0]
    return float(x[k] + (x[k + 1] - x[k]) * (level - y[k]) / (y[k + 1] - y[k]))
