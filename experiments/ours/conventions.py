"""The same scores under other conventions: which matter, and which flip the sign.

Every BN mode, output, parameter set and initialiser alone against the default, BN mode and
initialiser together, and presets named after what they reproduce. A seeded sample of cells.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.plotting import COLOURS, COLUMN, metric_label, score_label
from experiments.recordings import CONVENTIONS, PRESETS
from experiments.study import DATASET, METRIC, Outcome, Study, bootstrap
from ntkscore.analysis.agreement import Agreement, agreement
from ntkscore.analysis.frames import score_table
from ntkscore.analysis.paired import difference
from ntkscore.measures.declaration import direction_of

BASE, TINY_BASE = "default", "tiny"
"""The conventions that others are compared with, at the moderate and at the tiny fidelity."""
SCORES = (
    "clean.frobenius",
    "robust.frobenius",
    "robust.lambda_min",
    "robust.lambda_min_normalized",
    "clean.condition",
)
CHOICES = ("init", "bn", "output", "parameters", "attack")
SHIFT = 0.05
"""Change of a Spearman coefficient that matters if the whole interval lies beyond."""


def _sign(result: Agreement) -> int:
    """Sign of the correlation; 0 if its interval contains both signs."""
    return int(np.sign(result.spearman_low) + np.sign(result.spearman_high)) // 2


def compare(study: Study) -> Iterator[dict[str, object]]:
    """Correlations, and their changes against the default, a row per convention and score."""
    bases = {name: score_table(study.rows(f"conventions/{name}")) for name in (BASE, TINY_BASE)}
    for recording in CONVENTIONS:
        convention = recording.removeprefix("conventions/")
        base = bases[TINY_BASE if convention.startswith(TINY_BASE) else BASE]
        configuration = study.result_set(recording).configuration
        scores = score_table(study.rows(recording))
        for score in SCORES:
            both = pd.concat([scores[score], base[score]], axis=1).dropna()
            accuracy = study.accuracy(both.index)
            yield {
                "convention": convention,
                "preset": convention in PRESETS,
                **{key: configuration[key] for key in CHOICES},
                "score": score,
                "cells": len(both),
                "failed": int(scores[score].isna().sum()),
                **change(both, accuracy, direction_of(score), study.seed),
            }


def change(
    both: pd.DataFrame, accuracy: np.ndarray, direction: int, seed: int
) -> dict[str, object]:
    """Correlation of a score, and its change from the usual one, as entries of a row.

    Args:
        both: the score and the usual one, a row per cell; nothing for fewer than three.
        accuracy: of the same cells.
        direction: of the score.
        seed: random seed of the bootstrap.
    """
    if len(both) < 3:
        return {}
    (values, usual), how = both.to_numpy().T, bootstrap(both.index, seed)
    result, before = (agreement(of, accuracy, direction, **how) for of in (values, usual))
    gap = difference(values, usual, accuracy, **how)
    return {
        "spearman": result.spearman,
        "low": result.spearman_low,
        "high": result.spearman_high,
        "change": gap.value,
        "change_low": gap.low,
        "change_high": gap.high,
        "flips": _sign(result) * _sign(before) < 0,
        "matters": bool(gap.low > SHIFT or gap.high < -SHIFT),
    }


def draw(frame: pd.DataFrame) -> Figure:
    """A panel per score: coefficients and intervals by convention; crosses flip the sign."""
    names = list(dict.fromkeys(frame["convention"]))
    figure, axes = plt.subplots(
        1, len(SCORES), figsize=(2.4 * COLUMN, 0.4 + 0.16 * len(names)), sharey=True
    )
    for axis, score in zip(axes, SCORES, strict=True):
        part = frame[frame["score"] == score].set_index("convention").loc[names]
        usual = part.loc[BASE, "spearman"]
        axis.axvline(0, color="0.8", linewidth=0.8)
        axis.axvline(usual, color=COLOURS[2], linewidth=0.8, linestyle=":")
        for place, row in enumerate(part.itertuples()):
            colour = COLOURS[1] if row.flips else COLOURS[0] if row.matters else "0.55"
            axis.plot([row.low, row.high], [place, place], color=colour, linewidth=1)
            marker = "x" if row.flips else "o"
            axis.plot(row.spearman, place, marker, color=colour, markersize=4)
        axis.set_title(score_label(score), fontsize=7)
        axis.set_xlim(-1, 1)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.supxlabel(f"Spearman with {metric_label(METRIC)} accuracy", fontsize="medium")
    return figure


def remarks(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the conventions that flip or move a correlation, score by score."""
    yield (
        f"{frame['cells'].max()} cells, one seed. Orange crosses flip the sign of the default's "
        f"correlation (neither interval holds 0); blue ones change it by more than {SHIFT} beyond "
        "doubt; grey ones do not. "
        "Presets have what their sources' code does, one image at a time with its own statistics "
        "for knas and paper; what a source leaves open is as in the default: for hnas the BN mode. "
        "Names with tiny: 8 images, C = 4, one cell per stage, because the kernel "
        "of coupled images is slow; these are compared with `tiny`, not with the default."
    )
    for score in SCORES:
        part = frame[frame["score"] == score]
        usual, tiny = (
            part.loc[part["convention"] == base, "spearman"].item() for base in (BASE, TINY_BASE)
        )
        flips = part[part["flips"].fillna(False).astype(bool)]
        matters = part[part["matters"].fillna(False).astype(bool) & ~part.index.isin(flips.index)]
        yield (
            f"{score}, default {usual:+.2f}, tiny {tiny:+.2f}: flipped by {names_of(flips)}; "
            f"moved by {names_of(matters)}."
        )
    for row in frame[frame["failed"] > 0].itertuples():
        yield f"{row.convention}, {row.score}: {row.failed} cells without a score."


def names_of(rows: pd.DataFrame) -> str:
    """Conventions with their coefficients, or "none"."""
    pairs = zip(rows["convention"], rows["spearman"], strict=True)
    return ", ".join(f"{name} ({value:+.2f})" for name, value in pairs) or "none"


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Choices and every score's correlation, a row per convention."""
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
