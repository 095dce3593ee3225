"""What a measure knows beyond counting: τ within groups of equal counts, and partial Spearman.

Cells of equal counts are a group. A measure's τ within groups is Kendall's τ-b over the pairs of
cells of the same group: Σ s(x)s(a) / √(Σ s(x)² Σ s(a)²), s the sign of a pair's difference in the
measure and in accuracy. Its bootstrap is over groups, each with the copies of its cells, but for 94
functions whose unused convolutions change the counts. A count that the groups hold equal has no τ.
The partial Spearman coefficient is that of `ntkscore.analysis.paired`, of many measures at once;
its bootstrap is over the functions that the cells compute.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from experiments.ours.measures import HELD_EQUAL
from experiments.paper.contrasts import Contrast
from ntkscore.analysis.correlation import (
    centred_ranks,
    draws,
    percentile_interval,
    rank_codes,
)
from ntkscore.analysis.paired import Difference, left_by

GROUPINGS = {
    "equal size": ("params", "layers", "path_pools"),
    "equal counts": HELD_EQUAL,
}
"""Counts that the cells of a group share, by the grouping's name."""


class Pairs(NamedTuple):
    """All pairs of cells of the same group.

    Attributes:
        first, second: places of the cells.
        group: number of the pair's group.
        weights: how often each group counts: once, and then as resampled.
    """

    first: Int[np.ndarray, " pairs"]
    second: Int[np.ndarray, " pairs"]
    group: Int[np.ndarray, " pairs"]
    weights: Int[np.ndarray, "resamples groups"]


def pairs_of(scores: pd.DataFrame, counts: Sequence[str], resamples: int, seed: int) -> Pairs:
    """The pairs of cells that have the same counts, and bootstrap samples of the groups."""
    places = [p for p in scores.groupby(list(counts)).indices.values() if len(p) > 1]
    upper = [np.triu_indices(len(p), 1) for p in places]
    groups = len(places)
    resampled = np.random.default_rng(seed).multinomial(
        groups, np.full(groups, 1 / groups), resamples
    )
    return Pairs(
        np.concatenate([p[i] for p, (i, _) in zip(places, upper, strict=True)]),
        np.concatenate([p[j] for p, (_, j) in zip(places, upper, strict=True)]),
        np.repeat(np.arange(groups), [len(i) for i, _ in upper]),
        np.concatenate([np.ones((1, groups), int), resampled]),
    )


def taus(
    values: Float[np.ndarray, " cells"], accuracy: Float[np.ndarray, " cells"], pairs: Pairs
) -> Float[np.ndarray, " resamples"]:
    """τ within groups: first of all groups, then of the resampled; NaN where no pair differs.

    Pairs with a cell whose value is not finite are left out.
    """
    known = np.isfinite(values)[pairs.first] & np.isfinite(values)[pairs.second]
    first, second, group = (of[known] for of in (pairs.first, pairs.second, pairs.group))
    x, a = (np.sign(of[first] - of[second]) for of in (values, accuracy))
    sums = [np.bincount(group, of, pairs.weights.shape[1]) for of in (x * a, x * x, a * a)]
    agreeing, moved, apart = (pairs.weights @ of for of in sums)
    if not moved[0]:
        return np.full(len(pairs.weights), np.nan)
    return agreeing / np.sqrt(np.maximum(moved * apart, 1))


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


def contrast_of(
    first: Float[np.ndarray, " resamples"],
    second: Float[np.ndarray, " resamples"],
    by_seed: Sequence[float],
    cells: int,
) -> Contrast:
    """The first statistic less the second, of the same resamples, with its verdict.

    Args:
        first, second: of all cells, and then of the resampled.
        by_seed: the difference for every seed of images and weights alone.
        cells: number of cells.
    """
    value, low, high = with_interval(first - second)
    gap = Difference("ok", cells, 0, value, low, high, float(first[0]), float(second[0]))
    return Contrast(gap, tuple(by_seed))
