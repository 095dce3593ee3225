"""The same scores under other conventions: which matter, and which flip the sign.

Every BN mode, output, parameter set and initialiser alone against the default, BN mode and
initialiser together, and presets named after what they reproduce. A seeded sample of cells.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.contrasts import Pair, contrast
from experiments.recordings import CONVENTIONS, PRESETS
from experiments.study import Outcome, Study
from experiments.style import COLOURS, COLUMN, metric_label, score_label
from ntkscore.agreement import Agreement, agreement
from ntkscore.ranking import direction_of
from ntkscore.selection import score_table

DATASET = "cifar10"
METRIC = "val_pgd_8_acc"
BASE, SMALL_BASE = "default", "small"
"""What a convention is compared with; those recorded at the small fidelity with the latter."""
SCORES = (
    "clean.frobenius",
    "robust.frobenius",
    "robust.lambda_min",
    "robust.lambda_min_normalized",
    "clean.condition",
)
CHOICES = ("init", "bn", "output", "parameters", "attack")
SHIFT = 0.05
"""Spearman: a change whose interval lies beyond this matters."""


def short(name: str) -> str:
    """Of a recording: what is different in it."""
    return name.removeprefix("conventions/")


def _sign(found: Agreement) -> int:
    """Of a correlation, 0 where its interval holds both."""
    return int(np.sign(found.spearman_low) + np.sign(found.spearman_high)) // 2


def compare(study: Study) -> Iterator[dict[str, Any]]:
    """A line per convention and score: its correlation, and by how much the default's differs."""
    bases = {name: score_table(study.rows(f"conventions/{name}")) for name in (BASE, SMALL_BASE)}
    for name in CONVENTIONS:
        base = bases[SMALL_BASE if short(name).startswith(SMALL_BASE) else BASE]
        configuration = study.result_set(name).configuration
        scores = score_table(study.rows(name))
        for score in SCORES:
            both = pd.concat([scores[score], base[score]], axis=1).dropna()
            cells = [int(cell) for cell in both.index]
            accuracy = study.table.accuracies(DATASET, METRIC, cells)
            line = {"convention": short(name), "preset": short(name) in PRESETS}
            line |= {key: configuration[key] for key in CHOICES}
            line |= {"score": score, "cells": len(cells)}
            line |= {"failed": int(scores[score].isna().sum())}
            if len(cells) < 3:
                yield line
                continue
            values, usual = both.to_numpy().T
            found = agreement(values, accuracy, direction_of(score), seed=study.seed)
            gap = contrast(Pair(values, accuracy), Pair(usual, accuracy), seed=study.seed)
            line |= {"spearman": found.spearman, "low": found.spearman_low}
            line |= {"high": found.spearman_high, "change": gap.value}
            line |= {"change_low": gap.low, "change_high": gap.high}
            before = agreement(usual, accuracy, direction_of(score), seed=study.seed)
            line |= {"flips": _sign(found) * _sign(before) < 0}
            yield line | {"matters": bool(gap.low > SHIFT or gap.high < -SHIFT)}


def draw(frame: pd.DataFrame) -> Figure:
    """A panel per score, a line per convention: coefficient and interval; crosses flip the sign."""
    names = list(dict.fromkeys(frame["convention"]))
    figure, axes = plt.subplots(
        1, len(SCORES), figsize=(2.4 * COLUMN, 0.4 + 0.16 * len(names)), sharey=True
    )
    for axis, score in zip(axes, SCORES, strict=True):
        part = frame[frame["score"] == score].set_index("convention").loc[names]
        usual = part.loc[BASE, "spearman"]
        axis.axvline(0, color="0.8", linewidth=0.8)
        axis.axvline(usual, color=COLOURS[2], linewidth=0.8, linestyle=":")
        for place, line in enumerate(part.itertuples()):
            colour = COLOURS[1] if line.flips else COLOURS[0] if line.matters else "0.55"
            axis.plot([line.low, line.high], [place, place], color=colour, linewidth=1)
            marker = "x" if line.flips else "o"
            axis.plot(line.spearman, place, marker, color=colour, markersize=4)
        axis.set_title(score_label(score), fontsize=7)
        axis.set_xlim(-1, 1)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.supxlabel(f"Spearman with {metric_label(METRIC)} accuracy", fontsize="medium")
    return figure


def remarks(frame: pd.DataFrame) -> Iterator[str]:
    """What matters and what flips, score by score."""
    yield (
        f"{frame['cells'].max()} cells, one seed. Orange crosses flip the sign of the default's "
        f"correlation (neither interval holds 0); blue ones change it by more than {SHIFT} beyond "
        "doubt; grey ones do not. "
        "What a preset's source leaves open is as in the default: for knas, hnas and paper that "
        "is the BN mode. Names with small: 8 images, C = 4, one cell per stage, because the kernel "
        "of coupled images is slow; these are compared with `small`, not with the default."
    )
    for score in SCORES:
        part = frame[frame["score"] == score]
        usual, small = (
            part.loc[part["convention"] == base, "spearman"].item() for base in (BASE, SMALL_BASE)
        )
        flips = part[part["flips"].fillna(False).astype(bool)]
        matters = part[part["matters"].fillna(False).astype(bool) & ~part.index.isin(flips.index)]

        def listed(lines: pd.DataFrame) -> str:
            pairs = zip(lines["convention"], lines["spearman"], strict=True)
            return ", ".join(f"{name} ({value:+.2f})" for name, value in pairs) or "none"

        yield (
            f"{score}, default {usual:+.2f}, small {small:+.2f}: flipped by {listed(flips)}; "
            f"moved by {listed(matters)}."
        )
    failed = frame[frame["failed"] > 0]
    for line in failed.itertuples():
        yield f"{line.convention}, {line.score}: {line.failed} cells without a score."


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A line per convention: its choices, and every score's correlation."""
    wide = frame.pivot(index=["convention", *CHOICES], columns="score", values="spearman")
    order = list(dict.fromkeys(frame["convention"]))
    return wide[list(SCORES)].reset_index().set_index("convention").loc[order].reset_index()


def run(study: Study) -> Outcome:
    """Compare conventions on one sample of cells."""
    frame = pd.DataFrame(compare(study))
    configuration = {
        "dataset": DATASET,
        "metric": METRIC,
        "recordings": study.configurations(CONVENTIONS),
    }
    return Outcome(frame, draw(frame), configuration, tuple(remarks(frame)), summary=summary(frame))
