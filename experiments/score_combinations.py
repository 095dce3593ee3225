"""Scores that beat the free alternative: combinations with the parameter count, and what is left
of every kernel score at equal parameter count.

Selection is on CIFAR-10 alone; CIFAR-100 and ImageNet16-120 are reported for what it selects.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells import Cell
from experiments.contrasts import Pair, contrast, partial_spearman
from experiments.study import Outcome, Study
from experiments.style import COLOURS, COLUMN, DATASET_LABELS, metric_label, score_label
from ntkscore.agreement import agreement
from ntkscore.ranking import DEFAULT, combined
from ntkscore.selection import BASELINES, baselines, score_table

RECORDING = "space"
SELECTED_ON = "cifar10"
METRIC = "val_pgd_8_acc"
RESAMPLES = 500
FEW = 10
_KERNELS = ("clean", "robust", "twice")
_NORMALIZED = tuple(f"{kernel}.lambda_min_normalized" for kernel in _KERNELS)
_ALONE = (
    *_NORMALIZED,
    "robust.lambda_min",
    "robust.condition",
    "robust.effective_rank",
    "robust.frobenius",
    "robust.label_energy",
)
CANDIDATES = (
    "params",
    *_ALONE,
    *(f"params+{name}" for name in _ALONE),
    "params+clean.lambda_min_normalized+robust.lambda_min_normalized",
    "params+flops+clean.lambda_min_normalized",
    "params+flops+robust.lambda_min_normalized",
    "params+flops+clean.lambda_min_normalized+robust.lambda_min_normalized",
    "params+" + "+".join(_NORMALIZED),
    "+".join(_NORMALIZED),
)
"""What was tried, all of it. A sum is of log-ranks; cells rank by FLOPs as they do by parameters,
so that naming both doubles the weight of size."""


def known_scores(study: Study) -> pd.DataFrame:
    """Means over the seeds, with the baselines, of the cells that have every score."""
    rows = study.rows(RECORDING)
    scores = score_table(rows[rows["kernel"].isin(_KERNELS)]).dropna()
    return scores.join(baselines(list(scores.index)))


def examine(study: Study, scores: pd.DataFrame) -> Iterator[dict[str, str | float | int]]:
    """A line per candidate and data set."""
    cells = [int(cell) for cell in scores.index]
    for dataset in DATASET_LABELS:
        accuracy = study.table.accuracies(dataset, METRIC, cells)
        for name in CANDIDATES:
            values = combined(scores, name.split("+")).to_numpy()
            found = agreement(values, accuracy, resamples=RESAMPLES, seed=study.seed)
            first = np.argsort(-values, kind="stable")[:FEW]
            line = {"score": name, "dataset": dataset, "cells": found.n}
            line |= {"spearman": found.spearman, "low": found.spearman_low}
            line |= {"high": found.spearman_high, "top10": found.spearman_top10}
            line |= {"top30": found.spearman_top30, "best": Cell(cells[first[0]]).digits}
            line |= {"best_accuracy": found.best_accuracy, "best_rank": found.best_accuracy_rank}
            yield line | {f"mean_of_first_{FEW}": accuracy[first].mean()}


def select(frame: pd.DataFrame) -> str:
    """The candidate of the largest sum of Spearman over all cells and over the top 10 %.

    Args:
        frame: lines as `examine` gives them; those of the data set to select on count.
    """
    own = frame[frame["dataset"] == SELECTED_ON].set_index("score")
    return str((own["spearman"] + own["top10"]).idxmax())


def left_over(study: Study, scores: pd.DataFrame) -> pd.Series:
    """Spearman of every kernel score with accuracy at equal parameter count."""
    cells = [int(cell) for cell in scores.index]
    accuracy = study.table.accuracies(SELECTED_ON, METRIC, cells)
    params = scores["params"].to_numpy()
    names = [name for name in scores.columns if name not in BASELINES]
    found = {name: partial_spearman(scores[name].to_numpy(), accuracy, params) for name in names}
    return pd.Series(found).sort_values(key=np.abs, ascending=False)


def draw(frame: pd.DataFrame) -> Figure:
    """A panel each for all cells, the top 10 % and the best-scored cell; colours: data sets."""
    columns = {
        "spearman": "Spearman, all cells",
        "top10": "Spearman, top 10 %",
        "best_accuracy": "best-scored: accuracy",
    }
    names = list(CANDIDATES)
    figure, axes = plt.subplots(1, 3, figsize=(2.6 * COLUMN, 0.5 + 0.17 * len(names)), sharey=True)
    for axis, (column, title) in zip(axes, columns.items(), strict=True):
        for colour, (dataset, label) in zip(COLOURS, DATASET_LABELS.items(), strict=False):
            part = frame[frame["dataset"] == dataset].set_index("score").loc[names]
            axis.axvline(part.loc["params", column], color=colour, linewidth=0.7, linestyle=":")
            axis.plot(part[column], range(len(names)), "o", color=colour, markersize=3, label=label)
        axis.set_title(title)
    axes[0].set_yticks(range(len(names)), [score_label(name) for name in names], fontsize=7)
    axes[0].invert_yaxis()
    figure.supxlabel(f"{metric_label(METRIC)}; dotted: the parameter count", fontsize="medium")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def against_params(study: Study, scores: pd.DataFrame, name: str) -> Iterator[str]:
    """What a user's free alternative reaches, and by how much the score exceeds it."""
    cells = [int(cell) for cell in scores.index]
    values = combined(scores, name.split("+")).to_numpy()
    for dataset, label in DATASET_LABELS.items():
        accuracy = study.table.accuracies(dataset, METRIC, cells)
        size = Pair(scores["params"].to_numpy(), accuracy)
        found = contrast(Pair(values, accuracy), size, seed=study.seed, resamples=RESAMPLES)
        yield (
            f"{label}: the parameter count alone reaches {float(size.spearman()):.3f}; {name} "
            f"{found} more."
        )


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A line per candidate: all cells and the top 10 % of each data set, and CIFAR-10's pick."""
    own = frame[frame["dataset"] == SELECTED_ON].set_index("score")
    columns = {}
    for dataset, label in DATASET_LABELS.items():
        part = frame[frame["dataset"] == dataset].set_index("score")
        columns |= {label: part["spearman"], f"{label}, top 10 %": part["top10"]}
    columns |= {"best-scored": own["best"], "its accuracy": own["best_accuracy"]}
    return pd.DataFrame(columns).reset_index()


