"""Ways of choosing a cell, side by side: accuracy of the choice, and cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cells import SIZE
from experiments.plotting import COLOURS, COLUMN, metric_label
from experiments.study import METRICS
from ntkscore.data.tables import Table

PAPER_METRICS = METRICS[:-1]
"""The columns of Tables 2 and 7, which lack AutoAttack."""
Paper = Mapping[tuple[str, str], Sequence[float]]
ROUNDING = 0.0005 + 1e-9
"""Half a unit in the paper's third digit, plus float error."""


@dataclass(frozen=True)
class Picks:
    """The choices of one way of choosing, run by run.

    Attributes:
        guide: name of the accuracy that was looked up, or "".
        method: name of the way of choosing.
        cells: the cell that each run chose, shape (runs,).
        queries: distinct cells that each run looked up, shape (runs,).
        found_after: queries after which a run had its choice, shape (runs,).
        seconds: mean duration of a run, training not counted.
    """

    guide: str
    method: str
    cells: np.ndarray
    queries: np.ndarray
    found_after: np.ndarray
    seconds: float


def best_of(looked_up: Sequence[np.ndarray], accuracy: np.ndarray) -> dict[str, np.ndarray]:
    """Fields of `Picks`: the most accurate of the cells that each run looked up, in their order."""
    places = np.array([np.argmax(accuracy[cells]) for cells in looked_up])
    return {
        "cells": np.array([cells[k] for cells, k in zip(looked_up, places, strict=True)]),
        "queries": np.array([len(cells) for cells in looked_up]),
        "found_after": 1 + places,
    }


def space_accuracies(table: Table, dataset: str) -> dict[str, np.ndarray]:
    """Accuracies of every cell of the space by metric, as fractions, each of shape (15625,)."""
    cells = range(SIZE)
    return {metric: table.accuracies(dataset, metric, cells) for metric in table.metrics(dataset)}


def summary(
    picks: Sequence[Picks],
    accuracies: Mapping[str, np.ndarray],
    paper: Paper,
) -> pd.DataFrame:
    """Accuracy of the choices, a row per way of choosing and metric.

    Columns: mean over the runs, `low` and `high` that hold 95 % of the runs, the mean's standard
    error, the number of runs, mean queries, mean queries until found, seconds of a run, the
    paper's mean, and whether it is `near` ours: within the 95 % interval of a difference of two
    means that are as uncertain as ours, up to rounding.

    Args:
        picks: choices of every way of choosing.
        accuracies: accuracies of every cell by metric, as fractions.
        paper: the paper's accuracies by guide and method, in the order of `PAPER_METRICS`.
    """
    rows = []
    for pick in picks:
        known = paper.get((pick.guide, pick.method), ())
        paper_means: dict[str, float] = dict(zip(PAPER_METRICS, known, strict=False))
        runs = len(pick.cells)
        for metric, accuracy in accuracies.items():
            chosen = accuracy[pick.cells]
            low, high = np.quantile(chosen, [0.025, 0.975])
            rows.append(
                {
                    "guide": pick.guide,
                    "method": pick.method,
                    "metric": metric,
                    "mean": chosen.mean(),
                    "low": low,
                    "high": high,
                    "standard_error": chosen.std(ddof=1) / runs**0.5 if runs > 1 else np.nan,
                    "runs": runs,
                    "queries": pick.queries.mean(),
                    "found_after": pick.found_after.mean(),
                    "seconds": pick.seconds,
                    "paper": paper_means.get(metric, np.nan),
                }
            )
    frame = pd.DataFrame(rows)
    apart = (frame["mean"] - frame["paper"]).abs()
    near = apart <= 1.96 * 2**0.5 * frame["standard_error"] + ROUNDING
    return frame.assign(
        near=near.astype(object).where(frame[["paper", "standard_error"]].notna().all(axis=1))
    )


def draw(frame: pd.DataFrame, metrics: Sequence[str], dataset: str) -> Figure:
    """A panel per metric: mean and 95 % of the runs, by method and guide; crosses: the paper."""
    methods = list(dict.fromkeys(frame["method"]))
    guides = [guide for guide in dict.fromkeys(frame["guide"]) if guide]
    figure, axes = plt.subplots(
        1, len(metrics), figsize=(1.5 * COLUMN, 1 + 0.3 * len(methods)), sharey=True, squeeze=False
    )
    for axis, metric in zip(axes[0], metrics, strict=True):
        for row in frame[frame["metric"] == metric].to_dict("records"):
            place, colour = methods.index(row["method"]), "black"
            if row["guide"]:
                order = guides.index(row["guide"])
                place, colour = place + 0.25 * (order - (len(guides) - 1) / 2), COLOURS[order]
            axis.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=1.5)
            axis.plot(row["mean"], place, "o", color=colour, markersize=4)
            axis.plot(row["paper"], place, "x", color="black", markersize=4)
        axis.set_title(f"{metric_label(metric)} accuracy")
        axis.locator_params(axis="x", nbins=4)
        axis.margins(x=0.1)
    axes[0, 0].set_yticks(range(len(methods)), methods)
    axes[0, 0].invert_yaxis()
    figure.supxlabel(f"accuracy on {dataset} (fraction)", fontsize="medium")
    colours = COLOURS[: len(guides)]
    dots = [Line2D([], [], color=colour, marker="o", markersize=4) for colour in colours]
    cross = Line2D([], [], color="black", marker="x", markersize=4, linestyle="")
    figure.legend(
        [*dots, cross],
        [*map(metric_label, guides), "paper"],
        title="guided by",
        loc="outside upper center",
        ncols=4,
        handlelength=1.2,
        columnspacing=1,
    )
    return figure
