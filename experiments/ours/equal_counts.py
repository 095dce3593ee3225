"""What a measure knows beyond counting: partial Spearman coefficients of many at once."""

import numpy as np
from jaxtyping import Float, Int

from ntkscore.analysis.correlation import centred_ranks, draws, percentile_interval, rank_codes
from ntkscore.analysis.paired import left_by


def with_interval(values: Float[np.ndarray, " resamples"]) -> tuple[float, float, float]:
    """The first value, and the 95 % interval of the others."""
    return float(values[0]), *percentile_interval(values[1:])


def partials(
    values: Float[np.ndarray, "cells measures"],
    accuracy: Float[np.ndarray, " cells"],
    given: Float[np.ndarray, "cells given"],
    resamples: int = 0,
    seed: int = 0,
    groups: Int[np.ndarray, " cells"] | None = None,
) -> Float[np.ndarray, "resamples measures"]:
    """Partial Spearman coefficients given other quantities and the squares of their ranks.

    The first row is that of all cells, the others are of cells drawn with replacement, those of one
    group together (`draws`). Every number is finite.
    """
    columns = np.column_stack([accuracy, values, given]).T
    codes = [rank_codes(column) for column in columns]
    found = []
    for cells in (np.arange(len(accuracy)), *draws(len(accuracy), resamples, seed, groups)):
        ranks = np.stack([centred_ranks(one[cells]) for one in codes])
        asked, others = np.split(ranks, [1 + values.shape[1]])
        rest = left_by(others, asked, squares=True)
        lengths = np.linalg.norm(rest, axis=1)
        found.append((rest[1:] @ rest[0]) / (lengths[1:] * lengths[0]))
    return np.stack(found)
