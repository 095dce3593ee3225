"""Scores that beat the free alternative: combinations with the parameter count, and what is left
of every kernel score at equal parameter count.

Selection is on CIFAR-10 alone. CIFAR-100 and ImageNet16-120 are looked up for what it selects, for
`rank`'s default and for the parameter count.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells import Cell
from experiments.contrasts import Pair, contrast, partial_spearman, single_seeds
from experiments.study import Outcome, Study
from experiments.style import COLOURS, COLUMN, DATASET_LABELS, metric_label, score_label
from ntkscore.agreement import agreement
from ntkscore.ranking import DEFAULT, combined
from ntkscore.selection import BASELINES, score_table, with_baselines

RECORDING = "space"
SELECTED_ON = "cifar10"
METRIC = "val_pgd_8_acc"
RESAMPLES = 500
FEW = 10
FIRST_FEW = f"mean_of_first_{FEW}"
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
    """Means over the seeds, with the baselines, a line per cell; NaN where a score failed."""
    rows = study.rows(RECORDING)
    return with_baselines(score_table(rows[rows["kernel"].isin(_KERNELS)]))


def examine(
    study: Study, scores: pd.DataFrame, dataset: str, names: Sequence[str]
) -> Iterator[dict[str, str | float | int]]:
    """A line per score or sum.

    Args:
        study: for the accuracies.
        scores: a line per cell.
        dataset: of the accuracies.
        names: of the scores, sums with `+`.
    """
    cells = [int(cell) for cell in scores.index]
    accuracy = study.table.accuracies(dataset, METRIC, cells)
    for name in names:
        values = combined(scores, name.split("+")).to_numpy()
        found = agreement(values, accuracy, resamples=RESAMPLES, seed=study.seed)
        first = np.argsort(-values, kind="stable")[:FEW]  # NaN comes last.
        line = {"score": name, "dataset": dataset, "cells": found.n, "failed": found.excluded}
        line |= {"spearman": found.spearman, "low": found.spearman_low}
        line |= {"high": found.spearman_high, "top10": found.spearman_top10}
        line |= {"top30": found.spearman_top30, "best": Cell(cells[first[0]]).digits}
        line |= {"best_accuracy": found.best_accuracy, "best_rank": found.best_accuracy_rank}
        yield line | {FIRST_FEW: accuracy[first].mean()}


def select(frame: pd.DataFrame) -> str:
    """The candidate that rank should use, on the data set to select on.

    It must not lose to the parameter count, a user's free alternative, in any of three: Spearman
    over all cells, Spearman in the top 10 %, accuracy of the best-scored cell. Of those that do
    not, the one with the largest sum of the first two; the parameter count if there is none.

    Args:
        frame: lines as `examine` gives them.
    """
    own = frame[frame["dataset"] == SELECTED_ON].set_index("score")
    measures = own[["spearman", "top10", "best_accuracy"]]
    able = own[(measures >= measures.loc["params"]).all(axis=1)]
    return str((able["spearman"] + able["top10"]).idxmax())


def left_over(study: Study, scores: pd.DataFrame) -> pd.Series:
    """Spearman of every kernel score with accuracy at equal parameter count."""
    cells = [int(cell) for cell in scores.index]
    accuracy = study.table.accuracies(SELECTED_ON, METRIC, cells)
    found = {}
    for name in scores.columns.difference(list(BASELINES)):
        known = scores[name].notna().to_numpy()
        columns = scores[name], pd.Series(accuracy, scores.index), scores["params"]
        found[name] = partial_spearman(*(column.to_numpy()[known] for column in columns))
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
            part = frame[frame["dataset"] == dataset].set_index("score").reindex(names)
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
    """By how much a score exceeds a user's free alternative, over all cells."""
    values = combined(scores, name.split("+"))
    known = values.dropna().index
    for dataset, label in DATASET_LABELS.items():
        accuracy = study.table.accuracies(dataset, METRIC, [int(cell) for cell in known])
        size = Pair(scores.loc[known, "params"].to_numpy(), accuracy)
        own = Pair(values[known].to_numpy(), accuracy)
        found = contrast(own, size, seed=study.seed, resamples=RESAMPLES)
        yield f"{label}, {name} less the parameter count: {found}."


