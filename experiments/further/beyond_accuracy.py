"""What a measure knows of robustness beyond accuracy: robust accuracy, given the clean one.

The protocol was committed before this was run. Others had computed on these cells, given the clean
accuracy, .73 / .71 / .56 for the NTK-score (the norm of the robust kernel), .51 / .54 / .43 for the
parameter count and .60 / .71 / .59 for the default order before; given eight counts as well, .30 /
.05 / −.09 for the NTK-score. So this is a check with intervals, and no blind test.

1. Cells are those of the table whose measures did not fail; scores are means of three seeds.
2. A measure is worth its partial Spearman coefficient with accuracy under PGD 8/255, given nothing;
   the clean accuracy of the same network; that and eight counts; the clean accuracy of the same
   cell trained without attacks (CIFAR-10 alone, whose table has it). Of what is given the squares
   of the ranks are, too.
3. Intervals are of 95 %, by bootstrap over functions; differences are paired.
4. An answer has to hold on each data set, and is worth a note from .02 on. Does the NTK-score know
   more than the parameter count, and more than the clean kernel's norm, given the clean accuracy?
   Does it know anything given counts as well? Does the kernel attacked twice know more than the
   robust one? Does the default order know more than the NTK-score?
5. The sign of a measure is that of its coefficient without anything given, on CIFAR-10.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.data import BENCHMARK, DATASET, DEFAULT, METRIC, OLDER, functions_of
from experiments.frame import Claim, Interval, Stronger, Study
from experiments.further.default_order import CLEAN
from experiments.further.devices import COUNTS
from experiments.paper.contrasts import NOTABLE, interval, intervals, partials, side_by_side
from experiments.paper.measures import HELD_EQUAL, RECORDINGS, measured
from experiments.plotting import DATASET_LABELS, annotate, panels

NOTHING, ACCURACY = "nothing", "clean accuracy"
WITH_COUNTS, STANDARD = "clean accuracy and counts", "clean accuracy, trained without attacks"
SCORE, ORDER = "robust.frobenius", str(DEFAULT)
MEASURES = {
    SCORE: "NTK-score: norm of the robust kernel",
    "clean.frobenius": "norm of the clean kernel",
    "twice.frobenius": "norm of the kernel attacked twice",
    "robust.lambda_min_normalized": "λ_min/trace of the robust kernel",
    "clean.lambda_min_normalized": "λ_min/trace of the clean kernel",
    "robust.expressivity": "expressivity, attacked images",
    "clean.expressivity": "expressivity",
    "clean.naswot": "NASWOT",
    "clean.vkdnw": "VKDNW",
    "clean.zico": "ZiCo",
    "network.synflow": "SynFlow",
    "clean.jacov": "jacov",
    "params": "parameters",
    COUNTS: "four counts",
    ORDER: "the default order",
}
PAIRS = {
    "the NTK-score above the parameter count": (SCORE, "params"),
    "the NTK-score above the clean kernel's norm": (SCORE, "clean.frobenius"),
    "the norm of the kernel attacked twice above the NTK-score": ("twice.frobenius", SCORE),
    "the default order above the NTK-score": (ORDER, SCORE),
}
"""Which of two knows more, given the clean accuracy."""


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """A row for each data set, what is given, and measure or difference of two."""
    scores = measured(at.data)[[*dict.fromkeys([*MEASURES, *HELD_EQUAL])]].dropna()
    cells, groups = [int(cell) for cell in scores.index], functions_of(scores.index)
    values, counts = scores[[*MEASURES]].to_numpy(float), scores[[*HELD_EQUAL]].to_numpy(float)
    signs = None
    for dataset in at.data.table.datasets:
        accuracy, own = (
            np.array(at.data.table.accuracies(dataset, metric, cells)) for metric in (METRIC, CLEAN)
        )
        given = {NOTHING: counts[:, :0], ACCURACY: own[:, None]}
        given[WITH_COUNTS] = np.column_stack([own, counts])
        if dataset == DATASET:
            given[STANDARD] = np.array(at.data.older.accuracies(DATASET, "clean", cells))[:, None]
        for what, columns in given.items():
            found = partials(values, accuracy, columns, at.resamples, at.seed, groups)
            signs = np.sign(found[0]) if signs is None else signs
            of = dict(zip(MEASURES, (signs * found).T, strict=True))
            of |= {text: of[more] - of[less] for text, (more, less) in PAIRS.items()}
            for name, samples in of.items():
                row = {"dataset": dataset, "given": what, "measure": name, "cells": len(cells)}
                yield row | interval(samples, at.resamples)._asdict()


def found(frame: pd.DataFrame, name: str, given: str = ACCURACY) -> list[Interval]:
    """The intervals of a measure, or of a difference, on the three data sets."""
    return intervals(frame[(frame["measure"] == name) & (frame["given"] == given)])


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What is known beyond the clean accuracy."""
    for text in PAIRS:
        yield Claim(
            f"given clean accuracy: {text}", "", found(frame, text), Stronger(NOTABLE), True
        )
    text = "given clean accuracy and counts: the NTK-score still knows something"
    yield Claim(text, "", found(frame, SCORE, WITH_COUNTS), Stronger(NOTABLE), True)


def figure(frame: pd.DataFrame) -> Figure:
    """Partial coefficients, given the clean accuracy, and given counts as well."""
    drawn, axes = panels(2, 1.2, together=True)
    drawn.set_figheight(3.2)
    for axis, given in zip(axes, (ACCURACY, WITH_COUNTS), strict=True):
        part = frame[(frame["given"] == given) & frame["measure"].isin([*MEASURES])]
        for (dataset, label), shift in zip(DATASET_LABELS.items(), (-0.2, 0, 0.2), strict=True):
            of = part[part["dataset"] == dataset].set_index("measure").loc[[*MEASURES]]
            places = np.arange(len(of)) + shift
            (line,) = axis.plot(of["value"], places, "o", ms=3, label=label)
            axis.hlines(places, of["low"], of["high"], color=line.get_color(), lw=1)
        axis.axvline(0, color="0.5", lw=0.6)
        axis.set(title=f"given {given}")
        axis.grid(axis="y", linewidth=0.3)
    axes[0].set_yticks(range(len(MEASURES)), [*MEASURES.values()], fontsize=7)
    axes[0].invert_yaxis()
    annotate(drawn, axes[0], "partial Spearman with accuracy under PGD 8/255", 3)
    return drawn


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each measure: its coefficients on the three data sets, by what is given."""
    part = frame[frame["measure"].isin([*MEASURES])]
    part = part.dropna(subset="value")  # such as of what is given itself
    joined = side_by_side(part, "measure", "given").loc[
        [*MEASURES], [NOTHING, ACCURACY, WITH_COUNTS, STANDARD]
    ]
    return joined.fillna("").rename(MEASURES).reset_index()


STUDY = Study(
    "What measures know of robustness beyond accuracy",
    measure,
    fixed={"resamples": 500, "seed": 0},
    claims=claims,
    figure=figure,
    table=table,
    note="Partial Spearman coefficients with accuracy under PGD 8/255, on CIFAR-10, CIFAR-100 and "
    "ImageNet16-120, by what is given; the last column is of CIFAR-10. Clean accuracy is that of "
    "the same adversarially trained network, but for the last column.",
    needs=(BENCHMARK, OLDER, *RECORDINGS),
)
