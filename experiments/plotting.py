"""Size, fonts and labels of all figures, and colours that colour-blind readers can tell apart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

from experiments.statistics import mean
from ntkscore.data.benchmarks import metric_name
from ntkscore.data.datasets import DATASETS
from ntkscore.explore.pictures import STYLE

matplotlib.use("agg")
from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator
from numpy.typing import ArrayLike

COLUMN = 3.4
"""Width of a paper's column in inches."""

LABEL_WIDTH = 0.12
"""Least distance of two labels of an axis, as a share of it."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette."""

DATASET_LABELS = {
    name: facts.label for name, facts in DATASETS.items() if facts.source and len(facts.mean) == 3
}

plt.rcParams |= STYLE | {
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.titlesize": "medium",
    "legend.frameon": False,
}


def metric_label(metric: str) -> str:
    """Label of a metric in figures: "PGD 8/255" for `val_pgd_8_acc`."""
    name = metric_name(metric)
    attack, _, levels = name.removeprefix("val_").removesuffix("_acc").rpartition("_")
    others = {"val_acc": "clean", "autoattack": "AutoAttack", "robust_mean": "mean robust"}
    return others.get(name, f"{attack.upper().replace('_', '-')} {levels}/255")


SCORE_LABELS = {
    "frobenius": "Frobenius",
    "lambda_min": "λ_min",
    "lambda_min_normalized": "λ_min/trace",
    "epe_nas": "EPE-NAS",
    "naswot": "NASWOT",
    "synflow": "SynFlow",
    "grad_norm": "GradNorm",
    "snip": "SNIP",
    "zico": "ZiCo",
    "zen": "Zen",
    "fisher_entropy": "Fisher entropy",
    "vkdnw": "VKDNW",
    "fisher": "Fisher",
    "grasp": "GraSP",
    "near": "NEAR",
    "meco": "MeCo",
    "swap": "SWAP",
    "dextr": "Dextr",
    "path_convs": "convolutions on paths",
    "path_pools": "poolings on paths",
    "field": "receptive field",
}


def score_label(name: str) -> str:
    """Label of a score or a sum: "params + clean λ_min" for `params+clean.lambda_min`."""
    terms = [term.rpartition(".") for term in name.split("+")]
    return " + ".join(
        f"{kernel} {SCORE_LABELS.get(score, score.replace('_', ' '))}".strip()
        for kernel, _, score in terms
    )


def panels(count: int, width: float = 1.0, together: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with axes side by side, perhaps with a common vertical one."""
    size = (width * count * COLUMN, 0.9 * COLUMN)
    figure, axes = plt.subplots(1, count, figsize=size, squeeze=False, sharey=together)
    return figure, list(axes[0])


def annotate(figure: Figure, axis: Axes, below: str, columns: int, **style: float) -> None:
    """Write a common horizontal label below a figure, and the legend of one of its axes above."""
    figure.supxlabel(below, fontsize="medium")
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, **style)


def lines(
    axis: Axes,
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str = "",
    label: str = "{}",
    log: str = "",
    **style: Any,
) -> None:
    """Draw means over the seeds with their 95 % intervals, a line for each value of a column.

    Lines for numbers have an order, which their colours show, from light to dark.

    Args:
        axis: where.
        frame: rows with a seed each.
        x, y: columns.
        by: the column of which each value has a line; one line if left out.
        label: the legend's text, with {} for that value.
        log: axes that are logarithmic: "", "x", "y" or "xy".
        style: of the lines, as Matplotlib has it.
    """
    parts = list(frame.groupby(by, sort=False)) if by else [("", frame)]
    ordered = by and pd.api.types.is_numeric_dtype(frame[by]) and len(parts) > 1
    shades = plt.get_cmap("viridis_r")(np.linspace(0.1, 1, len(parts)))
    for i, (value, part) in enumerate(parts):
        found = {at: mean(one) for at, one in part.groupby(x)[y]}
        given = {"color": shades[i] if ordered else COLOURS[i], "fmt": "o-", "ms": 3} | style
        given |= {"label": label.format(value), "capsize": 2}
        points(axis, list(found), pd.DataFrame(found.values()), **given)
    if "x" in log:
        axis.set_xscale("log")
        mark_values(axis, sorted(frame[x].unique()))
    if "y" in log:
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        if high > 30 * low:
            axis.yaxis.set_minor_formatter(NullFormatter())


def mark_values(axis: Axes, values: Sequence[float]) -> None:
    """Label the horizontal axis at these ascending values, where labels have a place."""
    places = axis.transScale.transform([(value, 1) for value in values])[:, 0]
    least = LABEL_WIDTH * (places[-1] - places[0])
    labels, last = [], -np.inf
    for value, place in zip(values, places, strict=True):
        free = place - last >= least
        labels.append(f"{value:g}" if free else "")
        last = place if free else last
    axis.set_xticks(values, labels)
    axis.xaxis.set_minor_locator(NullLocator())


def save(figure: Figure, stem: Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write a figure, and close it; the stem is the path of the files without their ending."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in kinds]
    for path in paths:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    return paths


def points(
    axis: Axes, places: ArrayLike, rows: pd.DataFrame, across: bool = False, **style: Any
) -> None:
    """Draw numbers with their intervals, which lie across or upright.

    Args:
        axis: where to.
        places: a place for each row along the other direction.
        rows: with the columns value, low and high.
        across: whether numbers go along the horizontal axis.
        style: of the marks, as for matplotlib's `errorbar`.
    """
    value = rows["value"].to_numpy(float)
    sides = value - rows["low"].to_numpy(float), rows["high"].to_numpy(float) - value
    error = {"xerr" if across else "yerr": np.maximum(sides, 0)}
    axis.errorbar(*((value, places) if across else (places, value)), **error, **style)


def beside(
    axis: Axes, rows: pd.DataFrame, x: str, by: str, places: Sequence[str], width: float = 0.3
) -> None:
    """Draw numbers with intervals at the places of x, those of each value of `by` side by side."""
    groups = list(rows.groupby(by, sort=False))
    for shift, (label, part) in zip(np.linspace(-width, width, len(groups)), groups, strict=True):
        at = shift + np.array([places.index(value) for value in part[x]])
        points(axis, at, part, fmt="o", markersize=3, elinewidth=1, label=label)
    axis.set_xticks(range(len(places)), places)


def grey_band(axis: Axes, reach: float) -> None:
    """Shade what is too near 0 to be worth a note."""
    axis.axhspan(-reach, reach, color="0.9", linewidth=0, zorder=0)
    axis.axhline(0, color="0.6", linewidth=0.6, zorder=0)
