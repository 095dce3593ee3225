"""The benchmark's accuracies: their range (Figure 2) and how they are distributed (Figure 3a)."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure

from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS, metric_label
from experiments.study import DATASET, MEANS, Finding, Outcome, Study, verdict
from ntkscore.data.datasets import DATASETS
from ntkscore.data.tables import Table

NEAR = 0.05
"""Largest deviation, as a fraction, that counts as "about"."""
BOX = ("whislo", "q1", "med", "q3", "whishi")
WIDTH = 0.01
"""Width of a bin of the histograms."""
BINS = 50
"""Number of bins over each metric's own range, for the second reading of the peaks."""
RADII = {"3/255": COLOURS[0], "8/255": COLOURS[1]}


def boxes(table: Table) -> Iterator[dict[str, object]]:
    """Range, quartiles and whiskers as fractions, a row per data set and metric.

    The whiskers end at the last cell within 1.5 interquartile ranges of the box.
    """
    for dataset in table.datasets:
        for metric in table.metrics(dataset):
            accuracy = table.accuracies(dataset, metric)
            box = boxplot_stats(accuracy)[0]
            yield {
                "dataset": dataset,
                "metric": metric,
                "cells": len(accuracy),
                "minimum": accuracy.min(),
                **{name: box[name] for name in BOX},
                "maximum": accuracy.max(),
                "outside": len(box["fliers"]),
                "chance": 1 / DATASETS[dataset].num_classes,
            }


def draw_boxes(frame: pd.DataFrame) -> Figure:
    """A panel per data set, a box per metric; dots are the extreme cells."""
    groups = list(frame.groupby("dataset", sort=False))
    size = (COLUMN, 1.3 * COLUMN)
    figure, axes = plt.subplots(len(groups), 1, figsize=size, sharex=True, squeeze=False)
    for axis, (dataset, part) in zip(axes[:, 0], groups, strict=True):
        places = list(range(len(part)))
        drawn = axis.bxp(
            part[list(BOX)].to_dict("records"),
            positions=places,
            widths=0.55,
            showfliers=False,
            patch_artist=True,
            medianprops={"color": "black"},
        )
        for patch in drawn["boxes"]:
            patch.set(facecolor=COLOURS[5], linewidth=0.6)
        for end in ("minimum", "maximum"):
            axis.plot(places, part[end], ".", color="black", markersize=3)
        chance = part["chance"].iloc[0]
        axis.axhline(chance, color=COLOURS[1], linestyle="--", linewidth=1, label="chance")
        axis.set_ylim(bottom=0)
        axis.set_title(DATASET_LABELS.get(str(dataset), str(dataset)))
        labels = [metric_label(metric) for metric in part["metric"]]
        axis.set_xticks(places, labels, rotation=30, ha="right")
    axes[0, 0].legend(loc="upper right")
    figure.supylabel("accuracy (fraction)", fontsize="medium")
    return figure


def ranges(study: Study) -> Outcome:
    """Boxes of every accuracy of NAS-RobBench-201."""
    frame = pd.DataFrame(boxes(study.table))
    fgsm = frame[(frame["dataset"] == DATASET) & (frame["metric"] == "val_fgsm_3_acc")].iloc[0]
    remarks = (
        f"Under FGSM 3/255 on CIFAR-10 the cells range from {fgsm['minimum']:.3f} to "
        f"{fgsm['maximum']:.3f}; {fgsm['outside']} of {fgsm['cells']} lie outside the whiskers "
        f"{fgsm['whislo']:.3f} to {fgsm['whishi']:.3f}.",
        MEANS,
    )
    finding = Finding(
        "Accuracies under FGSM on CIFAR-10 range over",
        "about 40 % to 70 %",
        f"{fgsm['whislo']:.3f} to {fgsm['whishi']:.3f} between the whiskers, "
        f"{fgsm['minimum']:.3f} to {fgsm['maximum']:.3f} in all (3/255)",
        verdict(max(abs(fgsm["whislo"] - 0.4), abs(fgsm["whishi"] - 0.7)) <= NEAR),
        f"both whiskers within {NEAR}",
    )
    return Outcome(frame, draw_boxes(frame), {"table": study.table.name}, remarks, (finding,))


