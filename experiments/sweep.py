"""Joint kernels over β and ρ: K_all with clean accuracy, K̃_all with every robust accuracy.

A seeded sample of the table's cells; all of them at one radius.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.contrasts import single_seeds
from experiments.ntk_correlation import METRICS
from experiments.recordings import JOINT_SCORES
from experiments.study import Outcome, Study
from experiments.style import COLUMN, metric_label, score_label
from ntkscore.selection import score_table

DATASET = "cifar10"
SAMPLE, SPACE = "radii", "space"
SCORES = JOINT_SCORES
KERNEL_OF = {metric: "joint_robust" for metric in METRICS} | {"val_acc": "joint_clean"}
"""Equation 4 is about clean accuracy, equation 5 about robust accuracy."""
TIE = 1e-9
"""At β = 0, K_all is the clean kernel whatever the radius."""
LABELS = {"joint_clean": "K_all", "joint_robust": "K̃_all"}
FLAT = 0.02
"""Spearman coefficients so close to the highest count as equal to it: half the standard error of
one over 448 cells."""
TIE = 1e-9
"""At β = 0, K_all is the clean kernel whatever the radius."""
LABELS = {"joint_clean": "K_all", "joint_robust": "K̃_all"}
FLAT = 0.02
"""Spearman coefficients so close to the highest count as equal to it: about the standard error of
one over 1,000 cells."""


def surface(study: Study, rows: pd.DataFrame) -> Iterator[dict[str, str | float]]:
    """A line per metric, score, radius and β: the Spearman coefficient.

    Args:
        study: for the accuracies.
        rows: tidy rows with several β and perhaps several radii; cells without a score at some
            of them are left out of all.
    """
    by_rho = {rho: score_table(part) for rho, part in rows.groupby("rho")}
    whole = pd.concat(by_rho, axis=1).dropna().index
    cells = [int(cell) for cell in whole]
    for metric, kernel in KERNEL_OF.items():
        accuracy = pd.Series(study.table.accuracies(DATASET, metric, cells), index=whole)
        for rho, scores in by_rho.items():
            for beta in sorted(rows["beta"].dropna().unique()):
                for score in SCORES:
                    values = scores.loc[whole, f"{kernel}@{beta:g}.{score}"]
                    line = {"metric": metric, "kernel": kernel, "score": score, "rho": rho}
                    line |= {"beta": beta, "cells": len(cells)}
                    yield line | {"spearman": values.corr(accuracy, method="spearman")}


def span(found: pd.Series, among: pd.Series) -> str:
    """Which of the values are found: any, one, or between which two they lie."""
    if found.nunique() == among.nunique():
        return "any"
    low, high = found.min(), found.max()
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def peaks(frame: pd.DataFrame) -> pd.DataFrame:
    """Per metric and score: where the highest coefficient is, and the region that equals it.

    Args:
        frame: lines as `surface` gives them.
    """
    lines = []
    frame = frame.assign(levels=(frame["rho"] * 255).round().astype(int))
    for (metric, score), part in frame.groupby(["metric", "score"], sort=False):
        best, lowest = part["spearman"].max(), part["spearman"].min()
        highest = part[part["spearman"] > best - TIE]
        flat = part[part["spearman"] >= best - FLAT]
        line = {"kernel": LABELS[KERNEL_OF[str(metric)]], "accuracy": metric_label(str(metric))}
        line |= {"score": score, "highest": best, "lowest": lowest}
        line |= {"at β": span(highest["beta"], part["beta"])}
        if part["levels"].nunique() > 1:
            line |= {"at ρ × 255": span(highest["levels"], part["levels"])}
        line |= {"flat": f"{len(flat)} of {len(part)} points"}
        line |= {"flat β": span(flat["beta"], part["beta"])}
        if part["levels"].nunique() > 1:
            line |= {"flat ρ × 255": span(flat["levels"], part["levels"])}
        lines.append(line)
    return pd.DataFrame(lines)


def draw(frame: pd.DataFrame) -> Figure:
    """Heat maps: a row per score, a column per metric; dots where it is flat around the highest."""
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
            flat = np.argwhere(grid.to_numpy() >= grid.to_numpy().max() - FLAT)
            axis.plot(flat[:, 1], flat[:, 0], ".", color="black", markersize=2)
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


def joint_rows(study: Study, recording: str) -> pd.DataFrame:
    """The rows of the joint kernels."""
    rows = study.rows(recording)
    return rows[rows["kernel"].isin(LABELS) & rows["score"].isin(SCORES)]


def over_the_space(study: Study, rows: pd.DataFrame) -> Iterator[str]:
    """Where β is best at the one radius that all cells have, for means and for single seeds."""
    found = peaks(pd.DataFrame(surface(study, rows)))
    alone = [peaks(pd.DataFrame(surface(study, part))) for part in single_seeds(rows).values()]
    for place, peak in found.iterrows():
        seeds = ", ".join(str(one.loc[place, "at β"]) for one in alone)
        yield (
            f"All cells, {len(alone)} seeds, ρ = 8/255: {peak['kernel']}, {peak['score']}, "
            f"{peak['accuracy']} accuracy: {peak['highest']:.3f} at β = {peak['at β']} (single "
            f"seeds: {seeds}), flat for β {peak['flat β']}, lowest {peak['lowest']:.3f}."
        )


def run(study: Study) -> Outcome:
    """The surfaces of the joint kernels' scores over β and ρ."""
    rows, space = joint_rows(study, SAMPLE), joint_rows(study, SPACE)
    frame = pd.DataFrame(surface(study, rows))
    seeds = len(single_seeds(rows))
    remarks = (
        f"Table and figure: {frame['cells'].iloc[0]:,} cells, {seeds} seed{'s'[: seeds > 1]}. "
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
