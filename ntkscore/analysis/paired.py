"""Comparisons of scores on the same cells: paired differences, and partial correlations."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ntkscore.analysis.correlation import (
    FEWEST,
    as_columns,
    centred_ranks,
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
    residuals = left_by(ranks[2:], ranks[:2], squares=squares)
    if np.isnan(residuals).any():
        return np.nan
    return float(np.corrcoef(residuals)[0][1])


def left_by(
    given: Float[np.ndarray, "k cells"], ranks: Float[np.ndarray, "m cells"], *, squares: bool
) -> Float[np.ndarray, "m cells"]:
    """What a linear regression on other ranks, and on their squares if asked, leaves of ranks.

    NaN where it leaves nothing but rounding.
    """
    from scipy import linalg  # slow to import, and needed here alone

    explaining = given / given.shape[1]
    if squares:
        explaining = np.concatenate([explaining, explaining**2])
    design = np.concatenate([explaining, np.ones((1, given.shape[1]))]).T
    # The directions of the design, without those that the ones before them explain; a fifth of the
    # time of least squares.
    basis, triangle, _ = linalg.qr(design, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    basis = basis[:, sizes > len(design) * np.finfo(float).eps * sizes[0]]
    left = ranks - (ranks @ basis) @ basis.T
    rounding = np.linalg.norm(left, axis=1) <= 1e-6 * np.linalg.norm(ranks, axis=1)
    left[rounding] = np.nan
    return left
