"""Recorded kernel scores beside accuracies, and verdicts on "this correlation is stronger"."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.study import (
    KERNELS,
    Finding,
    Study,
    Verdict,
    bootstrap,
    count_of,
    interval,
    single_seeds,
)
from ntkscore.analysis.correlation import spearman
from ntkscore.analysis.frames import pick_rho, score_table
from ntkscore.analysis.paired import Difference, difference
from ntkscore.text import format_rho

NTK_SCORE = "frobenius"
"""The score that the paper calls the NTK-score."""
SEEDS = 3
"""Seeds that a verdict needs at least: scores differ more between seeds than between cells."""
NOTABLE = 0.02
"""A smaller difference of Spearman coefficients is no stronger correlation, however sure it is."""


Pair = tuple[np.ndarray, np.ndarray]
"""A score and the accuracy that it is compared with, each of shape (cells,)."""


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
        low, value, high = self.means.low, self.means.value, self.means.high
        least, most = min(self.seeds), max(self.seeds)
        sides = f"interval and all {len(self.seeds)} seeds"
        if low > 0 and least > 0:
            if value < NOTABLE:
                return "direction only", f"{sides} above 0, but by less than {NOTABLE}"
            return "reproduced", f"{sides} above 0"
        if high < 0 and most < 0:
            little = f", but by less than {NOTABLE}" if value > -NOTABLE else ""
            return "not reproduced", f"{sides} below 0{little}"
        if max(-low, high, -least, most) < NOTABLE:
            return "equivalent", f"{sides} within ±{NOTABLE}"
        return "not decidable", "interval or seeds on both sides of 0"

    def __str__(self) -> str:
        means = self.means
        gap = interval(means.value, means.low, means.high, "+.3f")
        text = f"{means.first:.3f} − {means.second:.3f} = {gap}"
        if self.seeds:
            text += "; by seed " + ", ".join(f"{gap:+.3f}" for gap in self.seeds)
        return text

    def finding(self, what: str, paper: str, of: str, under: str = "", rival: str = "") -> Finding:
        """The statement that the first correlation is the stronger one, with its verdict.

        Args:
            what, paper, of, under: as for a `Finding`.
            rival: the same difference of a trivial baseline, in words.
        """
        verdict, why = self.verdict
        why = f"{why}; {rival}" if rival else why
        return Finding(what, paper, str(self), verdict, why, of, under)


def contrast(
    first: Pair,
    second: Pair,
    by_seed: Sequence[tuple[Pair, Pair]],
    cells: Iterable[object],
    seed: int = 0,
) -> Contrast:
    """Spearman coefficient of the first pair less that of the second, on the same cells.

    Args:
        first, second: pairs over the same cells, in the same order.
        by_seed: the two pairs for every seed of the scores alone.
        cells: which they are.
        seed: random seed of the bootstrap over the cells' functions.
    """
    scores, accuracies = zip(first, second, strict=True)
    means = difference(*scores, *accuracies, **bootstrap(cells, seed))
    return Contrast(means, tuple(spearman(*a) - spearman(*b) for a, b in by_seed))


@dataclass(frozen=True)
class RecordedScores:
    """Scores of one recording at one radius, beside the accuracies of the same cells."""

    study: Study
    recording: str
    rho: float

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Tidy rows, without those of the joint kernels."""
        rows = pick_rho(self.study.rows(self.recording), self.rho)
        return rows[rows["kernel"].isin(KERNELS)]

    @cached_property
    def means(self) -> pd.DataFrame:
        """Means over the seeds, a row per cell; NaN where one failed."""
        return score_table(self.rows)

    @cached_property
    def by_seed(self) -> list[pd.DataFrame]:
        """Scores of every seed, with the rows of `means`."""
        tables = (score_table(rows) for rows in single_seeds(self.rows))
        return [table.reindex(self.means.index) for table in tables]

    @cached_property
    def cells(self) -> pd.Index:
        """The cells whose NTK-scores did not fail with any seed."""
        names = [f"{kernel}.{NTK_SCORE}" for kernel in KERNELS]
        return self.means[names].dropna().index

    @property
    def attack(self) -> str:
        """Name of the attack."""
        return self.rows["attack"].iloc[0]

    @property
    def convention(self) -> str:
        """Mode of the normalisation, reading of the logits, and initialiser if not PyTorch's."""
        bn, output, init = self.rows.iloc[0][["bn", "output", "init"]]
        return f"{bn}, {output}" if init == "torch" else f"{bn}, {output}, {init}"

    @property
    def fidelity(self) -> str:
        """Images and channels."""
        first = self.rows.iloc[0]
        return f"{first['samples']} images, C = {first['channels']}"

    @property
    def title(self) -> str:
        """Attack, radius, number of cells and of seeds, and the convention."""
        seeds = count_of(len(self.by_seed), "seed")
        of = f"{self.attack.upper()} {format_rho(self.rho)}, {len(self.cells):,} cells, {seeds}"
        return f"{of}, {self.convention}"


class Correlation(NamedTuple):
    """The correlation of a kernel's NTK-score with a metric."""

    scores: RecordedScores
    kernel: str
    metric: str

    def pairs(self, cells: pd.Index) -> list[Pair]:
        """Score and accuracy of some cells: first for the means, then for every seed."""
        accuracy = self.scores.study.accuracy(cells, self.metric)
        score = f"{self.kernel}.{NTK_SCORE}"
        tables = (self.scores.means, *self.scores.by_seed)
        return [(table.loc[cells, score].to_numpy(), accuracy) for table in tables]

    def exceeds(
        self, other: "Correlation", what: str, paper: str, of: str, rival: str = ""
    ) -> Finding:
        """The statement that this correlation is the stronger one, beside their contrast.

        Args:
            other: with the same seeds; they are compared on the cells that both have.
            what, paper, of, rival: as for `Contrast.finding`.
        """
        cells = self.scores.cells.intersection(other.scores.cells)
        means, *seeds = zip(self.pairs(cells), other.pairs(cells), strict=True)
        found = contrast(*means, seeds, cells, self.scores.study.seed)
        return found.finding(what, paper, of, other.scores.convention, rival)
