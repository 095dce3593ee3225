"""Scores that beat the free alternative: sums with the parameter count, and the partial
correlations of kernel scores at equal parameter count.

Selection is on CIFAR-10 alone. CIFAR-100 and ImageNet16-120 are looked up for the selected score,
for `rank`'s default and for the parameter count.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells import Cell
from experiments.contrasts import Pair, contrast
from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS, metric_label, score_label
from experiments.study import (
    DATASET,
    KERNELS,
    METRIC,
    RESAMPLES,
    Outcome,
    Study,
    single_seeds,
    with_costs,
)
from ntkscore.analysis.agreement import agreement
from ntkscore.analysis.frames import score_table
from ntkscore.analysis.paired import partial_spearman
from ntkscore.analysis.score_names import COSTS, DEFAULT, ScoreSum

RECORDING = "space"
SELECTED_ON = DATASET
FEW = 10
FIRST_FEW = f"mean_of_first_{FEW}"
_NORMALIZED = tuple(f"{kernel}.lambda_min_normalized" for kernel in KERNELS)
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
"""All scores that were tried. A sum is of log-ranks; cells rank by FLOPs as they do by parameters,
so that naming both doubles the weight of size."""


def mean_scores(study: Study) -> pd.DataFrame:
    """Means over the seeds, with the baselines, a row per cell; NaN where a score failed."""
    rows = study.rows(RECORDING)
    return with_costs(score_table(rows[rows["kernel"].isin(KERNELS)]))


def examine(
    study: Study, scores: pd.DataFrame, dataset: str, names: Sequence[str]
) -> Iterator[dict[str, str | float | int | None]]:
    """Agreement of scores and sums with accuracy, a row each.

    Args:
        study: the study, for the accuracies.
        scores: scores and baselines, a row per cell.
        dataset: data set of the accuracies.
        names: names of scores, sums with `+`.
    """
    cells = [int(cell) for cell in scores.index]
    accuracy = study.table.accuracies(dataset, METRIC, cells)
    for name in names:
        values = ScoreSum.parse(name).of(scores).to_numpy()
        result = agreement(values, accuracy, resamples=RESAMPLES, seed=study.seed)
        yield {
            "score": name,
            "dataset": dataset,
            "cells": result.n,
            "failed": result.excluded,
            "spearman": result.spearman,
            "low": result.spearman_low,
            "high": result.spearman_high,
            "top10": result.spearman_top10,
            "top30": result.spearman_top30,
            "best": Cell(cells[result.best_index or 0]).digits,
            "best_accuracy": result.best_accuracy,
            "best_rank": result.best_accuracy_rank,
            FIRST_FEW: result.first_ten_accuracy,
        }


def select(frame: pd.DataFrame) -> str:
    """The candidate that rank should use, on the data set to select on.

    It must not lose to the parameter count, a user's free alternative, in any of three: Spearman
    over all cells, Spearman in the top 10 %, accuracy of the best-scored cell. Of those that do
    not, the one with the largest sum of the first two; the parameter count if there is none.

    Args:
        frame: rows as `examine` yields them.
    """
    candidates = frame[frame["dataset"] == SELECTED_ON].set_index("score")
    measures = candidates[["spearman", "top10", "best_accuracy"]]
    eligible = candidates[(measures >= measures.loc["params"]).all(axis=1)]
    return str((eligible["spearman"] + eligible["top10"]).idxmax())


def partial_correlations(study: Study, scores: pd.DataFrame) -> pd.Series:
    """Spearman of every kernel score with accuracy at equal parameter count, largest first."""
    cells = [int(cell) for cell in scores.index]
    accuracy = study.table.accuracies(SELECTED_ON, METRIC, cells)
    names = scores.columns.difference(list(COSTS))
    partial = {name: partial_spearman(scores[name], accuracy, scores["params"]) for name in names}
    return pd.Series(partial).sort_values(key=np.abs, ascending=False)


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
    """Sentences on the difference between a score and the parameter count, over all cells."""
    values = ScoreSum.parse(name).of(scores).dropna()
    params = scores.loc[values.index, "params"].to_numpy()
    for dataset in study.table.datasets:
        accuracy = study.table.accuracies(dataset, METRIC, [int(cell) for cell in values.index])
        gap = contrast(Pair(values.to_numpy(), accuracy), Pair(params, accuracy), seed=study.seed)
        yield f"{DATASET_LABELS[dataset]}, {name} less the parameter count: {gap}."


def sentences(frame: pd.DataFrame, name: str) -> Iterator[str]:
    """Sentences on the agreement of a score with accuracy, one for every data set."""
    for dataset in frame["dataset"].unique():
        row = frame[(frame["score"] == name) & (frame["dataset"] == dataset)].iloc[0]
        yield (
            f"{DATASET_LABELS[dataset]}, {name}: Spearman {row['spearman']:.3f} [{row['low']:.3f}, "
            f"{row['high']:.3f}] over {row['cells']:,} cells ({row['failed']} without), in the "
            f"top 10 % {row['top10']:.3f}, in the top 30 % {row['top30']:.3f}; the best-scored "
            f"cell {row['best']} has {row['best_accuracy']:.4f} (rank {row['best_rank']}), the "
            f"first {FEW} have {row[FIRST_FEW]:.4f} on average."
        )


def single_seed_sentences(study: Study, names: Sequence[str]) -> Iterator[str]:
    """Sentences on scores of one seed alone, on the data set to select on."""
    rows = study.rows(RECORDING)
    rows = rows[rows["kernel"].isin(KERNELS)]
    for name in names:
        results = []
        for part in single_seeds(rows).values():
            (row,) = examine(study, with_costs(score_table(part)), SELECTED_ON, [name])
            results.append(f"{row['spearman']:.3f} / {row['top10']:.3f} / {row['best']}")
        yield (
            f"CIFAR-10, {name} by single seed (Spearman / top 10 % / best-scored): "
            f"{', '.join(results)}."
        )


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """The candidates on the data set to select on, a row each."""
    names = {
        "spearman": "Spearman",
        "top10": "top 10 %",
        "top30": "top 30 %",
        "best": "best-scored",
        "best_accuracy": "its accuracy",
        FIRST_FEW: f"mean of the first {FEW}",
        "given_params": "given parameters",
    }
    candidates = frame[frame["dataset"] == SELECTED_ON].set_index("score")
    return candidates.rename(columns=names)[list(names.values())].reset_index()


def run(study: Study) -> Outcome:
    """Examine the candidates, select one on CIFAR-10, and report it on all three data sets."""
    scores = mean_scores(study)
    rows = list(examine(study, scores, SELECTED_ON, CANDIDATES))
    selected = select(pd.DataFrame(rows))
    reported = tuple(dict.fromkeys(("params", str(DEFAULT), selected)))
    for dataset in study.table.datasets:
        if dataset != SELECTED_ON:
            rows += examine(study, scores, dataset, reported)
    partial = partial_correlations(study, scores)
    largest = ", ".join(f"{name} {value:+.3f}" for name, value in partial.head(8).items())
    frame = pd.DataFrame(rows)
    frame["given_params"] = frame["score"].map(partial).where(frame["dataset"] == SELECTED_ON)
    remarks = (
        f"Means over {len(single_seeds(study.rows(RECORDING)))} seeds. Selected on CIFAR-10, "
        "of those that lose to the parameter count neither over all cells nor in the top 10 % nor "
        f"by the best-scored cell: {selected}; `rank` uses {DEFAULT}. CIFAR-10's numbers of what "
        "was selected on it are optimistic.",
        *(text for name in reported for text in sentences(frame, name)),
        *(text for name in reported[1:] for text in against_params(study, scores, name)),
        *single_seed_sentences(study, reported[1:]),
        f"At equal parameter count (partial Spearman, CIFAR-10, the largest): {largest}.",
    )
    configuration = {
        "selected_on": SELECTED_ON,
        "metric": METRIC,
        "recordings": study.configurations([RECORDING]),
    }
    return Outcome(frame, draw(frame), configuration, remarks, summary=summary(frame))
