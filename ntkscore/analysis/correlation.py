"""Spearman's rank correlation, and the bootstrap that gives it an interval."""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ntkscore.errors import InputError

Statistic = Callable[[np.ndarray], np.ndarray]
"""From `rank_codes` of a score, shape (cells,), to a number in every resample."""
FEWEST = 3
"""Smallest number of cells that have a rank correlation."""


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's rank correlation of two columns, ties averaged; NaN where it is undefined.

    Args:
        first, second: numbers by cell, each of shape (cells,); cells where either is not finite
            are left out.

    Returns:
        The coefficient in [-1, 1]; NaN for fewer than three cells or a constant column.

    Example:
        >>> spearman([1, 2, 3, 4], [0.1, 0.2, 0.9, 0.3])
        0.8
    """
    x, y = as_columns(first, second)
    finite = np.isfinite(x) & np.isfinite(y)
    return spearman_of_codes(rank_codes(x[finite]), rank_codes(y[finite]))


def rank_codes(values: np.ndarray) -> np.ndarray:
    """Dense integer codes of finite numbers (cells,), with order and ties: all that ranks need."""
    return np.unique(values, return_inverse=True)[1]


def spearman_of_codes(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's correlation of two `rank_codes` of the same cells, (cells,); NaN if undefined."""
    if len(x) < FEWEST:
        return np.nan
    return _cosine(centred_ranks(x), centred_ranks(y))


def centred_ranks(codes: np.ndarray) -> np.ndarray:
    """Ranks of integer codes, ties averaged, less their mean."""
    # Counting instead of sorting: linear in the cells, so every resample can be ranked exactly.
    counts = np.bincount(codes)
    return (np.cumsum(counts) - counts / 2 - len(codes) / 2)[codes]


def resampled_spearman(
    codes: np.ndarray, resamples: int = 1000, seed: int = 0, groups: ArrayLike | None = None
) -> Statistic:
    """Return a function from a score to its Spearman coefficients in bootstrap resamples.

    The codes are `rank_codes` of the accuracies, (cells,). Many scores share the resamples and the
    accuracies' ranks. Where one of the columns is constant in a resample, its coefficient is NaN.

    Example:
        >>> bootstrap = resampled_spearman(np.array([0, 1, 2, 3, 4]), resamples=2)
        >>> bootstrap(np.array([0, 2, 1, 3, 4])).round(2).tolist()
        [0.68, 1.0]
    """
    samples = draws(len(codes), resamples, seed, groups)
    drawn = [(cells, centred_ranks(codes[cells])) for cells in samples]
    return lambda score: np.array(
        [_cosine(centred_ranks(score[cells]), ranks) for cells, ranks in drawn]
    )


def group_codes(groups: ArrayLike, count: int) -> np.ndarray:
    """Groups as whole numbers, in the order in which they come first, shape (count,)."""
    codes = pd.factorize(np.asarray(groups), use_na_sentinel=False)[0].astype(np.intp)
    if len(codes) != count:
        raise InputError(f"a group for each of the {count} cells", len(codes), "give one for each")
    return codes


def draws(
    count: int, resamples: int, seed: int = 0, groups: ArrayLike | None = None
) -> Iterator[np.ndarray]:
    """Bootstrap resamples: positions of cells, drawn with replacement.

    Args:
        seed: random seed; equal seeds draw equal cells, so that intervals of several statistics on
            the same cells are comparable.
        groups: a value for each cell, equal for those that are drawn together; without it each cell
            is drawn by itself. Scores and accuracies of cells that compute the same function differ
            little: drawn one by one, they make an interval too narrow.

    Returns:
        Arrays of positions; each holds as many groups, drawn with replacement, as there are.

    Example:
        >>> for cells in draws(4, 3, groups=["a", "b", "a", "c"]):
        ...     print(cells.tolist())
        [3, 1, 1]
        [0, 2, 0, 2, 0, 2]
        [0, 2, 0, 2, 0, 2]

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13; Davison and
    Hinkley, Bootstrap Methods and their Application (1997), section 3.8 (clusters).
    """
    rng = np.random.default_rng(seed)
    if groups is None:
        return (rng.integers(count, size=count) for _ in range(resamples))
    group = group_codes(groups, count)
    order, sizes = np.argsort(group, kind="stable"), np.bincount(group)
    starts = np.cumsum(sizes) - sizes

    def drawn() -> np.ndarray:
        chosen = rng.integers(len(sizes), size=len(sizes))
        of_each = sizes[chosen]
        inside = np.arange(of_each.sum()) - np.repeat(np.cumsum(of_each) - of_each, of_each)
        return order[np.repeat(starts[chosen], of_each) + inside]

    return (drawn() for _ in range(resamples))


def _cosine(x: np.ndarray, y: np.ndarray) -> float:
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale > 0 else np.nan


def percentile_interval(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Percentile interval of a coverage, a fraction, by resampled values; NaN where none is finite.

    Example:
        >>> percentile_interval(np.arange(101.0), 0.5)
        (25.0, 75.0)
    """
    # A resample of few cells can be constant; its statistic is NaN.
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.nan, np.nan
    low, high = np.quantile(finite, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def as_columns(*columns: ArrayLike) -> list[np.ndarray]:
    """Columns as float64 arrays; refuses more than one axis and different lengths."""
    arrays = [np.asarray(column, np.float64) for column in columns]
    shapes = [array.shape for array in arrays]
    if arrays[0].ndim != 1 or len(set(shapes)) > 1:
        raise InputError(
            "scores and accuracies as columns of equal length",
            f"the shapes {' and '.join(map(str, shapes))}",
            "give one number per cell",
        )
    return arrays


def check_accuracy(accuracy: np.ndarray) -> None:
    """Refuse accuracies that are not finite."""
    if bad := int(np.sum(~np.isfinite(accuracy))):
        raise InputError(
            "finite accuracies",
            f"{bad} of {len(accuracy)} that are not",
            "leave these cells out",
        )


def check_interval(resamples: int, confidence: float) -> None:
    """Refuse an interval without a resample, or without a coverage between 0 and 1."""
    if resamples < 1:
        raise InputError("at least one resample", resamples, "1000 is usual")
    if not 0 < confidence < 1:
        raise InputError("a confidence between 0 and 1", confidence, "0.95 is usual")
