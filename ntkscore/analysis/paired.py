"""Differences of scores' agreement on the same cells."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ntkscore.analysis.correlation import (
    FEWEST,
    as_columns,
    check_accuracy,
    check_interval,
    group_codes,
    percentile_interval,
    rank_codes,
    resampled_spearman,
    spearman_of_codes,
)


@dataclass(frozen=True)
class Difference:
    """Difference of two scores' Spearman coefficients with accuracy, on the same cells.

    Attributes:
        status: "ok"; "too_few" (fewer than 3 cells) or "constant" (a score or the accuracies all
            equal), where every number but the counts is NaN.
        n: cells compared, those where both scores are finite.
        excluded: cells left out.
        value: the first coefficient less the second.
        low, high: ends of its bootstrap interval; above 0 at both, the first score is better.
        first, second: the scores' coefficients.
    """

    status: Literal["ok", "too_few", "constant"]
    n: int
    excluded: int
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    first: float = np.nan
    second: float = np.nan


def difference(
    first: ArrayLike,
    second: ArrayLike,
    accuracy: ArrayLike,
    second_accuracy: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Difference:
    """Difference of two scores' Spearman coefficients with accuracy, with an interval.

    Both coefficients are of the same cells and the same resamples, so that their common variation
    cancels and the interval is narrower than those of the two coefficients.

    Args:
        first, second: the scores, each of shape (cells,); negate one that is better when lower.
            Cells where either is not finite are left out and counted.
        accuracy: measured accuracy as a fraction, shape (cells,).
        second_accuracy: another accuracy of the same cells for the second score, shape (cells,);
            with twice the same score, this compares two metrics.
        groups: a value for each cell, shape (cells,), equal for those that are drawn together;
            without it each cell is drawn by itself.
        resamples: bootstrap resamples, each ranked anew.
        seed: random seed of the bootstrap.
        confidence: coverage of the percentile interval, a fraction.

    Raises:
        InputError: lengths differ, an accuracy is not finite, or an option is out of range.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> accuracy = rng.uniform(size=200)
        >>> noise = rng.normal(size=(2, 200))
        >>> gap = difference(accuracy + 0.1 * noise[0], accuracy + 0.5 * noise[1], accuracy)
        >>> print(f"{gap.value:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}] over {gap.n} cells")
        +0.41 [+0.32, +0.51] over 200 cells
        >>> gap.low > 0  # the first score is better
        True
    """
    if second_accuracy is None:
        second_accuracy = accuracy
    columns = as_columns(first, second, accuracy, second_accuracy)
    check_accuracy(columns[2])
    check_accuracy(columns[3])
    check_interval(resamples, confidence)
    finite = np.isfinite(columns[0]) & np.isfinite(columns[1])
    n = int(finite.sum())
    excluded = len(finite) - n
    if n < FEWEST:
        return Difference("too_few", n, excluded)
    x, other_x, y, other_y = (rank_codes(column[finite]) for column in columns)
    coefficients = spearman_of_codes(x, y), spearman_of_codes(other_x, other_y)
    if np.isnan(coefficients).any():
        return Difference("constant", n, excluded)

    pairs = (x, y), (other_x, other_y)
    together = None if groups is None else group_codes(groups, len(finite))[finite]
    resampled = [
        resampled_spearman(codes, resamples, seed, together)(score) for score, codes in pairs
    ]
    low, high = percentile_interval(resampled[0] - resampled[1], confidence)
    value = coefficients[0] - coefficients[1]
    return Difference("ok", n, excluded, value, low, high, *coefficients)
