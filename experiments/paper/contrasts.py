"""Spearman coefficients on the same resamples of cells, and intervals of what differs in them."""

import numpy as np
import pandas as pd
from jaxtyping import Float

from experiments.data import RESAMPLES, functions_of
from experiments.frame import Interval
from ntkscore.analysis.correlation import (
    percentile_interval,
    rank_codes,
    resampled_spearman,
    spearman,
)

NOTABLE = 0.02
"""A smaller difference of Spearman coefficients is no stronger correlation, however sure it is."""
SEEDS = 3
"""Seeds that a difference needs: scores differ more between seeds than between cells."""
ANY = (-2.0, 2.0)
"""All that two coefficients can differ by."""


def by_seed(rows: pd.DataFrame, *names: str) -> pd.DataFrame:
    """A row per cell; columns by some names, then by seed. Cells that lack any are left out."""
    cell, *_ = rows.columns
    rows = rows.drop_duplicates([cell, *names, "seed"])
    return rows.pivot(index=cell, columns=[*names, "seed"], values="value").dropna()


def coefficients(
    scores: pd.DataFrame, accuracy: Float[np.ndarray, " cells"]
) -> dict[tuple[object, ...], Float[np.ndarray, " samples"]]:
    """Spearman coefficients of every score with one accuracy, as samples that can be subtracted.

    Args:
        scores: as `by_seed` gives them.
        accuracy: of the same cells, as fractions.

    Returns:
        Of each score: the coefficient of its mean over the seeds, those of every seed alone, and
        those of its mean in `RESAMPLES` draws of cells, which are the same for all scores.
    """
    groups = functions_of(scores.index)
    statistic = resampled_spearman(rank_codes(accuracy), RESAMPLES, groups=groups)
    found = {}
    names = list(range(scores.columns.nlevels - 1))
    for name, seeds in scores.T.groupby(level=names, sort=False):
        mean = seeds.mean().to_numpy()
        alone = [spearman(values, accuracy) for values in (mean, *seeds.to_numpy())]
        found[name] = np.array([*alone, *statistic(rank_codes(mean))])
    return found


def interval(samples: Float[np.ndarray, " samples"]) -> Interval:
    """The coefficient of the means, with its interval over cells."""
    return Interval(float(samples[0]), *percentile_interval(samples[-RESAMPLES:]))


def sure_interval(samples: Float[np.ndarray, " samples"]) -> Interval:
    """That interval, widened to hold every seed's own number; all there is for too few seeds.

    So a difference has a sure sign only where all seeds have it.
    """
    value, low, high = interval(samples)
    own = samples[1:-RESAMPLES]
    if len(own) < SEEDS:
        return Interval(value, *ANY)
    return Interval(value, float(min(low, *own)), float(max(high, *own)))


def reach(rows: pd.DataFrame) -> float:
    """How far an axis must go from 0 for the intervals of some rows; for numbers alone if ANY."""
    ends = float(rows[["low", "high"]].abs().to_numpy().max())
    values = float(rows["value"].abs().max())
    return 1.1 * max(ends if ends < ANY[1] else values, NOTABLE)
