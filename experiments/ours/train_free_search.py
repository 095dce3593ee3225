"""Search by the default score, which computes only what it visits, against ranking everything.

Networks are the distinct cells of the space; a cell that the recording lacks has the scores of its
representative in the table, as it has its accuracies. Queries look accuracies up: those of the
cells that score best among the visited, so that a search costs scores first and trainings then.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells import Cell, distinct_cells
from experiments.ours.measures import RECORDINGS, measured, recorded, settings
from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS, metric_label
from experiments.recordings import seconds_per_cell
from experiments.study import DATASET, METRIC, SPACE, Outcome, Study
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.run.search import METHODS, visit

STARTS = 100
BUDGETS = (50, 150, 500)
"""Cells that a search scores."""
QUERIES = (0, 10, 50, 150)
"""Accuracies that are looked up afterwards; with none, the best-scored cell is taken."""
LABELS = {"local": "local search", "evolution": "regularised evolution"}
EVERYTHING, RANDOM = "ranking everything", "random cells"
PAPER_LOCAL = 0.481
"""PGD 8/255 accuracy where the paper's local search ends, with 150 queries (its Table 2)."""


def scores_of_distinct(study: Study) -> pd.DataFrame:
    """The terms of the default score for every distinct cell, means over the seeds."""
    scores = measured(study)
    cells = [cell.index for cell in distinct_cells()]
    rows = scores.loc[[study.table.representative(cell) for cell in cells], list(DEFAULT.terms)]
    return rows.set_axis(pd.Index(cells, name="cell"))


def search(
    method: str, start: int, evaluate: Callable[[Sequence[Cell]], Mapping[Hashable, float]]
) -> list[int]:
    """The cells that one search visits with the largest budget, in their order."""
    rng = np.random.default_rng(start)
    return [cell.index for cell in visit(method, SPACE, evaluate, max(BUDGETS), rng)]


def by_score(scores: pd.DataFrame, method: str, start: int) -> list[int]:
    """The cells that a search by the default score visits."""
    visited: list[int] = []

    def evaluate(new: Sequence[Cell]) -> Mapping[Hashable, float]:
        visited.extend(cell.index for cell in new)
        return DEFAULT.of(scores.loc[visited]).fillna(-np.inf).to_dict()

    return search(method, start, evaluate)


def by_accuracy(accuracy: pd.Series, method: str, start: int) -> list[int]:
    """The cells that a search by accuracy visits; each is a query."""
    values: dict[Hashable, float] = accuracy.to_dict()
    return search(method, start, lambda new: values)


def picked(scores: pd.DataFrame, accuracy: pd.Series, visited: Sequence[int], queries: int) -> int:
    """The chosen cell: the best-scored, or the most accurate of those looked up."""
    order = DEFAULT.of(scores.loc[visited]).sort_values(ascending=False, kind="stable").index
    return int(order[0] if not queries else accuracy.loc[order[:queries]].idxmax())


def picks(scores: pd.DataFrame, accuracy: pd.Series) -> Iterator[tuple[str, int, int, int, int]]:
    """Every choice: method, start, cells scored, accuracies looked up, and the cell."""
    for queries in QUERIES:
        yield EVERYTHING, 0, len(scores), queries, picked(scores, accuracy, scores.index, queries)
    for start in range(STARTS):
        for method in METHODS:
            visited = by_score(scores, method, start)
            for budget in BUDGETS:
                for queries in (q for q in QUERIES if q <= budget):
                    cell = picked(scores, accuracy, visited[:budget], queries)
                    yield LABELS[method], start, budget, queries, cell
            visited = by_accuracy(accuracy, method, start)
            for queries in QUERIES[1:]:
                cell = int(accuracy.loc[visited[:queries]].idxmax())
                yield f"{LABELS[method]} by accuracy", start, 0, queries, cell
        shuffled = np.random.default_rng(start).permutation(scores.index.to_numpy())
        for queries in QUERIES[1:]:
            cell = int(accuracy.loc[shuffled[:queries]].idxmax())
            yield RANDOM, start, 0, queries, cell


