"""Joint kernels over β and ρ: K_all with clean accuracy, K̃_all with every robust accuracy.

A seeded sample of the table's cells.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.ntk_correlation import METRICS
from experiments.study import Outcome, Study
from experiments.style import COLUMN, metric_label, score_label
from ntkscore.config import format_rho
from ntkscore.selection import score_table

DATASET = "cifar10"
RECORDING = "radii"
SCORES = ("frobenius", "trace", "lambda_min")
KERNEL_OF = {metric: "joint_robust" for metric in METRICS} | {"val_acc": "joint_clean"}
"""Equation 4 is about clean accuracy, equation 5 about robust accuracy."""
LABELS = {"joint_clean": "K_all", "joint_robust": "K̃_all"}
FLAT = 0.01
"""Spearman coefficients so close to the highest count as equal to it."""


def surface(study: Study, rows: pd.DataFrame) -> Iterator[dict[str, str | float]]:
    """A line per metric, score, radius and β: the Spearman coefficient.

    Args:
        study: for the accuracies.
        rows: tidy rows with several radii and β.
    """
    for rho, part in rows.groupby("rho"):
        scores = score_table(part).dropna()
        cells = list(scores.index)
        for metric, kernel in KERNEL_OF.items():
            accuracy = pd.Series(study.table.accuracies(DATASET, metric, cells), index=cells)
            for beta in sorted(part["beta"].dropna().unique()):
                for score in SCORES:
                    values = scores[f"{kernel}@{beta:g}.{score}"]
                    line = {"metric": metric, "kernel": kernel, "score": score, "rho": rho}
                    line |= {"beta": beta, "cells": len(cells)}
                    yield line | {"spearman": values.corr(accuracy, method="spearman")}


def extent(values: pd.Series, low: float, high: float) -> str:
    """A range of values inside [low, high], as text."""
    if values.min() == low and values.max() == high:
        return "everywhere"
    return f"{values.min():g}" if values.nunique() == 1 else f"{values.min():g} to {values.max():g}"


def peaks(frame: pd.DataFrame) -> pd.DataFrame:
    """Per metric and score: where the highest coefficient is, and the region that equals it.

    Args:
        frame: lines as `surface` gives them.
    """
    lines = []
    for (metric, score), part in frame.groupby(["metric", "score"], sort=False):
        best = part.loc[part["spearman"].idxmax()]
        flat = part[part["spearman"] >= best["spearman"] - FLAT]
        levels = part["rho"] * 255
        lines.append(
            {
                "kernel": LABELS[KERNEL_OF[str(metric)]],
                "accuracy": metric_label(str(metric)),
                "score": score,
                "highest": best["spearman"],
                "at β": f"{best['beta']:g}",
                "at ρ": format_rho(best["rho"]),
                "lowest": part["spearman"].min(),
                "flat": f"{len(flat) / len(part):.0%} of the grid",
                "flat β": extent(flat["beta"], part["beta"].min(), part["beta"].max()),
                "flat ρ × 255": extent(
                    (flat["rho"] * 255).round(), round(levels.min()), round(levels.max())
                ),
            }
        )
    return pd.DataFrame(lines)


def draw(frame: pd.DataFrame) -> Figure:
    """Heat maps: a row per score, a column per metric; a cross at the highest coefficient."""
    figure, axes = plt.subplots(
        len(SCORES),
        len(METRICS),
        figsize=(2.4 * COLUMN, 1.2 * COLUMN),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    reach = frame["spearman"].abs().max()
    images = []
    for line, score in zip(axes, SCORES, strict=True):
        for axis, metric in zip(line, METRICS, strict=True):
            part = frame[(frame["score"] == score) & (frame["metric"] == metric)]
            grid = part.pivot(index="rho", columns="beta", values="spearman")
            images.append(
                axis.imshow(
                    grid, cmap="RdBu", vmin=-reach, vmax=reach, origin="lower", aspect="auto"
                )
            )
            place = np.unravel_index(np.argmax(grid.to_numpy()), grid.shape)
            axis.plot(place[1], place[0], "x", color="black", markersize=5)
            betas = list(grid.columns)
            axis.set_xticks([0, len(betas) // 2, len(betas) - 1])
            axis.set_xticklabels([f"{betas[i]:g}" for i in (0, len(betas) // 2, len(betas) - 1)])
            axis.set_yticks(range(len(grid)), [f"{rho * 255:.0f}" for rho in grid.index])
            if score == SCORES[0]:
                axis.set_title(f"{LABELS[KERNEL_OF[metric]]}, {metric_label(metric)}", fontsize=7)
        line[0].set_ylabel(f"{score_label(score)}\nρ × 255")
    figure.supxlabel("β, weight of adversarial training", fontsize="medium")
    figure.colorbar(images[0], ax=axes, label="Spearman with accuracy", shrink=0.8)
    return figure


def run(study: Study) -> Outcome:
    """The surfaces of the joint kernels' scores over β and ρ."""
    rows = study.rows(RECORDING)
    rows = rows[rows["kernel"].isin(LABELS) & rows["score"].isin(SCORES)]
    frame = pd.DataFrame(surface(study, rows))
    found = peaks(frame)
    remarks = (
        f"{frame['cells'].iloc[0]} cells, seeds {sorted(rows['seed'].unique().tolist())}; a region "
        f"within {FLAT} of the highest coefficient is called flat.",
    )
    configuration = {
        "dataset": DATASET,
        "flat": FLAT,
        "recordings": {RECORDING: study.result_set(RECORDING).configuration},
    }
    return Outcome(frame, draw(frame), configuration, remarks, summary=found)
