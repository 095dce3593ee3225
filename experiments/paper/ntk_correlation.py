"""Correlation of kernel scores with accuracies (Figures 5 and 6), and the paper's three findings.

`--results RUN`, once for each run, takes folders that `ntkscore score` wrote in place of our
recordings: a panel for each convention and fidelity, FGSM beside PGD where there are both.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.data import BENCHMARK, KERNELS, METRIC, METRICS, SPACE
from experiments.frame import Claim, Stronger, Study
from experiments.paper.contrasts import (
    NOTABLE,
    SEEDS,
    by_seed,
    coefficients,
    interval,
    intervals,
    reach,
    sure_interval,
)
from experiments.plotting import annotate, beside, grey_band, metric_label
from experiments.recordings import FINDINGS
from ntkscore.analysis.frames import cost_table

ABOVE_CLEAN = "attacked kernels correlate more than the clean one"
FGSM_ABOVE_PGD = "FGSM kernels correlate more than PGD kernels"
GROWS = "the correlation grows with the metric's radius"
PRINTED = {ABOVE_CLEAN: "above", FGSM_ABOVE_PGD: "above", GROWS: "grows"}
BY_RADIUS = ("val_acc", "val_pgd_3_acc", "val_pgd_8_acc")
SHADES = "black", "#56B4E9", "#0072B2", "#E69F00", "#D55E00"
"""Of the metrics: light for FGSM, blue for 3/255."""


class Kernel(NamedTuple):
    """A kernel by the images that it is of; the parameter count stands beside the kernels."""

    attack: str
    rho: float
    kernel: str

    def __str__(self) -> str:
        level = f"{'2' * (self.kernel == 'twice')}ρ={255 * self.rho:.3g}"
        return level if self.rho else self.kernel


CLEAN, PARAMS = Kernel("none", 0.0, "clean"), Kernel("none", 0.0, "params")


def panel_of(rows: pd.DataFrame) -> str:
    """Convention and fidelity of a run."""
    first = rows.iloc[0]
    init = "" if first["init"] == "torch" else f", {first['init']}"
    fidelity = f"{first['samples']} images, C = {first['channels']}"
    return f"{first['bn']}, {first['output']}{init} ({fidelity})"


def scores_of(rows: pd.DataFrame, score: str) -> pd.DataFrame:
    """A score by cell, kernel and seed, and the parameter count."""
    rows = rows[(rows["score"] == score) & rows["kernel"].isin(KERNELS)].astype({"attack": str})
    clean = rows["kernel"] == "clean"
    rows = rows.assign(
        attack=rows["attack"].mask(clean, CLEAN.attack), rho=rows["rho"].mask(clean, CLEAN.rho)
    )
    scores = by_seed(rows, *Kernel._fields)
    params = cost_table(scores.index, SPACE)["params"]
    for seed in scores.columns.unique("seed"):
        scores[(*PARAMS, seed)] = params
    return scores


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """Coefficients by kernel and metric, those less the clean kernel's, and the three findings."""
    panels: dict[str, list[pd.DataFrame]] = {}
    for run in at.runs:
        rows = at.data.rows(run)
        panels.setdefault(panel_of(rows), []).append(rows)
    for panel, parts in panels.items():
        scores = scores_of(pd.concat(parts, ignore_index=True), at.score)
        about = {"panel": panel, "cells": len(scores)}
        found: dict[str, dict[Kernel, np.ndarray]] = {}
        for metric in dict.fromkeys((*at.metrics, *BY_RADIUS, METRIC)):
            samples = coefficients(scores, at.data.accuracy(scores.index, metric))
            found[metric] = {Kernel(*name): values for name, values in samples.items()}
            for kernel, values in found[metric].items():
                named = about | {"metric": metric} | kernel._asdict()
                yield named | {"what": "spearman"} | interval(values)._asdict()
                less = sure_interval(values - found[metric][CLEAN])
                yield named | {"what": "less clean"} | less._asdict()
        seeds = scores.columns.unique("seed").size
        for what, values in findings(found) if seeds >= SEEDS else ():
            yield about | {"what": what} | sure_interval(values)._asdict()


