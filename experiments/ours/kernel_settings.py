"""Kernels at every recorded β, radius, fidelity and convention, beside counts.

A setting is a recording, a radius, a kernel (with its β) and a score. Settings of the same cells
are compared with each other and with `REFERENCES`, measures of `space` on these cells. The best of
many settings is better by chance, so one half of the cells chooses and the other half tests. Cells
of one function stand together, so that the cut parts one function at most.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.ours.equal_counts import (
    GROUPINGS,
    contrast_of,
    pairs_of,
    partials,
    taus,
    with_interval,
)
from experiments.ours.measures import HELD_EQUAL
from experiments.paper.contrasts import Contrast
from experiments.recordings import CONVENTIONS, FIDELITIES, FINDINGS, HE_FAN_OUT
from experiments.study import KERNELS, Study, functions_of, shuffled, single_seeds
from ntkscore.analysis.frames import score_table
from ntkscore.kernels.joint import JOINT
from ntkscore.measures.declaration import direction_of
from ntkscore.text import format_rho

SHAPE = "lambda_min_normalized"
KERNEL = f"clean.{SHAPE}"
SCORES = ("frobenius", "trace", "lambda_min", SHAPE, "effective_rank")
REFERENCES = (KERNEL, "clean.naswot", "clean.jacov", "robust.expressivity", "clean.vkdnw")
"""Measures of `space`: the kernel's that the tables name first, and some that need no kernel."""
SAMPLES = {
    "all β": ("space",),
    "all β and ρ": ("radii",),
    "8 images, C = 16": tuple(name for name in FINDINGS if HE_FAN_OUT not in name),
    "small fidelity": ("signs",),
    "conventions": tuple(CONVENTIONS),
    "fidelities": tuple(FIDELITIES),
}
"""Recordings of the same cells, by what varies in them."""
ENOUGH = 500
"""Cells that halves are cut from; fewer tell nothing."""
BETA = 1.0
"""Weight of adversarial training in the benchmark's published code (`docs/training.md`)."""
RESAMPLES = 200


class Settings(NamedTuple):
    """Settings of the same cells.

    Attributes:
        tables: a row per cell, a column per setting, larger for a better cell; first means over
            the seeds, then every seed alone.
        references: `REFERENCES` of the same cells, in the same way.
        counts: what is held equal.
        accuracy: of the same cells.
    """

    tables: list[pd.DataFrame]
    references: list[pd.DataFrame]
    counts: pd.DataFrame
    accuracy: np.ndarray

    def partials(self, cells: np.ndarray, resamples: int, seed: int, place: int = 0) -> np.ndarray:
        """Partial coefficients on some cells: of all settings, then of all references."""
        values = np.hstack([of[place].to_numpy()[cells] for of in (self.references, self.tables)])
        given, functions = self.counts.to_numpy()[cells], functions_of(self.counts.index[cells])
        return partials(values, self.accuracy[cells], given, resamples, seed, functions)


