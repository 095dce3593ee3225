"""Kernel scores of cells that were trained without attacks, given counts.

In short, the protocol that was written before this study was run: judged is APGD-CE at 1/255
alone, by the partial coefficients of the NTK-score given the eight counts of study `measures` and
their squares, attacked less clean and attacked twice less clean, by the rule of the claims. Clean
accuracy and the other attacks are shown, to see if one attack stands alone.

What led to it had been counted once, without interval: under APGD-CE at 1/255 the parameter count
has a Spearman coefficient of about −.04 with the older table's accuracies, and given eight counts
the NTK-score has .21 (clean images), .23 (attacked), .24 (attacked twice). So the study says how
sure these are on this table, not that they are new.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.data import DATASET, KERNELS, OLDER, SPACE
from experiments.frame import Claim, Stronger, Study
from experiments.paper.contrasts import (
    NOTABLE,
    by_seed,
    coefficients,
    interval,
    intervals,
    sure_interval,
)
from experiments.paper.measures import HELD_EQUAL
from experiments.plotting import annotate, beside, grey_band, metric_label, panels
from ntkscore.analysis.frames import cost_table

JUDGED = "val_apgd_ce_1_acc"
METRICS = ("val_acc", "val_fgsm_1_acc", "val_pgd_1_acc", "val_square_1_acc", JUDGED)
TITLES = {
    "spearman": "coefficient",
    "given counts": "given eight counts",
    "less clean": "given counts, less clean images",
}
LABELS = {"clean": "clean images", "robust": "attacked", "twice": "attacked twice"}


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """By metric and kernel: Spearman, that given counts, and the latter less the clean kernel's."""
    rows = at.data.rows(at.run)
    rows = rows[(rows["score"] == at.score) & rows["kernel"].isin(KERNELS)]
    scores = by_seed(rows.astype({"kernel": str}), "kernel")
    counts = cost_table(scores.index, SPACE)
    accuracy = at.data.older.accuracies(DATASET, at.metric, [int(cell) for cell in scores.index])
    given = coefficients(scores, accuracy, counts[[*HELD_EQUAL]].to_numpy(float))
    sizes = pd.concat({("params", 0): counts["params"]}, axis=1)
    alone = coefficients(scores, accuracy) | coefficients(sizes, accuracy)
    for what, found in {"spearman": alone, "given counts": given}.items():
        for (kernel,), samples in found.items():
            yield {"kernel": kernel, "what": what, **interval(samples)._asdict()}
    for (kernel,), samples in given.items():
        less = sure_interval(samples - given["clean",])
        yield {"kernel": kernel, "what": "less clean", **less._asdict()}


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Kernels at attacked images above those at clean ones, given counts."""
    judged = frame[(frame["metric"] == JUDGED) & (frame["what"] == "less clean")]
    for kernel in KERNELS[1:]:
        (found,) = intervals(judged[judged["kernel"] == kernel])
        text = f"images {LABELS[kernel]}: the NTK-score knows more beside counts than at clean ones"
        yield Claim(text, "", found, Stronger(NOTABLE), ours=True)


def figure(frame: pd.DataFrame) -> Figure:
    """By metric: coefficients of kernels and size, those given counts, and these less the clean."""
    drawn, axes = panels(3, 0.75)
    frame = frame.replace({"kernel": LABELS | {"params": "parameter count"}})
    frame["metric"] = frame["metric"].map(metric_label).str.removesuffix("/255")
    for axis, (what, title) in zip(axes, TITLES.items(), strict=True):
        rows = frame[frame["what"] == what]
        beside(axis, rows, "metric", "kernel", list(frame["metric"].unique()), 0.2)
        grey_band(axis, NOTABLE if what == "less clean" else 0)
        axis.tick_params(axis="x", rotation=40)
        axis.set_title(title)
    axes[0].set_ylabel("Spearman with accuracy")
    annotate(drawn, axes[0], "accuracy of cells trained without attacks; radius × 255", 4)
    return drawn


STANDARD_TRAINING = Study(
    "Kernel scores given counts, on cells trained without attacks",
    measure,
    cases={"metric": METRICS},
    fixed={"run": "space", "score": "frobenius"},
    claims=claims,
    figure=figure,
    note="Judged by a protocol that was written before the run, on APGD-CE at 1/255 alone. Its "
    "coefficients had been seen before, their intervals had not.",
    needs=(OLDER,),
)
