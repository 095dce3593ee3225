"""Joint kernels over β and ρ: K_all beside clean accuracy, K̃_all beside every robust one.

A seeded sample of the table's cells; all of them at one radius.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.plotting import COLUMN, metric_label, score_label
from experiments.recordings import JOINT_SCORES
from experiments.study import DATASET, METRICS, Outcome, Study, count_of, single_seeds
from ntkscore.analysis.correlation import spearman
from ntkscore.analysis.frames import score_table

SAMPLE, SPACE = "radii", "space"
SCORES = JOINT_SCORES
KERNEL_OF = {metric: "joint_robust" for metric in METRICS} | {"val_acc": "joint_clean"}
"""Equation 4 is about clean accuracy, equation 5 about robust accuracy."""
TIE = 1e-9
"""Coefficients so close are the same; at β = 0, K_all is the clean kernel whatever the radius."""
LABELS = {"joint_clean": "K_all", "joint_robust": "K̃_all"}
FLAT = 0.015
"""Spearman coefficients so close to the highest count as equal to it: half the standard error of
one over 1,000 cells."""


def surface(study: Study, rows: pd.DataFrame) -> Iterator[dict[str, str | float]]:
    """Spearman coefficients, a row per metric, score, radius and β.

    Cells without a score at some of these are left out of all.
    """
    by_rho = {rho: score_table(part) for rho, part in rows.groupby("rho")}
    cells = pd.concat(by_rho, axis=1).dropna().index
    betas = sorted(rows["beta"].dropna().unique())
    for metric, kernel in KERNEL_OF.items():
        accuracy = study.accuracy(cells, metric)
        for rho, scores in by_rho.items():
            for beta in betas:
                for score in SCORES:
                    values = scores.loc[cells, f"{kernel}@{beta:g}.{score}"]
                    yield {
                        "metric": metric,
                        "kernel": kernel,
                        "score": score,
                        "rho": rho,
                        "beta": beta,
                        "cells": len(cells),
                        "spearman": spearman(values, accuracy),
                    }


def span(part: pd.Series, whole: pd.Series) -> str:
    """The range of a part of some values: "any", a number, or the two ends."""
    if part.nunique() == whole.nunique():
        return "any"
    low, high = part.min(), part.max()
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def peaks(frame: pd.DataFrame) -> pd.DataFrame:
    """The highest coefficient of every metric and score, and the flat region around it."""
    rows = []
    frame = frame.assign(levels=(frame["rho"] * 255).round().astype(int))
    for (metric, score), part in frame.groupby(["metric", "score"], sort=False):
        best = part["spearman"].max()
        highest = part[part["spearman"] > best - TIE]
        flat = part[part["spearman"] >= best - FLAT]
        rows.append(
            {
                "kernel": LABELS[KERNEL_OF[str(metric)]],
                "accuracy": metric_label(str(metric)),
                "score": score,
                "highest": best,
                "lowest": part["spearman"].min(),
                "at β": span(highest["beta"], part["beta"]),
                "at ρ × 255": span(highest["levels"], part["levels"]),
                "flat": f"{len(flat)} of {len(part)} points",
                "flat β": span(flat["beta"], part["beta"]),
                "flat ρ × 255": span(flat["levels"], part["levels"]),
            }
        )
    radii = [] if frame["levels"].nunique() > 1 else ["at ρ × 255", "flat ρ × 255"]
    return pd.DataFrame(rows).drop(columns=radii)


def draw(frame: pd.DataFrame) -> Figure:
    """Heat maps by score and metric; dots mark the flat region around the highest."""
    size = (2.4 * COLUMN, 1.2 * COLUMN)
    figure, axes = plt.subplots(len(SCORES), len(METRICS), figsize=size, sharex=True, sharey=True)
    reach = frame["spearman"].abs().max()
    style: Any = {"cmap": "RdBu", "vmin": -reach, "vmax": reach, "origin": "lower"}
    for row, score in zip(axes, SCORES, strict=True):
        for axis, metric in zip(row, METRICS, strict=True):
            part = frame[(frame["score"] == score) & (frame["metric"] == metric)]
            grid = part.pivot(index="rho", columns="beta", values="spearman")
            image = axis.imshow(grid, aspect="auto", **style)
            flat = np.argwhere(grid.to_numpy() >= grid.to_numpy().max() - FLAT)
            axis.plot(flat[:, 1], flat[:, 0], ".", color="black", markersize=2)
            betas = list(grid.columns)
            places = [0, len(betas) // 2, len(betas) - 1]
            axis.set_xticks(places, [f"{betas[place]:g}" for place in places])
            axis.set_yticks(range(len(grid)), [f"{rho * 255:.0f}" for rho in grid.index])
            if score == SCORES[0]:
                axis.set_title(f"{LABELS[KERNEL_OF[metric]]}, {metric_label(metric)}", fontsize=7)
        row[0].set_ylabel(f"{score_label(score)}\nρ × 255")
    figure.supxlabel("β, weight of adversarial training", fontsize="medium")
    figure.colorbar(image, ax=axes, label="Spearman with accuracy", shrink=0.8)
    return figure


def joint_rows(study: Study, recording: str) -> pd.DataFrame:
    """The rows of the joint kernels."""
    rows = study.rows(recording)
    return rows[rows["kernel"].isin(LABELS) & rows["score"].isin(SCORES)]


def over_the_space(study: Study, rows: pd.DataFrame) -> Iterator[str]:
    """Sentences on the best β at the one radius that all cells have: of means and single seeds."""
    means = peaks(pd.DataFrame(surface(study, rows)))
    alone = [peaks(pd.DataFrame(surface(study, part))) for part in single_seeds(rows)]
    for place, peak in means.iterrows():
        seeds = ", ".join(str(single.loc[place, "at β"]) for single in alone)
        yield (
            f"All cells, {len(alone)} seeds, ρ = 8/255: {peak['kernel']}, {peak['score']}, "
            f"{peak['accuracy']} accuracy: {peak['highest']:.3f} at β = {peak['at β']} (single "
            f"seeds: {seeds}), flat for β {peak['flat β']}, lowest {peak['lowest']:.3f}."
        )


def run(study: Study) -> Outcome:
    """Surfaces of the joint kernels' coefficients over β and ρ."""
    rows, space = joint_rows(study, SAMPLE), joint_rows(study, SPACE)
    frame = pd.DataFrame(surface(study, rows))
    seeds = count_of(len(single_seeds(rows)), "seed")
    remarks = (
        f"Table and figure: {frame['cells'].iloc[0]:,} cells, {seeds}. "
        f"Points within {FLAT} of the highest coefficient count as flat (dots in the figure); "
        "ranges are those that hold all of them.",
        *over_the_space(study, space),
    )
    whole = pd.DataFrame(surface(study, space)).assign(recording=SPACE)
    configuration = {
        "dataset": DATASET,
        "flat": FLAT,
        "recordings": study.configurations((SAMPLE, SPACE)),
    }
    return Outcome(
        pd.concat([frame.assign(recording=SAMPLE), whole], ignore_index=True),
        draw(frame),
        configuration,
        remarks,
        summary=peaks(frame),
    )
