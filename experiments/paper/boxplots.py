"""Accuracies of the benchmark's cells, by data set and metric (Figure 2)."""

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure

from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS, metric_label
from experiments.study import DATASET, MEANS, Finding, Outcome, Study
from ntkscore.data.datasets import DATASETS
from ntkscore.data.tables import Table

NEAR = 0.05
"""Largest deviation, as a fraction, that counts as "about"."""
BOX = ("whislo", "q1", "med", "q3", "whishi")


def boxes(table: Table) -> pd.DataFrame:
    """Range, quartiles and whiskers as fractions, a row per data set and metric.

    The whiskers end at the last cell within 1.5 interquartile ranges of the box.
    """
    rows = []
    for dataset in table.datasets:
        for metric in table.metrics(dataset):
            accuracy = table.accuracies(dataset, metric)
            box = boxplot_stats(accuracy)[0]
            rows.append(
                {
                    "dataset": dataset,
                    "metric": metric,
                    "cells": len(accuracy),
                    "minimum": accuracy.min(),
                    **{name: box[name] for name in BOX},
                    "maximum": accuracy.max(),
                    "outside": len(box["fliers"]),
                    "chance": 1 / DATASETS[dataset].num_classes,
                }
            )
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame) -> Figure:
    """A panel per data set, a box per metric; dots are the extreme cells."""
    groups = list(frame.groupby("dataset", sort=False))
    figure, axes = plt.subplots(
        len(groups), 1, figsize=(COLUMN, 1.3 * COLUMN), sharex=True, squeeze=False
    )
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


def run(study: Study) -> Outcome:
    """Boxes of every accuracy of NAS-RobBench-201."""
    frame = boxes(study.table)
    fgsm = frame[(frame["dataset"] == DATASET) & (frame["metric"] == "val_fgsm_3_acc")].iloc[0]
    remarks = (
        f"Under FGSM 3/255 on CIFAR-10 the cells range from {fgsm['minimum']:.3f} to "
        f"{fgsm['maximum']:.3f}; {fgsm['outside']} of {fgsm['cells']} lie outside the whiskers "
        f"{fgsm['whislo']:.3f} to {fgsm['whishi']:.3f}.",
        MEANS,
    )
    apart = abs(fgsm["whislo"] - 0.4), abs(fgsm["whishi"] - 0.7)
    finding = Finding(
        "Accuracies under FGSM on CIFAR-10 range over",
        "about 40 % to 70 %",
        f"{fgsm['whislo']:.3f} to {fgsm['whishi']:.3f} between the whiskers, "
        f"{fgsm['minimum']:.3f} to {fgsm['maximum']:.3f} in all (3/255)",
        "reproduced" if max(apart) <= NEAR else "not reproduced",
        f"both whiskers within {NEAR}",
    )
    configuration = {"table": study.table.name}
    return Outcome(frame, draw(frame), configuration, remarks, (finding,))
