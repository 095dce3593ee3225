"""Recorded kernel scores beside accuracies, and contrasts of their correlations."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import pandas as pd

from experiments.contrasts import Contrast, Pair, contrast
from experiments.study import DATASET, KERNELS, Study, count_of, single_seeds
from ntkscore.analysis.frames import pick_rho, score_table
from ntkscore.text import format_rho

NTK_SCORE = "frobenius"
"""The score that the paper calls the NTK-score."""


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
        tables = (score_table(rows) for rows in single_seeds(self.rows).values())
        return [table.reindex(self.means.index) for table in tables]

    @cached_property
    def cells(self) -> pd.Index:
        """The cells whose NTK-scores did not fail with any seed."""
        names = [f"{kernel}.{NTK_SCORE}" for kernel in KERNELS]
        return self.means[names].dropna().index

    def pairs(self, score: str, metric: str, cells: pd.Index) -> list[Pair]:
        """Score and accuracy of some cells: first for the means, then for every seed."""
        accuracy = self.study.table.accuracies(DATASET, metric, list(cells))
        tables = (self.means, *self.by_seed)
        return [Pair(table.loc[cells, score].to_numpy(), accuracy) for table in tables]

    @property
    def attack(self) -> str:
        """Name of the attack."""
        return self.rows["attack"].iloc[0]

    @property
    def convention(self) -> str:
        """Mode of the normalisation and reading of the logits."""
        return f"{self.rows['bn'].iloc[0]}, {self.rows['output'].iloc[0]}"

    @property
    def fidelity(self) -> str:
        """Images and channels."""
        first = self.rows.iloc[0]
        return f"{first['samples']} images, C = {first['channels']}"

    @property
    def title(self) -> str:
        """Attack, radius, number of cells and of seeds."""
        seeds = count_of(len(self.by_seed), "seed")
        return f"{self.attack.upper()} {format_rho(self.rho)}, {len(self.cells):,} cells, {seeds}"


class Correlation(NamedTuple):
    """The correlation of a recorded score with a metric."""

    scores: RecordedScores
    score: str
    metric: str


def compare(first: Correlation, second: Correlation) -> Contrast:
    """The contrast of two correlations with the same seeds, on the cells that both have."""
    cells = first.scores.cells.intersection(second.scores.cells)
    means, *seeds = zip(
        first.scores.pairs(first.score, first.metric, cells),
        second.scores.pairs(second.score, second.metric, cells),
        strict=True,
    )
    return contrast(*means, seeds, first.scores.study.seed)
