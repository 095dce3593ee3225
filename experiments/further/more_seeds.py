"""Whether kernels add little to counts, or three seeds of 16 images say too little of them.

The protocol was committed before the seeds were computed. A pilot of 160 functions by others (nine
more seeds) had λ_min/trace rise from .39 with three seeds to .51 with twelve, beside counts.

1. Cells are the 1,000 of the recordings `radii` and `findings`, drawn from the table. They have
   thirteen seeds more than the three recorded, at the same fidelity. (All distinct functions would
   take four hours; the intervals say whether 1,000 cells decide.)
2. A measure is worth its partial Spearman coefficient with PGD 8/255 accuracy, given eight counts
   and their squares, on three data sets. With k seeds it is the mean over sixteen draws of k of the
   sixteen seeds, and a score is the mean over the seeds drawn. Sums of counts with one measure are
   worth the four lines of the study `default-order`.
3. Intervals are of 95 %, by bootstrap over functions, the same draws for all measures and numbers
   of seeds: differences are paired. They say nothing about other seeds.
4. Questions are about all sixteen seeds, and an answer has to hold on each data set. Does
   λ_min/trace gain over three seeds? Does the robust kernel's stand above the clean one's? Does
   either stand above expressivity? Does the default order gain, does it stand above counts with
   expressivity, and does it pick better than counts? Differences of coefficients are worth a note
   from .02 on, of picks from .1 points on.
5. Images or seeds: 500 of the cells with 48 images and three seeds, against nine seeds of 16
   images, which are as many images.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.data import BENCHMARK, KERNELS, METRIC, SPACE, functions_of, sum_named
from experiments.frame import Claim, Stronger, Study
from experiments.further.default_order import LINES, lines, pools_among
from experiments.further.devices import BY_KERNEL, COUNTS, WORTH
from experiments.paper.contrasts import (
    NOTABLE,
    by_seed,
    interval,
    intervals,
    partials,
    side_by_side,
)
from experiments.paper.measures import HELD_EQUAL
from experiments.plotting import DATASET_LABELS, annotate, mark_values, panels
from experiments.recordings import MORE_IMAGES, MORE_SEEDS, OF_SEEDS
from ntkscore.analysis.correlation import draws
from ntkscore.analysis.frames import network_table

CLEAN, ROBUST, TWICE = (f"{kernel}.lambda_min_normalized" for kernel in KERNELS)
EXPRESSIVITY = "clean.expressivity"
BY_EXPRESSIVITY = f"{COUNTS}+{EXPRESSIVITY}"
SUMS = COUNTS, BY_KERNEL, BY_EXPRESSIVITY
ALL, SHARED = "1,000 cells", "500 cells"
FEW, NINE, EVERY, IMAGES = "3", "9", "16", "3 of 48 images"
PARTIAL = "beside counts"
SPEARMAN, TENTH, PICK, _ = LINES


class Asked(NamedTuple):
    """A measure or sum, what it is worth, and from how many seeds."""

    measure: str
    line: str = PARTIAL
    seeds: str = EVERY


class Question(NamedTuple):
    """Whether the first is worth more than the second, and from which difference on."""

    text: str
    first: Asked
    second: Asked
    notable: float = NOTABLE


QUESTIONS = {
    ALL: (
        Question("λ_min/trace: sixteen seeds above three", Asked(CLEAN), Asked(CLEAN, seeds=FEW)),
        Question(
            "expressivity: sixteen seeds above three",
            Asked(EXPRESSIVITY),
            Asked(EXPRESSIVITY, seeds=FEW),
        ),
        Question(
            "λ_min/trace of the robust kernel above the clean one's", Asked(ROBUST), Asked(CLEAN)
        ),
        Question(
            "λ_min/trace of the clean kernel above expressivity", Asked(CLEAN), Asked(EXPRESSIVITY)
        ),
        Question(
            "λ_min/trace of the robust kernel above expressivity",
            Asked(ROBUST),
            Asked(EXPRESSIVITY),
        ),
        Question(
            "the default order: sixteen seeds above three",
            Asked(BY_KERNEL, SPEARMAN),
            Asked(BY_KERNEL, SPEARMAN, FEW),
            0,
        ),
        Question(
            "the default order in the best tenth: sixteen seeds above three",
            Asked(BY_KERNEL, TENTH),
            Asked(BY_KERNEL, TENTH, FEW),
            0,
        ),
        Question(
            "the default order above counts with expressivity",
            Asked(BY_KERNEL, SPEARMAN),
            Asked(BY_EXPRESSIVITY, SPEARMAN),
            0,
        ),
        Question(
            "picks of 100 by the default order above those by counts, in points",
            Asked(BY_KERNEL, PICK),
            Asked(COUNTS, PICK),
            WORTH,
        ),
    ),
    SHARED: (
        Question(
            "λ_min/trace: three seeds of 48 images above nine of 16",
            Asked(CLEAN, seeds=IMAGES),
            Asked(CLEAN, seeds=NINE),
        ),
    ),
}
"""What is asked of some cells. Measures stand beside counts."""


def recorded(data: Any, *names: str) -> pd.DataFrame:
    """Measures of the cells that all seeds have; columns by measure and seed."""
    rows = pd.concat([data.rows(name) for name in names], ignore_index=True)
    measures = rows["kernel"] + "." + rows["score"]
    return by_seed(rows.assign(measure=measures)[measures.isin(OF_SEEDS)], "measure")


def mean_over(scores: pd.DataFrame, seeds: Any) -> pd.DataFrame:
    """Means over some seeds, a column for each measure."""
    chosen = scores.loc[:, scores.columns.get_level_values("seed").isin(seeds)]
    return chosen.T.groupby(level=0).mean().T[[*OF_SEEDS]]


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """A row for each data set, number of seeds, measure and line, and for each question."""
    scores, more = recorded(at.data, "space", MORE_SEEDS), recorded(at.data, MORE_IMAGES)
    if at.cells == SHARED:
        scores = scores.loc[scores.index.intersection(more.index)]
    seeds, cells = scores.columns.unique("seed"), list(scores.index)
    rng = np.random.default_rng(at.seed)
    tables = {
        str(k): [mean_over(scores, rng.choice(seeds, k, replace=False)) for _ in range(at.draws)]
        for k in at.counts
    }
    if at.cells == SHARED:
        tables[IMAGES] = [mean_over(more.loc[cells], more.columns.unique("seed"))]
    held = network_table(at.data.rows("space"), SPACE).loc[cells, [*HELD_EQUAL]]
    groups = functions_of(cells)
    taken = [np.arange(len(cells)), *draws(len(cells), at.resamples, at.seed, groups)]
    pools = [pools_among(rng, len(drawn), at.pools) for drawn in taken]
    for dataset in at.data.table.datasets:
        accuracy = np.array(at.data.table.accuracies(dataset, METRIC, cells))
        worth: dict[Asked, np.ndarray] = {}
        for count, some in tables.items():
            values = np.hstack([each.to_numpy() for each in some])
            found = partials(values, accuracy, held.to_numpy(), at.resamples, at.seed, groups)
            of_each = found.reshape(len(found), len(some), len(OF_SEEDS)).mean(1)
            for name, samples in zip(OF_SEEDS, of_each.T, strict=True):
                worth[Asked(name, seeds=count)] = samples
            joined = [each.join(held) for each in some]
            values = np.array([sum_named(name).of(each) for each in joined for name in SUMS])
            pairs = zip(taken, pools, strict=True)
            found = np.array([lines(values, accuracy, *each) for each in pairs])
            of_each = found.reshape(len(found), len(some), -1).mean(1)
            for of, samples in zip(itertools.product(SUMS, LINES), of_each.T, strict=True):
                worth[Asked(*of, seeds=count)] = samples
        for asked, samples in worth.items():
            of = interval(samples, at.resamples)._asdict()
            yield asked._asdict() | {"dataset": dataset, **of}
        for question in QUESTIONS[at.cells]:
            gain = interval(worth[question.first] - worth[question.second], at.resamples)
            yield {"question": question.text, "dataset": dataset, **gain._asdict()}


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What more seeds change, and what more images do instead."""
    for cells, questions in QUESTIONS.items():
        for asked in questions:
            part = frame[(frame["cells"] == cells) & (frame["question"] == asked.text)]
            yield Claim(asked.text, "", intervals(part), Stronger(asked.notable), ours=True)


