"""The benchmark's accuracies: their range (Figure 2) and how they are distributed (Figure 3a)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure

from experiments.data import BENCHMARK, DATASET, METRICS
from experiments.frame import Claim, Study, Within, exact, near
from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS, metric_label, panels
from ntkscore.data.datasets import DATASETS

BOX = ("whislo", "q1", "med", "q3", "whishi")


def box(at: Any) -> dict[str, object]:
    """Range, quartiles and whiskers of an accuracy over all cells, as fractions.

    The whiskers end at the last cell within 1.5 interquartile ranges of the box.
    """
    accuracy = at.data.table.accuracies(at.dataset, at.metric)
    found = boxplot_stats(accuracy)[0]
    ends = {"minimum": accuracy.min(), "maximum": accuracy.max(), "outside": len(found["fliers"])}
    return {"cells": len(accuracy), **{name: found[name] for name in BOX}, **ends}


def box_claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """The range that the paper gives, taken as that between the whiskers."""
    fgsm = frame[(frame["dataset"] == DATASET) & (frame["metric"] == "val_fgsm_3_acc")]
    for end, column, printed in (("begins", "whislo", 0.4), ("ends", "whishi", 0.7)):
        for value in fgsm[column]:
            text = f"FGSM 3/255 accuracy on CIFAR-10 {end} at"
            yield Claim(text, f"about {printed}", exact(value), near(printed, 0.05))


def draw_boxes(frame: pd.DataFrame) -> Figure:
    """A panel per data set, a box per metric; dots are the extreme cells."""
    groups = list(frame.groupby("dataset", sort=False))
    size = (COLUMN, 0.43 * len(groups) * COLUMN)
    figure, axes = plt.subplots(len(groups), 1, figsize=size, sharex=True, squeeze=False)
    for axis, (dataset, part) in zip(axes[:, 0], groups, strict=True):
        places = list(range(len(part)))
        axis.bxp(part[[*BOX]].to_dict("records"), places, widths=0.55, showfliers=False)
        axis.plot(places, part[["minimum", "maximum"]], ".", color="black", markersize=3)
        chance = 1 / DATASETS[str(dataset)].num_classes
        axis.axhline(chance, color=COLOURS[0], linestyle="--", linewidth=1, label="chance")
        axis.set(ylim=(0, None), title=DATASET_LABELS[str(dataset)])
        axis.set_xticks(places, map(metric_label, part["metric"]), rotation=30, ha="right")
    axes[0, 0].legend(loc="upper right")
    figure.supylabel("accuracy (fraction)", fontsize="medium")
    return figure


BOXES = Study(
    "Accuracies of the benchmark, by data set and metric (Figure 2)",
    box,
    {"dataset": ("cifar10", "cifar100", "imagenet16-120"), "metric": METRICS},
    claims=box_claims,
    figure=draw_boxes,
    note="Accuracies are means of three training seeds; the paper reads a single one, so that "
    "differences of up to about 0.005 are to be expected, in all sections.",
    needs=(BENCHMARK,),
)

SHARED, OWN = "shared axis", "own range"


def histogram(at: Any) -> Iterator[dict[str, object]]:
    """Share of the cells in each bin of accuracy: equal bins, and bins of the metric's own range.

    Equal bins compare the curves of metrics on one axis, the others compare their shapes.
    """
    accuracy = at.data.table.accuracies(at.dataset, at.metric)
    equal = np.linspace(0, 1, round(1 / at.width) + 1)
    for reading, bins in ((SHARED, equal), (OWN, at.bins)):
        counts, edges = np.histogram(accuracy, bins)
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
            yield {"bins": reading, "low": low, "high": high, "share": count / len(accuracy)}


def fullest(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of the cells in the fullest bin, a row per metric and a column per kind of bins."""
    most = frame.groupby(["metric", "bins"], sort=False)["share"].max().unstack()[[SHARED, OWN]]
    return most.rename(metric_label).reset_index()


def peak_claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """The paper's statement on the clean accuracy's peak, under both readings."""
    most = fullest(frame).set_index("metric")
    for reading in most if "clean" in most.index else ():
        clean, others = most[reading]["clean"], most[reading].drop("clean")
        text = f"Clean accuracy has the highest peak, {reading}: its share less the next"
        yield Claim(text, "notable", exact(clean - others.max()), Within(low=0))


def draw_histogram(frame: pd.DataFrame) -> Figure:
    """Step curves of the shares in equal bins, by metric."""
    figure, (axis,) = panels(1)
    for metric, part in frame[frame["bins"] == SHARED].groupby("metric", sort=False):
        edges = [*part["low"], part["high"].iloc[-1]]
        axis.stairs(part["share"], edges, label=metric_label(str(metric)))
    axis.set_xlabel(f"accuracy on {DATASET_LABELS[DATASET]} (fraction)")
    axis.set_ylabel("share of the cells per bin")
    axis.legend(loc="upper left")
    return figure


DISTRIBUTION = Study(
    "How accuracies are distributed (Figure 3a)",
    histogram,
    {"metric": METRICS},
    fixed={"dataset": DATASET, "width": 0.01, "bins": 50},
    claims=peak_claims,
    figure=draw_histogram,
    table=fullest,
    note="The paper gives no bins. A peak is the share of the cells in the fullest of them.",
    needs=(BENCHMARK,),
)
