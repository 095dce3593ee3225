"""Ways of choosing a cell, side by side: what they found, and at what cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cells import SIZE
from experiments.style import COLOURS, COLUMN, metric_label
from ntkscore.tables import Table

PAPER_METRICS = (
    "val_acc",
    "val_fgsm_3_acc",
    "val_pgd_3_acc",
    "val_fgsm_8_acc",
    "val_pgd_8_acc",
)
"""The columns of Tables 2 and 7."""
ROUNDING = 0.0005 + 1e-9
"""Of the paper's numbers, which have three digits; and of ours, in binary."""


@dataclass(frozen=True)
class Picks:
    """What a way of choosing chose, run by run.

    Attributes:
        guide: name of the accuracy that was looked up, or "".
        method: name of the way.
        cells: the cell that each run chose, shape (runs,).
        queries: distinct cells that each run looked up, shape (runs,).
        found_after: queries after which a run had its choice, shape (runs,).
        seconds: of a run on average, training not counted.
    """

    guide: str
    method: str
    cells: np.ndarray
    queries: np.ndarray
    found_after: np.ndarray
    seconds: float


def space_accuracies(table: Table, dataset: str) -> dict[str, np.ndarray]:
    """The accuracies of every cell of the space by metric, as fractions, each of shape (15625,)."""
    cells = range(SIZE)
    return {metric: table.accuracies(dataset, metric, cells) for metric in table.metrics(dataset)}


def summary(
    picks: Sequence[Picks],
    accuracies: Mapping[str, np.ndarray],
    paper: Mapping[tuple[str, str], Mapping[str, float]],
) -> pd.DataFrame:
    """A line per way of choosing and metric.

    Columns: mean over the runs, `low` and `high` that hold 95 % of the runs, the mean's standard
    error, the number of runs, mean queries, mean queries until found, seconds of a run, the
    paper's mean, and whether this lies between `low` and `high` (up to its rounding).

    Args:
        picks: what was chosen.
        accuracies: of every cell by metric, as fractions.
        paper: the paper's numbers, by guide and method, then by metric.
    """
    lines = []
    for pick in picks:
        known = paper.get((pick.guide, pick.method), {})
        for metric, accuracy in accuracies.items():
            found, runs = accuracy[pick.cells], len(pick.cells)
            low, high = np.quantile(found, [0.025, 0.975])
            error = found.std(ddof=1) / runs**0.5 if runs > 1 else float("nan")
            line = {"guide": pick.guide, "method": pick.method, "metric": metric}
            line |= {"mean": found.mean(), "low": low, "high": high, "standard_error": error}
            line |= {"runs": runs, "queries": pick.queries.mean()}
            line |= {"found_after": pick.found_after.mean(), "seconds": pick.seconds}
            lines.append(line | {"paper": known.get(metric, float("nan"))})
    frame = pd.DataFrame(lines)
    inside = frame["paper"].between(frame["low"] - ROUNDING, frame["high"] + ROUNDING)
    return frame.assign(within=inside.astype(object).where(frame["paper"].notna()))


def draw(frame: pd.DataFrame, metrics: Sequence[str], dataset: str) -> Figure:
    """A panel per metric: mean and 95 % of the runs, by method and guide; crosses: the paper.

    Args:
        frame: as `summary` gives it.
        metrics: one for each panel.
        dataset: what the axis calls the data set.
    """
    methods = list(dict.fromkeys(frame["method"]))
    guides = [guide for guide in dict.fromkeys(frame["guide"]) if guide]
    figure, axes = plt.subplots(
        1, len(metrics), figsize=(1.5 * COLUMN, 1 + 0.3 * len(methods)), sharey=True, squeeze=False
    )
    for axis, metric in zip(axes[0], metrics, strict=True):
        for line in frame[frame["metric"] == metric].to_dict("records"):
            place, colour = methods.index(line["method"]), "black"
            if line["guide"]:
                order = guides.index(line["guide"])
                place, colour = place + 0.25 * (order - (len(guides) - 1) / 2), COLOURS[order]
            axis.plot([line["low"], line["high"]], [place, place], color=colour, linewidth=1.5)
            axis.plot(line["mean"], place, "o", color=colour, markersize=4)
            axis.plot(line["paper"], place, "x", color="black", markersize=4)
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
