"""Frames that a person reads: score sheets, lookups, and scores beside accuracy."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cells import Cell
from ntkscore.agreement import agreement_table
from ntkscore.names import dataset_name, metric_name
from ntkscore.ranking import DEFAULT, combined, direction_of
from ntkscore.results import RUN, ResultSet
from ntkscore.scores import DIRECTIONS
from ntkscore.selection import baselines, pick_rho, score_table
from ntkscore.tables import Table, load_table

CLASSES = {"cifar10": 10, "cifar100": 100, "imagenet16-120": 120}
IMAGE_SIZES = {"imagenet16-120": 16}
ROBUST_METRICS = ("val_fgsm_3_acc", "val_pgd_3_acc", "val_fgsm_8_acc", "val_pgd_8_acc")
ROBUST_MEAN = "robust_mean"
"""The mean of the FGSM and PGD accuracies at 3/255 and 8/255, by which the benchmark ranks."""


def score_sheet(rows: pd.DataFrame) -> pd.DataFrame:
    """One cell's rows as a sheet: a line per score, a column per kernel; failures by their status.

    Args:
        rows: of one cell, seed and radius.
    """
    beta = rows["beta"].map(lambda b: "" if pd.isna(b) else f" β={b:g}")
    shown = rows["value"].map("{:.4g}".format).where(rows["status"] == "ok", rows["status"])
    sheet = (
        rows.assign(kernel=rows["kernel"] + beta, shown=shown)
        .pivot(index="score", columns="kernel", values="shown")
        .reindex(index=[*DIRECTIONS, "loss"], columns=list(dict.fromkeys(rows["kernel"] + beta)))
        .fillna("")
    )
    better = ["↑" if DIRECTIONS.get(name, 0) > 0 else "↓" for name in sheet.index]
    sheet.insert(0, "better", [*better[:-1], ""])
    return sheet.reset_index()


def table_scores(table: Table, dataset: str) -> pd.DataFrame:
    """A table's own metrics as if they were scores, one line per cell with results of its own."""
    frame = pd.DataFrame(
        {metric: table.accuracies(dataset, metric) for metric in table.metrics(dataset)},
        index=pd.Index(table.own, name="cell"),
    )
    if set(ROBUST_METRICS) <= set(frame.columns):
        frame[ROBUST_MEAN] = frame[list(ROBUST_METRICS)].mean(axis=1)
    return frame


def scores_in(directory: Path, dataset: str, rho: float | None = None) -> tuple[pd.DataFrame, str]:
    """Scores by cell from a result directory, or a table's metrics, and what they are.

    Args:
        directory: with results, or with a benchmark table (or the table itself).
        dataset: of a table's metrics.
        rho: radius, for results with several.

    Raises:
        InputError: if it is neither.
    """
    if directory.is_file() or (not (directory / RUN).exists() and any(directory.glob("*.json"))):
        table = load_table(directory)
        return table_scores(table, dataset), f"metrics of {table.name}"
    rows = pick_rho(ResultSet.open(directory).read(), rho)
    seeds = rows["seed"].nunique()
    return score_table(rows), f"mean of {seeds} seed{'s' if seeds > 1 else ''} in {directory}"


def correlate(
    scores: pd.DataFrame, table: Table, dataset: str, metric: str, resamples: int = 1000
) -> pd.DataFrame:
    """Agreement of every score with one column of a table, `rank`'s default and baselines last.

    Args:
        scores: a line per cell, a column per score.
        table: with the accuracies; a cell without its own has those of its representative.
        dataset, metric: which accuracy.
        resamples: of the bootstrap.

    Raises:
        InputError: if the table lacks the data set, the metric or a cell.
    """
    cells = list(scores.index)
    accuracy = pd.Series(table.accuracies(dataset, metric, cells), index=scores.index)
    name = dataset_name(dataset)
    costs = baselines(cells, CLASSES.get(name, 10), IMAGE_SIZES.get(name, 32))
    with_costs = scores.join(costs)
    if set(terms := DEFAULT.split("+")) <= set(with_costs.columns):
        scores = scores.assign(**{DEFAULT: combined(with_costs, terms)})
    directions = {column: direction_of(column) for column in scores.columns} | {DEFAULT: +1}
    frame = agreement_table(scores, accuracy, directions, costs, resamples=resamples)
    frame = frame.reset_index()
    best = [None if pd.isna(cell) else Cell(int(cell)).digits for cell in frame["best_cell"]]
    frame.insert(list(frame.columns).index("best_cell") + 1, "best_digits", best)
    return frame


def compact(frame: pd.DataFrame) -> pd.DataFrame:
    """An agreement frame for a terminal: intervals in brackets, columns without news left out."""
    interval = [
        f"{line.spearman:.3f} [{line.spearman_low:.3f}, {line.spearman_high:.3f}]"
        if line.status == "ok"
        else line.status
        for line in frame.itertuples()
    ]
    shown = pd.DataFrame(
        {
            "score": frame["score"],
            "cells": frame["n"],
            "failed": frame["excluded"],
            "Spearman [95 %]": interval,
            "Kendall": frame["kendall"].map("{:.3f}".format),
            "in top 10 %": frame["spearman_top10"].map("{:.3f}".format),
            "in top 30 %": frame["spearman_top30"].map("{:.3f}".format),
            "best": frame["best_digits"],
            "its accuracy": frame["best_accuracy"].map("{:.4f}".format),
            "its rank": frame["best_accuracy_rank"],
        }
    )
    return shown if frame["excluded"].any() else shown.drop(columns="failed")


def lookup(
    cells: Sequence[Cell], table: Table, dataset: str | None = None, seed: int | None = None
) -> pd.DataFrame:
    """Accuracies of cells: a line per cell and data set, a column per metric.

    Raises:
        InputError: if the table lacks the data set, a cell or the seed.
    """
    datasets = table.datasets if dataset is None else (dataset_name(dataset),)
    lines = []
    for cell in cells:
        for name in datasets:
            line = {"cell": cell.index, "digits": cell.digits, "results of": 0, "dataset": name}
            line["results of"] = table.representative(cell)
            for metric in table.metrics(name):
                line[metric_name(metric)] = table.accuracy(cell, name, metric, seed)
            line["params"] = cell.params(num_classes=CLASSES.get(name, 10))
            lines.append(line)
    return pd.DataFrame(lines)
