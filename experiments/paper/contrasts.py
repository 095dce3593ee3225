"""Spearman coefficients on the same resamples of cells, and intervals of what differs in them."""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from experiments.data import RESAMPLES, functions_of
from experiments.frame import Interval
from ntkscore.analysis.correlation import (
    percentile_interval,
    rank_codes,
    resampled_spearman,
    spearman_of_codes,
)

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
    scores: pd.DataFrame, accuracy: Float[np.ndarray, " cells"]
) -> dict[tuple[Any, ...], Float[np.ndarray, " samples"]]:
    """Spearman coefficients of every score with one accuracy, as samples that can be subtracted.

    Args:
        scores: as `by_seed` gives them.
        accuracy: of the same cells, as fractions.

    Returns:
        Of each score: the coefficient of its mean over the seeds, those of every seed alone, and
        those of its mean in `RESAMPLES` draws of cells, which are the same for all scores.
    """
    true, names = rank_codes(accuracy), list(range(scores.columns.nlevels - 1))
    resampled = resampled_spearman(true, RESAMPLES, 0, functions_of(scores.index))
    found = {}
    for name, own in scores.T.groupby(level=names, sort=False):
        mean, *alone = (rank_codes(values) for values in (own.mean().to_numpy(), *own.to_numpy()))
        of_all = [spearman_of_codes(values, true) for values in (mean, *alone)]
        found[name] = np.concatenate([of_all, resampled(mean)])
    return found


def interval(samples: Float[np.ndarray, " samples"]) -> Interval:
    """The coefficient of the means, with its interval over the last samples, draws of cells."""
    return Interval(float(samples[0]), *percentile_interval(samples[-RESAMPLES:]))


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
