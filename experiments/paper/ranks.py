"""Ranks of a cell under two metrics (Figure 3b) and on three data sets (Figure 3c)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.data import BENCHMARK, DATASET
from experiments.frame import Claim, Study, Within, exact
from experiments.plotting import DATASET_LABELS, metric_label, panels
from ntkscore.analysis.comparison import ROBUST_MEAN, table_scores
from ntkscore.analysis.correlation import spearman

WELL = Within(low=0.8)
"""The Spearman coefficients that mean that ranks correlate well."""


def ranks(reference: pd.Series, other: pd.Series, best: int) -> list[dict[Any, Any]]:
    """Rank of every cell by two accuracies, 1 for the best, in the order of the first.

    Columns `best` and `shared` say which cells are among the best, by the first and by both.
    """
    both = pd.DataFrame({"reference": reference, "rank": other})
    places = both.rank(ascending=False, method="min").astype(int)
    places["best"] = places["reference"] <= best
    places["shared"] = places["best"] & (places["rank"] <= best)
    return places.sort_values("reference", kind="stable").reset_index().to_dict("records")


def measure(at: Any) -> list[dict[Any, Any]]:
    """Ranks by a metric on a data set beside those by mean robust accuracy on the first."""
    reference = table_scores(at.data.table, at.first)[ROBUST_MEAN]
    return ranks(reference, table_scores(at.data.table, at.dataset)[at.metric], at.best)


def agreements(frame: pd.DataFrame) -> pd.DataFrame:
    """Agreement with the reference, over all cells and among its best."""
    rows = []
    for name, part in frame.groupby(frame.columns[0], sort=False):
        by, best = str(name), part[part["best"]]
        row: dict[str, object] = {"ranks by": DATASET_LABELS.get(by) or metric_label(by)}
        row["Spearman"] = spearman(part["reference"], part["rank"])
        row["among the best"] = spearman(best["reference"], best["rank"])
        rows.append(row | {"best cells": len(best), "shared": int(part["shared"].sum())})
    return pd.DataFrame(rows)


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """That ranks correlate well."""
    for row in agreements(frame).to_dict("records"):
        text = f"Ranks by {row['ranks by']} correlate well with the reference"
        yield Claim(text, "well", exact(row["Spearman"]), WELL)


def draw(frame: pd.DataFrame) -> Figure:
    """A panel per case, a dot per cell over the reference's rank, on logarithmic axes."""
    agreed = agreements(frame)
    figure, axes = panels(len(agreed), 0.7, together=True)
    parts = [part for _, part in frame.groupby(frame.columns[0], sort=False)]
    for axis, row, part in zip(axes, agreed.itertuples(), parts, strict=True):
        axis.plot(part["reference"], part["rank"], ".", ms=1, alpha=0.4, rasterized=True)
        axis.plot([1, len(part)], [1, len(part)], color="black", linewidth=0.6)
        axis.set(xscale="log", yscale="log", box_aspect=1)
        axis.set_title(f"{row[1]}\nSpearman {row.Spearman:.3f}")
    by = f"rank by mean robust accuracy on {DATASET_LABELS[DATASET]} (1 is best)"
    figure.supxlabel(by, fontsize="medium")
    axes[0].set_ylabel("rank (1 is best)")
    return figure


REFERENCE = "The reference is the mean robust accuracy (FGSM and PGD, 3/255 and 8/255) on CIFAR-10."
BY_METRIC = Study(
    "Ranks of a cell under two metrics (Figure 3b)",
    measure,
    {"metric": ("val_acc", "val_fgsm_8_acc", "val_pgd_8_acc")},
    {"first": DATASET, "dataset": DATASET, "best": 100},
    claims=claims,
    figure=draw,
    table=agreements,
    note=REFERENCE,
    needs=(BENCHMARK,),
    ours=False,
)
ACROSS_DATASETS = replace(
    BY_METRIC,
    title="Ranks of a cell on three data sets (Figure 3c)",
    cases={"dataset": ("cifar100", "imagenet16-120")},
    fixed={"first": DATASET, "metric": ROBUST_MEAN, "best": 100},
)
