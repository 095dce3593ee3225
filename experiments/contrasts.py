"""Differences between correlations, paired by cell, and whether they bear out a statement."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from experiments.study import Finding, Verdict

RESAMPLES = 500
SEEDS = 3
"""Below which a statement about a score is not decided: seeds differ more than cells do."""
NOTABLE = 0.02
"""A smaller difference of Spearman coefficients is called small, however sure it is."""


@dataclass(frozen=True)
class Pair:
    """A score and the accuracy that it is held against, each of shape (cells,)."""

    score: np.ndarray
    accuracy: np.ndarray

    def spearman(self, cells: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Over all cells, or over each line of `cells`, which is of shape (..., cells)."""
        score, accuracy = (rankdata(v[cells], axis=-1) for v in (self.score, self.accuracy))
        score -= score.mean(axis=-1, keepdims=True)
        accuracy -= accuracy.mean(axis=-1, keepdims=True)
        scale = np.sqrt((score**2).sum(axis=-1) * (accuracy**2).sum(axis=-1))
        return (score * accuracy).sum(axis=-1) / scale


@dataclass(frozen=True)
class Contrast:
    """By how much one correlation exceeds another.

    Attributes:
        first, second: the two Spearman coefficients.
        low, high: 95 % interval of their difference over cells.
        seeds: the difference for every seed alone.
    """

    first: float
    second: float
    low: float
    high: float
    seeds: tuple[float, ...] = ()

    @property
    def value(self) -> float:
        """The difference."""
        return self.first - self.second

    @property
    def judged(self) -> tuple[Verdict, str]:
        """Whether the first correlation is stronger, and why this is said."""
        if len(self.seeds) < SEEDS:
            return "not decidable", f"fewer than {SEEDS} seeds"
        if self.first <= 0:
            return "not decidable", "no positive correlation to compare"
        small = f", but by less than {NOTABLE}" if abs(self.value) < NOTABLE else ""
        if self.low > 0 and min(self.seeds) > 0:
            return "reproduced", f"interval and all {len(self.seeds)} seeds above 0{small}"
        if self.high < 0 and max(self.seeds) < 0:
            return "not reproduced", f"interval and all {len(self.seeds)} seeds below 0{small}"
        return "not decidable", "interval or seeds on both sides of 0"

    def __str__(self) -> str:
        text = f"{self.first:.3f} − {self.second:.3f} = {self.value:+.3f} "
        text += f"[{self.low:+.3f}, {self.high:+.3f}]"
        if self.seeds:
            text += "; by seed " + ", ".join(f"{gap:+.3f}" for gap in self.seeds)
        return text

    def finding(self, what: str, paper: str, of: str = "") -> Finding:
        """The statement, with this as what was measured."""
        return Finding(what, paper, str(self), *self.judged, of)


def contrast(
    first: Pair,
    second: Pair,
    by_seed: Sequence[tuple[Pair, Pair]] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Contrast:
    """Spearman of the first pair less that of the second, on the same cells.

    Args:
        first, second: over the same cells, in the same order.
        by_seed: the two for every seed of the scores alone.
        seed: of the bootstrap over cells.
        resamples: of it; both pairs are resampled together.
    """

    n = len(first.score)
    drawn = np.random.default_rng(seed).integers(n, size=(resamples, n))
    low, high = np.quantile(first.spearman(drawn) - second.spearman(drawn), [0.025, 0.975])
    singles = tuple(float(a.spearman() - b.spearman()) for a, b in by_seed)
    coefficients = float(first.spearman()), float(second.spearman())
    return Contrast(*coefficients, float(low), float(high), singles)


def partial_spearman(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> float:
    """Spearman of x and y at equal `given`: the correlation of what ranks of it leave over."""
    ranks: list[np.ndarray] = [rankdata(values) for values in (x, y, given)]
    (_, xy, xz), (_, _, yz), _ = np.corrcoef(ranks)
    return float((xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2)))


def single_seeds(rows: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """The rows of every seed."""
    return {int(str(seed)): part for seed, part in rows.groupby("seed")}