def findings(
    found: Mapping[str, Mapping[Kernel, np.ndarray]],
) -> Iterator[tuple[str, np.ndarray]]:
    """The paper's findings as differences of coefficients with PGD 8/255 accuracy.

    Each is the mean over attacked kernels, at images attacked once and twice, at all radii: over
    those of both attacks; over pairs that differ in the attack alone; for each step of the metric's
    radius, 0 to 3/255 to 8/255, over those of both attacks.
    """
    judged = found[METRIC]
    attacked = [kernel for kernel in judged if kernel.rho]
    pairs = [(kernel, kernel._replace(attack="pgd")) for kernel in attacked]
    pairs = [(f, p) for f, p in pairs if f.attack == "fgsm" and p in judged]
    yield ABOVE_CLEAN, np.mean([judged[kernel] - judged[CLEAN] for kernel in attacked], axis=0)
    if pairs:
        yield FGSM_ABOVE_PGD, np.mean([judged[f] - judged[p] for f, p in pairs], axis=0)
    for less, more in pairwise(BY_RADIUS):
        yield GROWS, np.mean([found[more][k] - found[less][k] for k in attacked], axis=0)


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """The findings, a row for each convention; the last in two steps of the radius."""
    for what, printed in PRINTED.items():
        for panel, part in frame[frame["what"] == what].groupby("panel", sort=False):
            yield Claim(f"{panel}: {what}", printed, intervals(part), Stronger(NOTABLE))


def kernels_of(rows: pd.DataFrame) -> list[Kernel]:
    """The kernel of each row."""
    return [*map(Kernel._make, rows[[*Kernel._fields]].to_numpy())]


def figure(frame: pd.DataFrame) -> Figure:
    """By kernel, coefficients with each accuracy; below, by how much they exceed the clean one's.

    Where a run has both attacks, those above are of kernels at images under PGD.
    """
    rows = frame.dropna(subset="kernel").sort_values(["rho", "kernel"], kind="stable")
    rows = rows.assign(place=[*map(str, kernels_of(rows))], label=rows["metric"].map(metric_label))
    less = rows[(rows["what"] == "less clean") & (rows["metric"] == METRIC) & (rows["rho"] > 0)]
    less = less.assign(label="kernel under " + less["attack"].str.upper())
    panels = rows[rows["what"] == "spearman"].groupby("panel", sort=False)
    shape: dict[str, Any] = {"sharex": "col", "sharey": "row", "height_ratios": (2, 1)}
    figure, axes = plt.subplots(2, len(panels), figsize=(7, 4), squeeze=False, **shape)
    for (above, below), (panel, part) in zip(axes.T, panels, strict=True):
        convention, _, fidelity = str(panel).partition(" (")
        above.set_title(f"{convention}\n{fidelity[:-1]}\n{part['cells'].iloc[0]:,} cells")
        size = part[(part["kernel"] == PARAMS.kernel) & (part["metric"] == METRIC)]["value"].item()
        above.axhline(size, color="0.5", linestyle="--", linewidth=1, label="parameter count")
        under = less[less["panel"] == panel]
        shown = part[part["attack"].isin([CLEAN.attack, under["attack"].max()])]
        shown = shown[shown["kernel"] != PARAMS.kernel]
        places = list(shown["place"].unique())
        above.set_prop_cycle(color=SHADES)
        below.set_prop_cycle(color=("0.5", SHADES[-1]))
        beside(above, shown, "place", "label", places)
        beside(below, under, "place", "label", places, 0.12)
        grey_band(below, NOTABLE)
    axes[0, 0].set_ylabel("Spearman with accuracy")
    axes[1, 0].set_ylabel(f"less clean,\n{metric_label(METRIC)}")
    axes[1, 0].set_ylim(-reach(less), reach(less))
    annotate(figure, axes[0, 0], "kernel at clean images, or at ρ × 255, attacked twice: 2ρ", 6)
    axes[1, -1].legend(fontsize=6, loc="best")
    return figure


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Coefficients with PGD 8/255 accuracy: a row per kernel, a column per panel."""
    part = frame[(frame["what"] == "spearman") & (frame["metric"] == METRIC)]
    names = [f"{k.attack.upper()} {k}" if k.rho else str(k) for k in kernels_of(part)]
    named = part.assign(found=intervals(part), kernel=names)
    wide = named.pivot(index="kernel", columns="panel", values="found")
    return wide.loc[list(dict.fromkeys(names))].reset_index()


NTK_CORRELATION = Study(
    "Spearman of kernel scores with accuracies (Figures 5 and 6)",
    measure,
    fixed={"runs": tuple(FINDINGS), "score": "frobenius", "metrics": METRICS[:-1]},
    claims=claims,
    figure=figure,
    table=table,
    note="The NTK-score is the Frobenius norm; above, its kernels are at images under PGD. "
    "Intervals of differences hold every seed's own; fewer than three seeds, as ours at 50 "
    "images, decide nothing. The last finding is in part "
    "one of the table: the parameter count's coefficient grows as well.",
    needs=(BENCHMARK,),
)
