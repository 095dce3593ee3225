"""The best cell for every number of empty edges (the selection in Table 5)."""

from collections.abc import Iterator

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells import Cell
from cells.nasbench201.cell import NONE
from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS, metric_label
from experiments.study import DATASET, MEANS, Finding, Outcome, Study, verdict
from ntkscore.analysis.comparison import ROBUST_MEAN, table_scores

NEAR = 0.005
"""Largest difference that is put down to a single training seed beside the mean of three."""

PAPER = {
    "val_acc": (0.7946, 0.7928, 0.7842, 0.7456, 0.5320),
    "val_fgsm_3_acc": (0.6975, 0.6933, 0.6832, 0.6515, 0.4560),
    "val_pgd_3_acc": (0.6924, 0.6874, 0.6779, 0.6472, 0.4528),
    "val_pgd_8_acc": (0.4826, 0.4798, 0.4711, 0.4442, 0.3191),
}
"""The paper's column: Table 5 by metric and number of empty edges, as far as the table has it."""


def best_by_sparsity(accuracies: pd.DataFrame) -> pd.DataFrame:
    """The most robust cell, and the number of cells, for every number of empty edges."""
    empty = [Cell(int(cell)).operations.count(NONE) for cell in accuracies.index]
    robust = accuracies[ROBUST_MEAN].groupby(pd.Series(empty, accuracies.index))
    best = robust.idxmax()
    digits = [Cell(int(cell)).digits for cell in best]
    frame = pd.DataFrame({"cells": robust.size(), "best": best, "digits": digits})
    return frame.rename_axis("empty").reset_index()


def with_accuracies(best: pd.DataFrame, accuracies: pd.DataFrame) -> pd.DataFrame:
    """Our accuracy and the paper's, as fractions, a row per best cell and metric."""
    wide = best.set_index("best").join(accuracies).rename_axis("best").reset_index()
    frame = wide.melt(list(best.columns), var_name="metric", value_name="accuracy")
    paper = {(m, i): value for m, values in PAPER.items() for i, value in enumerate(values)}
    keys = zip(frame["metric"], frame["empty"], strict=True)
    return frame.assign(paper=[paper.get(key, float("nan")) for key in keys])


def draw(frame: pd.DataFrame) -> Figure:
    """Curves of accuracy over the number of empty edges, one per metric; crosses: the paper."""
    figure, axis = plt.subplots(figsize=(COLUMN, 0.85 * COLUMN))
    measured = frame[frame["metric"] != ROBUST_MEAN]
    for i, (metric, part) in enumerate(measured.groupby("metric", sort=False)):
        label = metric_label(str(metric))
        axis.plot(
            part["empty"], part["accuracy"], "o-", color=COLOURS[i], markersize=3, label=label
        )
        axis.plot(part["empty"], part["paper"], "x", color="black", markersize=5, zorder=3)
    axis.plot([], [], "x", color="black", markersize=5, label="paper")
    best = frame.drop_duplicates("empty")
    names = [f"{row.empty}\n{row.digits}" for row in best.itertuples()]
    axis.set_xticks(best["empty"], names)
    axis.set_xlabel("empty edges of six, and the best such cell")
    axis.set_ylabel(f"accuracy on {DATASET_LABELS[DATASET]} (fraction)")
    axis.set_ylim(0, 0.85)
    axis.legend(loc="lower left", ncols=2)
    return figure


def findings(compared: pd.DataFrame) -> Iterator[Finding]:
    """A finding for every row of Table 5, reproduced where all its metrics are near."""
    for empty, part in compared.groupby("empty"):
        apart = (part["accuracy"] - part["paper"]).abs()
        yield Finding(
            f"Best cell with {empty} empty edges ({part['digits'].iloc[0]}): "
            + ", ".join(metric_label(metric) for metric in part["metric"]),
            ", ".join(f"{value:.4f}" for value in part["paper"]),
            ", ".join(f"{value:.4f}" for value in part["accuracy"]),
            verdict((apart <= NEAR).all()),
            f"furthest {apart.max():.4f} away, {NEAR} allowed for single training seeds",
        )


def run(study: Study) -> Outcome:
    """The most robust cell with 0, 1, … empty edges, among the cells with results of their own."""
    accuracies = table_scores(study.table, DATASET)
    frame = with_accuracies(best_by_sparsity(accuracies), accuracies)
    compared = frame.dropna(subset="paper")
    apart = (compared["accuracy"] - compared["paper"]).abs()
    worst = compared.loc[apart.idxmax()]
    remarks = (
        "The best is by mean robust accuracy (FGSM and PGD, 3/255 and 8/255); the paper does not "
        "say by which accuracy it selects, and does not name its cells.",
        f"{(apart <= NEAR).sum()} of {len(compared)} accuracies lie within {NEAR} of the paper's; "
        f"the furthest is {metric_label(worst['metric'])} with {worst['empty']} empty edges, "
        f"{worst['accuracy']:.4f} beside {worst['paper']:.4f}.",
        "Square attacks and PGD beyond 8/255 need trained weights and are not in the table.",
        MEANS,
    )
    configuration = {"table": study.table.name, "dataset": DATASET, "by": ROBUST_MEAN}
    return Outcome(frame, draw(frame), configuration, remarks, (*findings(compared),))
