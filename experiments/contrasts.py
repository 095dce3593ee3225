"""Differences between correlations, paired by cell, and whether they bear out a statement."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from experiments.study import Finding, Verdict

RESAMPLES = 500


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
        value: the difference of the two Spearman coefficients.
        low, high: its 95 % interval over cells.
        seeds: the difference for every seed alone.
    """

    value: float
    low: float
    high: float
    seeds: tuple[float, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Of a statement that says it is positive: the interval and all seeds must agree."""
        if self.low > 0 and min(self.seeds, default=1) > 0:
            return "reproduced"
        if self.high < 0 and max(self.seeds, default=-1) < 0:
            return "not reproduced"
        return "not decidable"

    def __str__(self) -> str:
        text = f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"
        if len(self.seeds) > 1:
            text += f", single seeds {min(self.seeds):+.3f} to {max(self.seeds):+.3f}"
        return text

    def finding(self, what: str, paper: str, of: str = "") -> Finding:
        """The statement, with this as what was measured."""
        return Finding(what, paper, str(self), self.verdict, of=of)


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
    value = float(first.spearman() - second.spearman())
    singles = tuple(float(a.spearman() - b.spearman()) for a, b in by_seed)
    return Contrast(value, float(low), float(high), singles)


def partial_spearman(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> float:
    """Spearman of x and y at equal `given`: the correlation of what ranks of it leave over."""
    ranks: list[np.ndarray] = [rankdata(values) for values in (x, y, given)]
    (_, xy, xz), (_, _, yz), _ = np.corrcoef(ranks)
    return float((xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2)))


def single_seeds(rows: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """The rows of every seed."""
    return {int(str(seed)): part for seed, part in rows.groupby("seed")}