def run(study: Study) -> Outcome:
    """Examine the candidates, select one on CIFAR-10, and report it on all three data sets."""
    scores = known_scores(study)
    frame = pd.DataFrame(examine(study, scores))
    chosen = select(frame)
    own = frame[frame["score"] == chosen].set_index("dataset")
    rest = left_over(study, scores)
    seeds = sorted(study.rows(RECORDING)["seed"].unique().tolist())
    remarks = [
        f"{len(scores):,} cells, means over the seeds {seeds}. Selected on {SELECTED_ON}: {chosen}"
        f"{'' if chosen == DEFAULT else f' (rank uses {DEFAULT})'}.",
    ]
    for dataset, label in DATASET_LABELS.items():
        line = own.loc[dataset]
        remarks.append(
            f"{label}: Spearman {line['spearman']:.3f} [{line['low']:.3f}, {line['high']:.3f}], in "
            f"the top 10 % {line['top10']:.3f}, in the top 30 % {line['top30']:.3f}; the "
            f"best-scored cell {line['best']} has {line['best_accuracy']:.4f} (rank "
            f"{line['best_rank']}), the first {FEW} have {line[f'mean_of_first_{FEW}']:.4f} on "
            "average."
        )
    told = ", ".join(f"{name} {value:+.3f}" for name, value in rest.head(8).items())
    remarks.append(f"At equal parameter count (partial Spearman, CIFAR-10, the largest): {told}.")
    configuration = {
        "selected_on": SELECTED_ON,
        "metric": METRIC,
        "recordings": {RECORDING: study.result_set(RECORDING).configuration},
    }
    partial = frame["score"].map(rest).where(frame["dataset"] == SELECTED_ON)
    return Outcome(
        frame.assign(given_params=partial),
        draw(frame),
        configuration,
        (*remarks, *against_params(study, scores, chosen)),
        summary=summary(frame),
    )
