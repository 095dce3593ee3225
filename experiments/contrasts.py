"""Verdicts on statements of the form "this correlation is stronger than that one"."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.study import RESAMPLES, Finding, Verdict
from ntkscore.analysis.correlation import spearman
from ntkscore.analysis.paired import Difference, difference

SEEDS = 3
"""Seeds that a verdict needs at least: scores differ more between seeds than between cells."""
NOTABLE = 0.02
"""A smaller difference of Spearman coefficients is called small, however sure it is."""


class Pair(NamedTuple):
    """A score and the accuracy that it is compared with, each of shape (cells,)."""

    score: np.ndarray
    accuracy: np.ndarray


@dataclass(frozen=True)
class Contrast:
    """Difference of two correlations: for the means over seeds, and for every seed.

    Attributes:
        means: difference for the scores' means over the seeds, with an interval.
        seeds: differences for every seed alone.
    """

    means: Difference
    seeds: tuple[float, ...] = ()

    @property
    def verdict(self) -> tuple[Verdict, str]:
        """Verdict on the first correlation being the stronger one, with its reason."""
        if len(self.seeds) < SEEDS:
            return "not decidable", f"fewer than {SEEDS} seeds"
        if self.means.first <= 0:
            return "not decidable", "no positive correlation to compare"
        small = f", but by less than {NOTABLE}" if abs(self.means.value) < NOTABLE else ""
        if self.means.low > 0 and min(self.seeds) > 0:
            return "reproduced", f"interval and all {len(self.seeds)} seeds above 0{small}"
        if self.means.high < 0 and max(self.seeds) < 0:
            return "not reproduced", f"interval and all {len(self.seeds)} seeds below 0{small}"
        return "not decidable", "interval or seeds on both sides of 0"

    def __str__(self) -> str:
        means = self.means
        text = f"{means.first:.3f} − {means.second:.3f} = {means.value:+.3f} "
        text += f"[{means.low:+.3f}, {means.high:+.3f}]"
        if self.seeds:
            text += "; by seed " + ", ".join(f"{gap:+.3f}" for gap in self.seeds)
        return text

    def finding(self, what: str, paper: str, of: str = "", under: str = "") -> Finding:
        """The paper's statement beside this contrast.

        Args:
            what: the statement.
            paper: the paper's number or words.
            of: the larger statement that it is one part of, or "".
            under: the convention that it was measured under, or "".
        """
        return Finding(what, paper, str(self), *self.verdict, of, under)


def contrast(
    first: Pair, second: Pair, by_seed: Sequence[tuple[Pair, Pair]] = (), seed: int = 0
) -> Contrast:
    """Spearman coefficient of the first pair less that of the second, on the same cells.

    Args:
        first, second: pairs over the same cells, in the same order.
        by_seed: the two pairs for every seed of the scores alone.
        seed: random seed of the bootstrap over cells.
    """
    means = difference(
        first.score, second.score, first.accuracy, second.accuracy, resamples=RESAMPLES, seed=seed
    )
    return Contrast(means, tuple(spearman(*a) - spearman(*b) for a, b in by_seed))
