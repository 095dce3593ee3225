"""Spearman coefficients on the same resamples of cells, and intervals of what differs in them."""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from experiments.data import RESAMPLES, functions_of
from experiments.frame import Interval
from ntkscore.analysis.correlation import centred_ranks, draws, percentile_interval, rank_codes
from ntkscore.analysis.paired import left_by

NOTABLE = 0.02
"""A smaller difference of Spearman coefficients is no stronger correlation, however sure it is."""
SEEDS = 3
"""Seeds that a verdict needs: scores differ more between seeds than between cells."""


def by_seed(rows: pd.DataFrame, *names: str) -> pd.DataFrame:
    """A row per cell; columns by some names, then by seed. Cells that lack any are left out."""
    cell, *_ = rows.columns
    rows = rows.drop_duplicates([cell, *names, "seed"])
    return rows.pivot(index=cell, columns=[*names, "seed"], values="value").dropna()


def coefficients(
    scores: pd.DataFrame,
    accuracy: Float[np.ndarray, " cells"],
    given: Float[np.ndarray, "cells given"] | None = None,
) -> dict[tuple[Any, ...], Float[np.ndarray, " samples"]]:
    """Spearman coefficients of every score with one accuracy, as samples that can be subtracted.

    Args:
        scores: as `by_seed` gives them.
        accuracy: of the same cells, as fractions.
        given: of the same cells; coefficients are then partial, given these and their squares.

    Returns:
        Of each score: the coefficient of its mean over the seeds, those of every seed alone, and
        those of its mean in `RESAMPLES` draws of cells, which are the same for all scores.
    """
    given = np.empty((len(scores), 0)) if given is None else given
    names = list(range(scores.columns.nlevels - 1))
    means = scores.T.groupby(level=names, sort=False).mean().T
    groups = functions_of(scores.index)
    whole, *resampled = partials(means.to_numpy(), accuracy, given, RESAMPLES, 0, groups)
    (alone,) = partials(scores.to_numpy(), accuracy, given)
    by_name = pd.Series(alone, scores.columns).groupby(level=names, sort=False)
    columns = zip(by_name, whole, np.transpose(resampled), strict=True)
    return {name: np.array([mean, *own, *drawn]) for (name, own), mean, drawn in columns}


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
        rest = left_by(others, asked, squares=True) if len(others) else asked
        lengths = np.linalg.norm(rest, axis=1)
        found.append((rest[1:] @ rest[0]) / (lengths[1:] * lengths[0]))
    return np.stack(found)


def interval(samples: Float[np.ndarray, " samples"], resamples: int = RESAMPLES) -> Interval:
    """The coefficient of the means, with its interval over the last samples, draws of cells."""
    return Interval(float(samples[0]), *percentile_interval(samples[-resamples:]))


def sure_interval(samples: Float[np.ndarray, " samples"]) -> Interval:
    """An interval over cells, widened to hold every seed's own number.

    So a difference has a sure sign only where all seeds have it.
    """
    value, low, high = interval(samples)
    own = samples[1:-RESAMPLES]
    return Interval(value, float(min(low, *own)), float(max(high, *own)))


def intervals(rows: pd.DataFrame, *names: str) -> list[Interval]:
    """The interval of each row: its columns value, low and high, or three others."""
    return [Interval(*row) for row in rows[[*(names or Interval._fields)]].to_numpy(float)]


def reach(rows: pd.DataFrame) -> float:
    """How far an axis must go from 0 for the intervals of some rows."""
    return 1.1 * max(float(rows[["low", "high"]].abs().to_numpy().max()), NOTABLE)