DRAWN = {
    CLEAN: "λ_min/trace, clean kernel",
    ROBUST: "λ_min/trace, robust kernel",
    TWICE: "λ_min/trace, attacked twice",
    EXPRESSIVITY: "expressivity",
    "clean.naswot": "NASWOT",
    "clean.jacov": "jacov",
    "robust.frobenius": "NTK-score, ‖robust kernel‖",
}


def beside_counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Partial coefficients of what is drawn on all cells, with numbers of seeds as numbers."""
    part = frame[(frame["cells"] == ALL) & (frame["line"] == PARTIAL)]
    part = part[part["measure"].isin([*DRAWN])]
    return part.assign(seeds=part["seeds"].astype(int))


def figure(frame: pd.DataFrame) -> Figure:
    """Partial coefficients against the number of seeds."""
    drawn, axes = panels(3, together=True)
    part = beside_counts(frame).set_index(["dataset", "measure"])
    for axis, (dataset, title) in zip(axes, DATASET_LABELS.items(), strict=True):
        for name, label in DRAWN.items():
            of = part.loc[(dataset, name)].sort_values("seeds")
            axis.plot(of["seeds"], of["value"], "o-", markersize=3, label=label)
            axis.fill_between(of["seeds"], of["low"], of["high"], alpha=0.12, lw=0)
        axis.set(xscale="log", title=title)
        mark_values(axis, sorted(part["seeds"].unique()))
    axes[0].set_ylabel("partial Spearman, given counts")
    annotate(drawn, axes[0], "seeds of 16 images; bands: 95 % over functions", 3)
    return drawn


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Partial coefficients of each measure by the number of seeds, on the three data sets."""
    found = side_by_side(beside_counts(frame), "measure", "seeds")
    return found.loc[[*DRAWN]].rename(DRAWN).reset_index()


STUDY = Study(
    "What more seeds say of kernels beside counts",
    measure,
    cases={"cells": (ALL, SHARED)},
    fixed={
        "counts": (1, 2, 3, 6, 9, 12, 16),
        "draws": 16,
        "resamples": 200,
        "pools": 50,
        "seed": 0,
    },
    claims=claims,
    figure=figure,
    table=table,
    note="Table: partial Spearman coefficients with PGD 8/255 accuracy given eight counts, on "
    "CIFAR-10, CIFAR-100 and ImageNet16-120, by the number of seeds. Each is a mean over draws of "
    "so many of sixteen seeds.",
    needs=(BENCHMARK, "space", MORE_SEEDS, MORE_IMAGES),
)