def with_shape(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, and N·λ_min/trace of joint kernels, which is recorded for the others alone."""
    joint = rows[rows["kernel"].isin(JOINT)]
    keys = ["cell", "seed", "rho", "kernel", "beta"]
    by_score = joint.pivot_table("value", keys, "score", dropna=False)
    shape = by_score["lambda_min"] / by_score["trace"]
    known = rows[~(rows["kernel"].isin(JOINT) & (rows["score"] == SHAPE))]
    return pd.concat([known, shape.rename("value").reset_index().assign(score=SHAPE)])


def settings_of(rows: pd.DataFrame, label: str) -> pd.DataFrame:
    """Scores of kernels, larger for a better cell: a row per cell, a column per setting."""
    found = []
    for rho, part in rows.groupby("rho"):
        table = score_table(part)
        table = table.mul([direction_of(str(name)) or 1 for name in table])
        found.append(table.add_prefix(f"{label} {format_rho(float(str(rho)))} "))
    return pd.concat(found, axis=1)


def read(study: Study, recordings: Sequence[str], measured: Sequence[pd.DataFrame]) -> Settings:
    """The settings of some recordings, with the cells that all of them have scores for.

    Args:
        study: recordings and table.
        recordings: their names.
        measured: all measures of `space`, first means over the seeds, then of every seed alone.
    """
    # Joint kernels at β = 0 and 1 are the others.
    kernels = [*JOINT] if {*recordings} <= {"space", "radii"} else [*KERNELS, *JOINT]
    by_place: list[list[pd.DataFrame]] = []
    for recording in recordings:
        rows = study.rows(recording)
        rows = rows[rows["score"].isin(SCORES) & rows["kernel"].isin(kernels)]
        rows = with_shape(rows)
        seeds = single_seeds(rows)
        alone = seeds if len(seeds) > 1 else []
        by_place.append([settings_of(part, recording) for part in (rows, *alone)])
    tables = [pd.concat(parts, axis=1) for parts in zip(*by_place, strict=True)]
    references = measured if len(tables) > 1 else measured[1:2]  # one seed beside the same seed
    cells = tables[0].dropna().index.intersection(measured[0][list(REFERENCES)].dropna().index)
    return Settings(
        [table.loc[cells] for table in tables],
        [table.loc[cells, list(REFERENCES)] for table in references],
        measured[0].loc[cells, list(HELD_EQUAL)],
        study.accuracy(cells),
    )


def examine(found: Settings, sample: str, seed: int) -> Iterator[dict[str, object]]:
    """A row for each setting: partial coefficient beside counts, and τ within equal counts.

    `gain` is the coefficient less that of `KERNEL` in `space`, on the same cells.
    """
    names = [*REFERENCES, *found.tables[0]]
    of = found.partials(np.arange(len(found.accuracy)), RESAMPLES, seed)
    pairs = {g: pairs_of(found.counts, terms, RESAMPLES, seed) for g, terms in GROUPINGS.items()}
    values = np.hstack([found.references[0].to_numpy(), found.tables[0].to_numpy()]).T
    for place, name in enumerate(names):
        row: dict[str, object] = {"sample": sample, "setting": name, "cells": len(found.accuracy)}
        for column, numbers in (("beside", of[:, place]), ("gain", of[:, place] - of[:, 0])):
            ends = (column, f"{column}_low", f"{column}_high")
            row |= zip(ends, with_interval(numbers), strict=True)
        for grouping, groups in pairs.items():
            tau = with_interval(taus(values[place], found.accuracy, groups))
            row |= zip((f"{grouping}{end}" for end in ("", ": low", ": high")), tau, strict=True)
            row[f"{grouping}: pairs"] = len(groups.group)
        yield row


def chosen_on_half(found: Settings, seed: int) -> tuple[str, dict[str, Contrast]]:
    """The setting that one half finds best beside counts; on the other, less every reference."""
    cells = shuffled(np.random.default_rng(seed), functions_of(found.counts.index))
    choosing, testing = np.array_split(cells, 2)
    first = len(REFERENCES)
    best = first + int(np.nanargmax(found.partials(choosing, 0, seed)[0, first:]))
    of = found.partials(testing, RESAMPLES, seed)
    alone = [found.partials(testing, 0, seed, k)[0] for k in range(1, len(found.tables))]
    gaps = {
        name: contrast_of(
            of[:, best], of[:, k], [one[best] - one[k] for one in alone], len(testing)
        )
        for k, name in enumerate(REFERENCES)
    }
    return str(found.tables[0].columns[best - first]), gaps


def trained(found: Settings, seed: int) -> Contrast:
    """K̃_all at the β of the benchmark's training, less the clean kernel: beside counts."""
    columns = [
        f"space 8/255 {kernel}.{SHAPE}" for kernel in (f"joint_robust@{BETA:g}", "joint_clean@0")
    ]
    given = found.counts.to_numpy()
    first, *alone = (
        partials(
            one[columns].to_numpy(),
            found.accuracy,
            given,
            0 if place else RESAMPLES,
            seed,
            functions_of(found.counts.index),
        )
        for place, one in enumerate(found.tables)
    )
    by_seed = [one[0, 0] - one[0, 1] for one in alone]
    return contrast_of(first[:, 0], first[:, 1], by_seed, len(found.accuracy))