def histogram(table: Table) -> pd.DataFrame:
    """Share of the cells in each bin of accuracy on CIFAR-10, a row per metric and bin."""
    edges = np.linspace(0, 1, round(1 / WIDTH) + 1)
    bins = []
    for metric in table.metrics(DATASET):
        accuracy = table.accuracies(DATASET, metric)
        share = np.histogram(accuracy, edges)[0] / len(accuracy)
        ends = {"low": edges[:-1], "high": edges[1:]}
        bins.append(pd.DataFrame({"metric": metric, **ends, "share": share}))
    return pd.concat(bins, ignore_index=True)


def draw_histogram(frame: pd.DataFrame) -> Figure:
    """Step curves of the shares, by metric."""
    figure, axis = plt.subplots(figsize=(COLUMN, 0.85 * COLUMN))
    for metric, part in frame.groupby("metric", sort=False):
        edges = [*part["low"], part["high"].iloc[-1]]
        label = metric_label(str(metric))
        attack, _, radius = label.partition(" ")
        colour = RADII.get(radius, COLOURS[2] if label == "AutoAttack" else COLOURS[6])
        style = "--" if attack == "FGSM" else "-"
        axis.stairs(part["share"], edges, color=colour, linestyle=style, linewidth=1.1, label=label)
    filled = frame[frame["share"] > 0]
    axis.set_xlim(filled["low"].min(), filled["high"].max())
    axis.set_ylim(bottom=0)
    axis.set_xlabel(f"accuracy on {DATASET_LABELS[DATASET]} (fraction)")
    axis.set_ylabel(f"share of the cells per {WIDTH:g}")
    axis.legend(loc="upper left")
    return figure


def fullest_bins(table: Table) -> dict[str, pd.Series]:
    """Share of the cells in the fullest bin, by metric, under each reading of "peak".

    Equal bins compare the curves on one axis. Bins of each metric's own range compare their shapes.
    """
    equal = histogram(table).groupby("metric", sort=False)["share"].max().rename(metric_label)
    columns = [table.accuracies(DATASET, name) for name in table.metrics(DATASET)]
    scaled = [np.histogram(values, BINS)[0].max() / len(values) for values in columns]
    return {
        f"equal bins of {WIDTH:g} on a shared axis": equal,
        f"bins of 1/{BINS} of each metric's own range": pd.Series(scaled, equal.index),
    }


def peak_findings(peaks: dict[str, pd.Series]) -> Iterator[Finding]:
    """The paper's statement on the clean accuracy's peak, one verdict for each reading."""
    for bins, fullest in peaks.items():
        others = fullest.drop("clean")
        highest = others.idxmax()
        yield Finding(
            f"The clean accuracy has the most notable peak: {bins}",
            "clean",
            f"{fullest['clean']:.3f} of the cells, against {others[highest]:.3f} ({highest})",
            verdict(fullest["clean"] > others[highest]),
            "share of the cells in the fullest bin, higher than any other metric's",
        )


def distribution(study: Study) -> Outcome:
    """Histograms of every accuracy on CIFAR-10."""
    frame, peaks = histogram(study.table), fullest_bins(study.table)
    remarks = [
        "The paper calls the peak of the clean accuracy much more notable than those of FGSM and "
        "PGD. It gives no bins, and its text says not which of the two readings is meant.",
    ]
    for bins, fullest in peaks.items():
        shares = ", ".join(f"{name} {share:.3f}" for name, share in fullest.items())
        remarks.append(f"Share of the cells in the fullest bin, with {bins}: {shares}.")
    configuration = {
        "table": study.table.name,
        "dataset": DATASET,
        "bin_width": WIDTH,
        "bins": BINS,
    }
    findings = tuple(peak_findings(peaks))
    return Outcome(frame, draw_histogram(frame), configuration, (*remarks, MEANS), findings)
