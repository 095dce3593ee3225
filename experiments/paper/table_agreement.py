"""Spearman correlation between accuracies, and with the older table's (Table 1)."""

from collections.abc import Iterator
from itertools import chain, combinations

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.plotting import COLUMN
from experiments.study import (
    DATASET,
    MEANS,
    RESAMPLES,
    Finding,
    Outcome,
    Study,
    bootstrap,
    interval,
    verdict,
)
from ntkscore.analysis.agreement import agreement

METRICS = {"Clean": "clean", "PGD": "pgd_8", "FGSM": "fgsm_8"}
OLDER_METRICS = {"Clean*": "clean", "PGD*": "pgd", "FGSM*": "fgsm"}

UNSURE = ("PGD*", "FGSM*")
"""Columns of which the older table's page does not say the radius."""
_ROWS = (
    (0.985, 0.989, 0.977, 0.313, 0.898),
    (0.998, 0.970, 0.382, 0.937),
    (0.974, 0.371, 0.931),
    (0.322, 0.891),
    (0.487,),
)
PAPER = dict(zip(combinations((*METRICS, *OLDER_METRICS), 2), chain(*_ROWS), strict=True))
"""The paper's column: Table 1 above its diagonal."""


def accuracies(study: Study) -> pd.DataFrame:
    """Accuracies of cells with results of their own; the older table's have an asterisk."""
    cells = study.table.own
    newer = {k: study.accuracy(cells, m) for k, m in METRICS.items()}
    older = {k: study.older.accuracies(DATASET, m, cells) for k, m in OLDER_METRICS.items()}
    return pd.DataFrame(newer | older, index=pd.Index(cells, name="cell"))


def pairs(columns: pd.DataFrame, seed: int) -> Iterator[dict[str, object]]:
    """Spearman of every pair of columns with a 95 % interval over functions, and the paper's."""
    for (first, second), paper in PAPER.items():
        result = agreement(columns[first], columns[second], **bootstrap(columns.index, seed))
        yield {
            "first": first,
            "second": second,
            "cells": result.n,
            "spearman": result.spearman,
            "low": result.spearman_low,
            "high": result.spearman_high,
            "paper": paper,
            "three_digits": round(result.spearman, 3) == paper,
        }


def draw(frame: pd.DataFrame) -> Figure:
    """Matrix of coefficients, with our value above the paper's in each field."""
    names = [*METRICS, *OLDER_METRICS]
    place = {name: i for i, name in enumerate(names)}
    ours = np.eye(len(names))
    figure, axis = plt.subplots(figsize=(COLUMN, 0.92 * COLUMN))
    for row in frame.to_dict("records"):
        i, j = place[row["first"]], place[row["second"]]
        ours[i, j] = ours[j, i] = row["spearman"]
        for x, y in ((i, j), (j, i)):
            colour = "white" if row["spearman"] < 0.5 else "black"
            text = f"{row['spearman']:.3f}\n({row['paper']:.3f})"
            axis.text(x, y, text, ha="center", va="center", fontsize=7, color=colour)
    axis.imshow(ours, cmap="cividis", vmin=0, vmax=1)
    axis.set_xticks(range(len(names)), names)
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_title("Spearman, in brackets the paper's")
    return figure


def findings(frame: pd.DataFrame) -> Iterator[Finding]:
    """Findings for the correlations of Table 1."""
    for row in frame.to_dict("records"):
        unsure = row["first"] in UNSURE or row["second"] in UNSURE
        yield Finding(
            f"Spearman of {row['first']} with {row['second']}",
            f"{row['paper']:.3f}",
            interval(row["spearman"], row["low"], row["high"]),
            "not decidable" if unsure else verdict(row["three_digits"]),
            "radius of the older table's column unknown" if unsure else "three digits",
        )


def run(study: Study) -> Outcome:
    """Table 1 on CIFAR-10, over the cells with results of their own."""
    columns = accuracies(study)
    frame = pd.DataFrame(pairs(columns, study.seed))
    sure = frame[~frame["first"].isin(UNSURE) & ~frame["second"].isin(UNSURE)]
    remarks = (
        f"{sure['three_digits'].sum()} of {len(sure)} correlations between Clean, PGD, FGSM and "
        "Clean* agree with the paper to three digits.",
        "The older table's page does not say which radius its PGD and FGSM columns have; the paper "
        "uses 8/255. Networks that were trained without attacks reach "
        f"{columns['PGD*'].max():.3f} and {columns['FGSM*'].max():.3f} there, too much for 8/255, "
        "so the two columns cannot be compared with the paper's.",
        MEANS,
    )
    configuration = {
        "table": study.table.name,
        "older": study.older.name,
        "dataset": DATASET,
        "resamples": RESAMPLES,
    }
    return Outcome(frame, draw(frame), configuration, remarks, (*findings(frame),))
