"""The best cell for every number of empty edges (the selection in Table 5)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells.nasbench201 import Cell
from cells.nasbench201.cell import NONE
from experiments.data import BENCHMARK, DATASET, functions_of
from experiments.frame import Claim, Interval, Study, Within
from experiments.plotting import COLOURS, COLUMN, metric_label, points
from ntkscore.analysis.comparison import ROBUST_MEAN, table_scores

TRAININGS = 3
"""Training seeds behind each accuracy of the table, which has their mean."""
SURE = 1.96
"""Standard errors to either side that hold 95 %."""
PRINTED = {
    "val_acc": (0.7946, 0.7928, 0.7842, 0.7456, 0.5320),
    "val_fgsm_3_acc": (0.6975, 0.6933, 0.6832, 0.6515, 0.4560),
    "val_pgd_3_acc": (0.6924, 0.6874, 0.6779, 0.6472, 0.4528),
    "val_pgd_8_acc": (0.4826, 0.4798, 0.4711, 0.4442, 0.3191),
}
"""Table 5 by metric and number of empty edges, as far as the benchmark has it."""


def seed_spread(accuracy: pd.Series, function: pd.Series, level: float, groups: int) -> float:
    """The standard deviation σ of an accuracy between single training seeds, as a fraction.

    Cells with one function are the same network, trained anew: their accuracies, each a mean of
    `TRAININGS`, vary by the seeds alone. The variance is pooled over the groups of such cells, so
    many of them, whose mean accuracy lies nearest to a level.
    """
    of = accuracy.groupby(function).agg(["size", "mean", "var"])
    of = of[of["size"] > 1]
    near = of.loc[(of["mean"] - level).abs().nsmallest(groups).index]
    freedom = near["size"] - 1
    return float((TRAININGS * (near["var"] * freedom).sum() / freedom.sum()) ** 0.5)


def measure(at: Any) -> Iterator[dict[str, object]]:
    """The most robust cell with so many empty edges: our accuracies beside the printed ones.

    The printed ones are of a single seed. `errors` is their distance from the mean of all n seeds
    of the cell's function in standard errors σ √(1 − 1/n), if the seed is one of these; `least`
    is that in σ √(1 + 1/n), if it is another.
    """
    accuracies = table_scores(at.data.table, at.dataset)
    empty = [Cell(int(cell)).operations.count(NONE) for cell in accuracies.index]
    best = Cell(int(accuracies[ROBUST_MEAN][np.equal(empty, at.empty)].idxmax()))
    function = pd.Series(functions_of(accuracies.index), accuracies.index)
    same = function == function[best.index]
    n = TRAININGS * int(same.sum())
    for metric, printed in PRINTED.items():
        mean, own = accuracies[metric][same].mean(), accuracies[metric][best.index]
        spread = seed_spread(accuracies[metric], function, own, at.groups)
        apart = abs(printed[at.empty] - mean) / spread
        yield {
            "best": best.digits,
            "metric": metric,
            "accuracy": own,
            "printed": printed[at.empty],
            "mean of the function": mean,
            "seeds": n,
            "spread": spread,
            "errors": apart / (1 - 1 / n) ** 0.5,
            "least": apart / (1 + 1 / n) ** 0.5,
        }


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """A row of Table 5 each, decided by its worst accuracy."""
    for empty, part in frame.groupby("empty"):
        worst = part.loc[part["errors"].idxmax()]
        text = f"{empty} empty edges: standard errors from {worst['best']}'s {worst['seeds']} seeds"
        found = Interval(worst["errors"], worst["least"], worst["errors"])
        yield Claim(text, ", ".join(f"{p:.4f}" for p in part["printed"]), found, Within(high=SURE))


def draw(frame: pd.DataFrame) -> Figure:
    """Accuracies, crosses: as printed; and how far these are from the mean of the seeds."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(COLUMN, 1.4 * COLUMN), sharex=True)
    for i, (metric, part) in enumerate(frame.groupby("metric", sort=False)):
        style = {"color": COLOURS[i], "markersize": 3}
        above.plot(part["empty"], part["accuracy"], "o-", label=metric_label(str(metric)), **style)
        above.plot(part["empty"], part["printed"], "x", color=COLOURS[i], markersize=6)
        rows = part.assign(value=part["errors"], low=part["least"], high=part["errors"])
        points(below, part["empty"] + 0.08 * (i - 1.5), rows, fmt="o", **style)
    above.plot([], [], "x", color="black", label="printed")
    above.set(ylabel="accuracy (fraction)", ylim=(0, 0.85))
    above.legend(loc="lower left", ncols=2)
    below.axhspan(0, SURE, color="0.9", zorder=0)
    best = frame.drop_duplicates("empty")
    below.set_xticks(best["empty"], best["empty"].astype(str) + "\n" + best["best"])
    below.set(ylabel="printed, from our mean\n(standard errors)", ylim=(0, None))
    below.set_xlabel("empty edges of six, and the best such cell")
    return figure


SPARSITY = Study(
    "The best cell for every number of empty edges (Table 5)",
    measure,
    {"empty": (0, 1, 2, 3, 4)},
    {"dataset": DATASET, "groups": 50},
    claims=claims,
    figure=draw,
    note="The best is by mean robust accuracy; the paper does not say by which, and names no "
    "cells. The spread between seeds is that of cells with one function, which are one network "
    "trained anew. Square and PGD beyond 8/255 need trained weights, which are not public.",
    needs=(BENCHMARK,),
    ours=False,
)