def told(frame: pd.DataFrame, name: str) -> Iterator[str]:
    """What a score reaches on every data set."""
    for dataset, label in DATASET_LABELS.items():
        line = frame[(frame["score"] == name) & (frame["dataset"] == dataset)].iloc[0]
        yield (
            f"{label}, {name}: Spearman {line['spearman']:.3f} [{line['low']:.3f}, "
            f"{line['high']:.3f}] over {line['cells']:,} cells ({line['failed']} without), in the "
            f"top 10 % {line['top10']:.3f}, in the top 30 % {line['top30']:.3f}; the best-scored "
            f"cell {line['best']} has {line['best_accuracy']:.4f} (rank {line['best_rank']}), the "
            f"first {FEW} have {line[FIRST_FEW]:.4f} on average."
        )


def single_seed_lines(study: Study, names: Sequence[str]) -> Iterator[str]:
    """What scores reach with one seed alone, on the data set to select on."""
    rows = study.rows(RECORDING)
    rows = rows[rows["kernel"].isin(_KERNELS)]
    for name in names:
        found = []
        for part in single_seeds(rows).values():
            scores = with_baselines(score_table(part))
            (line,) = examine(study, scores, SELECTED_ON, [name])
            found.append(f"{line['spearman']:.3f} / {line['top10']:.3f} / {line['best']}")
        yield (
            f"CIFAR-10, {name} by single seed (Spearman / top 10 % / best-scored): "
            f"{', '.join(found)}."
        )


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A line per candidate, on the data set to select on."""
    own = frame[frame["dataset"] == SELECTED_ON].set_index("score")
    names = {
        "spearman": "Spearman",
        "top10": "top 10 %",
        "top30": "top 30 %",
        "best": "best-scored",
        "best_accuracy": "its accuracy",
        FIRST_FEW: f"mean of the first {FEW}",
        "given_params": "given parameters",
    }
    return own.rename(columns=names)[list(names.values())].reset_index()


def run(study: Study) -> Outcome:
    """Examine the candidates, select one on CIFAR-10, and report it on all three data sets."""
    scores = known_scores(study)
    lines = list(examine(study, scores, SELECTED_ON, CANDIDATES))
    chosen = select(pd.DataFrame(lines))
    reported = tuple(dict.fromkeys(("params", DEFAULT, chosen)))
    for dataset in DATASET_LABELS:
        if dataset != SELECTED_ON:
            lines += examine(study, scores, dataset, reported)
    frame = pd.DataFrame(lines)
    rest = left_over(study, scores)
    largest = ", ".join(f"{name} {value:+.3f}" for name, value in rest.head(8).items())
    remarks = (
        f"Means over {len(single_seeds(study.rows(RECORDING)))} seeds. Selected on CIFAR-10, "
        "of those that lose to the parameter count neither over all cells nor in the top 10 % nor "
        f"by the best-scored cell: {chosen}; `rank` uses {DEFAULT}. CIFAR-10's numbers of what was "
        "selected on it are optimistic.",
        *(text for name in reported for text in told(frame, name)),
        *(text for name in reported[1:] for text in against_params(study, scores, name)),
        *single_seed_lines(study, reported[1:]),
        f"At equal parameter count (partial Spearman, CIFAR-10, the largest): {largest}.",
    )
    configuration = {
        "selected_on": SELECTED_ON,
        "metric": METRIC,
        "recordings": study.configurations([RECORDING]),
    }
    partial = frame["score"].map(rest).where(frame["dataset"] == SELECTED_ON)
    frame = frame.assign(given_params=partial)
    return Outcome(frame, draw(frame), configuration, remarks, summary=summary(frame))