def examine(study: Study, scores: pd.DataFrame) -> pd.DataFrame:
    """A row for every choice, with its accuracies on all data sets and its rank on one."""
    accuracies = {
        dataset: pd.Series(accuracy, index=scores.index)
        for dataset, accuracy in study.accuracies(scores.index).items()
    }
    own = np.array(study.table.accuracies(DATASET, METRIC))
    columns = ["method", "start", "scored", "queries", "cell"]
    frame = pd.DataFrame(picks(scores, accuracies[DATASET]), columns=columns)
    for dataset, accuracy in accuracies.items():
        frame[dataset] = accuracy.loc[frame["cell"]].to_numpy()
    return frame.assign(rank=[1 + int((own > reached).sum()) for reached in frame[DATASET]])


def table_of(frame: pd.DataFrame, seconds: float) -> Iterator[dict[str, object]]:
    """A row per way of choosing: its cost, and means over the starts of what it chose."""
    ways = frame.groupby(["method", "scored", "queries"], sort=False)
    for (method, scored, queries), part in ways:
        row: dict[str, object] = {
            "method": method,
            "cells scored": scored,
            "accuracies looked up": queries,
            "minutes of scoring": f"{scored * seconds / 60:.1f}",
            "starts": len(part),
        }
        row |= {label: f"{part[name].mean():.4f}" for name, label in DATASET_LABELS.items()}
        low, high = part[DATASET].quantile([0.025, 0.975])
        row["95 % of starts"] = f"{low:.4f} to {high:.4f}"
        row["median rank"] = f"{part['rank'].median():.0f}"
        yield row


def draw(frame: pd.DataFrame) -> Figure:
    """Accuracy of the choice against accuracies looked up, a line for each way of choosing."""
    figure, axis = plt.subplots(figsize=(1.5 * COLUMN, COLUMN))
    shown = frame[frame["scored"].isin([0, 150, frame["scored"].max()])]
    groups = shown.groupby(["method", "scored"], sort=False)
    for colour, ((method, scored), part) in zip(COLOURS, groups, strict=False):
        means = part.groupby("queries")[DATASET].mean()
        label = f"{method}, {scored:,} scored" if scored else str(method)
        axis.plot(means.index, means, "o-", color=colour, markersize=3, linewidth=1, label=label)
    paper = "the paper's local search"
    axis.plot(QUERIES[-1], PAPER_LOCAL, "x", color="black", markersize=6, label=paper)
    axis.set_xscale("symlog", linthresh=10)
    axis.set_xticks(QUERIES, [str(q) for q in QUERIES])
    axis.set_xlabel("accuracies looked up")
    axis.set_ylabel(f"{metric_label(METRIC)} accuracy, {DATASET_LABELS[DATASET]}")
    figure.legend(loc="outside upper center", ncols=2, fontsize=7)
    return figure


def run(study: Study) -> Outcome:
    """Searches of both kinds, and ranking everything, with and without queries."""
    frame = examine(study, scores_of_distinct(study))
    seeds = recorded(study)["seed"].nunique()
    cost = seeds * seconds_per_cell(study.result_set(RECORDINGS[0]))
    return Outcome(
        frame,
        draw(frame),
        settings(study) | {"starts": STARTS, "budgets": BUDGETS, "queries": QUERIES},
        (
            f"By {DEFAULT}, means of {seeds} seeds, among the cells visited so far; accuracies "
            f"looked up are {metric_label(METRIC)} on {DATASET_LABELS[DATASET]}. Scoring takes "
            f"{cost:.2f} s a cell and its {seeds} seeds on the recording's devices.",
            f"The paper's local search ends at {PAPER_LOCAL} after 150 accuracies (its Table 2).",
        ),
        summary=pd.DataFrame(table_of(frame, cost)),
    )
