"""Cells found by searches in the table, and by scores without training (Tables 2 and 7).

A search looks cells up by index among all 15,625; a cell without results of its own has its
representative's. It is an endless stream of the cells it looks up; `first_distinct` stops it at a
budget, so that looking a cell up again costs nothing. Those of `ntkscore.run.search` take other
steps: they evaluate several networks at a time.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells.nasbench201 import SIZE, Cell, all_cells
from experiments.data import BENCHMARK, DATASET, METRIC, METRICS, single_seeds, sum_named
from experiments.frame import Claim, Interval, Study, Within, exact, near
from experiments.paper.measures import with_counts
from experiments.plotting import COLOURS, COLUMN, metric_label
from experiments.recordings import INSTANCE_LOSS
from ntkscore.analysis.comparison import ROBUST_MEAN, table_scores
from ntkscore.analysis.frames import pick_rho
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.run.search import POPULATION, TOURNAMENT

OPTIMUM, SCORES, ROWS = "optimum", "train-free scores", "printed rows"
TABLE_2 = {
    ("", OPTIMUM): (0.794, 0.698, 0.692, 0.537, 0.482),
    ("val_acc", "regularised evolution"): (0.791, 0.693, 0.688, 0.530, 0.476),
    ("val_acc", "random search"): (0.779, 0.682, 0.676, 0.520, 0.470),
    ("val_acc", "local search"): (0.796, 0.697, 0.692, 0.533, 0.478),
    ("val_fgsm_8_acc", "regularised evolution"): (0.790, 0.693, 0.688, 0.532, 0.478),
    ("val_fgsm_8_acc", "random search"): (0.774, 0.679, 0.674, 0.521, 0.471),
    ("val_fgsm_8_acc", "local search"): (0.794, 0.695, 0.689, 0.535, 0.481),
    ("val_pgd_8_acc", "regularised evolution"): (0.789, 0.692, 0.686, 0.531, 0.478),
    ("val_pgd_8_acc", "random search"): (0.771, 0.676, 0.671, 0.520, 0.471),
    ("val_pgd_8_acc", "local search"): (0.794, 0.695, 0.689, 0.535, 0.481),
}
"""Printed accuracies by guide and method, in the order of `METRICS`, without AutoAttack."""
TABLE_7 = {
    "DARTS": (0.332, 0.286, 0.285, 0.215, 0.213),
    "AdvRush": (0.587, 0.492, 0.489, 0.352, 0.330),
    "NASI": (0.666, 0.571, 0.567, 0.410, 0.379),
    "KNAS": (0.767, 0.675, 0.670, 0.521, 0.472),
    "EigenNAS": (0.766, 0.674, 0.668, 0.520, 0.471),
    "NASWOT": (0.766, 0.674, 0.668, 0.520, 0.471),
}
"""Printed accuracies of the methods that train a network of all operations, or none."""
ROUNDING = 0.0005 + 1e-9
"""Half a unit in the printed third digit, plus float error."""
SURE = Within(high=1.96)


KNAS_RUN = f"findings/{INSTANCE_LOSS}-fgsm"
PICKS = {
    # The methods' own conventions: the norm of the kernel of the loss, images by their own
    # statistics; the trace, which stands in for λ_min; the determinant of equal states.
    "KNAS": ("clean.frobenius", KNAS_RUN, 1),
    "EigenNAS": ("clean.trace", "space", 1),
    "NASWOT": ("clean.naswot", "space", 1),
    "parameter count": ("params", "space", 1),
    "robust Frobenius norm": ("robust.frobenius", "space", 1),
    "robust λ_min": ("robust.lambda_min", "space", 1),
    "robust λ_min/trace": ("robust.lambda_min_normalized", "space", 1),
    "the default score": (str(DEFAULT), "space", 1),
    "the default score, first 10": (str(DEFAULT), "space", 10),
    "the default score, first 50": (str(DEFAULT), "space", 50),
}
"""Scores and their recordings, and of how many first cells the accuracy is looked up."""


@cache
def cell_neighbours() -> np.ndarray:
    """The 24 neighbours of every cell of the space, shape (15625, 24), indices."""
    return np.array([[other.index for other in cell.neighbours()] for cell in all_cells()])


def first_distinct(stream: Iterable[int], budget: int, patience: int = 1000) -> np.ndarray:
    """The first `budget` distinct cells of a stream, in order of appearance, shape (budget,).

    After `patience` repeats in a row a search counts as stuck, and the stream ends.
    """
    visited: dict[int, None] = {}
    repeats = 0
    for cell in stream:
        repeats = repeats + 1 if cell in visited else 0
        visited.setdefault(cell)
        if len(visited) >= budget or repeats >= patience:
            break
    return np.fromiter(visited, np.intp, len(visited))


def random_search(
    accuracy: np.ndarray, neighbours: np.ndarray, rng: np.random.Generator
) -> Iterator[int]:
    """Cells drawn without replacement.

    Source: Li and Talwalkar (2020), "Random search and reproducibility for NAS".
    """
    yield from rng.permutation(len(accuracy)).tolist()


def regularised_evolution(
    accuracy: np.ndarray,
    neighbours: np.ndarray,
    rng: np.random.Generator,
    population: int = POPULATION,
    tournament: int = TOURNAMENT,
) -> Iterator[int]:
    """Mutants of the best of a tournament, drawn with replacement; the oldest dies.

    The first cells alive are random.

    Source: Real et al. (2019), "Regularized evolution for image classifier architecture search".
    """
    alive = deque(rng.integers(len(accuracy), size=population).tolist(), maxlen=population)
    yield from alive
    while True:
        drawn = np.array(alive)[rng.integers(population, size=tournament)]
        parent = drawn[np.argmax(accuracy[drawn])]
        mutant = int(neighbours[parent, rng.integers(neighbours.shape[1])])
        alive.append(mutant)
        yield mutant


def local_search(
    accuracy: np.ndarray, neighbours: np.ndarray, rng: np.random.Generator
) -> Iterator[int]:
    """Moves to the first better neighbour; where none is better, starts anew at a random cell.

    Source: White et al. (2021), "Exploring the loss landscape in neural architecture search".
    """
    while True:
        here = int(rng.integers(len(accuracy)))
        yield here
        climbing = True
        while climbing:
            climbing = False
            for cell in rng.permutation(neighbours[here]).tolist():
                yield cell
                if accuracy[cell] > accuracy[here]:
                    here, climbing = cell, True
                    break


Searcher = Callable[[np.ndarray, np.ndarray, np.random.Generator], Iterator[int]]
SEARCHERS: dict[str, Searcher] = {
    "regularised evolution": regularised_evolution,
    "random search": random_search,
    "local search": local_search,
}


def searched(
    method: str, accuracy: np.ndarray, neighbours: np.ndarray, key: Sequence[int], at: Any
) -> list[int]:
    """The best cell that each of many runs looks up, each with a random generator of its own."""
    found = []
    for run in range(at.runs):
        rng = np.random.default_rng([at.seed, *key, run])
        looked_up = first_distinct(SEARCHERS[method](accuracy, neighbours, rng), at.queries)
        found.append(int(looked_up[np.argmax(accuracy[looked_up])]))
    return found


def by_seed(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Scores, costs and counts at 8/255, joint ones at β = 0.5; a table for each seed."""
    return [with_counts(one) for one in single_seeds(pick_rho(rows, 8 / 255))]


def scored(scores: pd.DataFrame, name: str, first: int, accuracy: np.ndarray) -> int:
    """The cell that scores best, or the most accurate of the first."""
    values = sum_named(name).of(scores).dropna().sort_values(ascending=False, kind="stable")
    cells = values.index[:first].to_numpy()
    return int(cells[np.argmax(accuracy[cells])])


def chosen(
    at: Any, accuracies: dict[str, np.ndarray]
) -> Iterator[tuple[str, str, int, list[int], Sequence[float]]]:
    """Of each way: method, guide, accuracies looked up, the cells of its runs, printed numbers."""
    if at.way in SEARCHERS:
        for i, guide in enumerate(at.guides):
            key = [*SEARCHERS].index(at.way), i
            cells = searched(at.way, accuracies[guide], cell_neighbours(), key, at)
            yield at.way, guide, at.queries, cells, TABLE_2[guide, at.way]
    elif at.way == SCORES:
        tables = {name: by_seed(at.data.rows(name)) for name in ("space", KNAS_RUN)}
        for method, (name, run, first) in PICKS.items():
            cells = [scored(one, name, first, accuracies[METRIC]) for one in tables[run]]
            guide, queries = (METRIC, first) if first > 1 else ("", 0)
            yield method, guide, queries, cells, TABLE_7.get(method, ())
    elif at.way == ROWS:
        own = np.array(at.data.table.own)
        for method, printed in TABLE_7.items():
            pairs = zip(METRICS, printed, strict=False)
            apart = np.max([np.abs(accuracies[metric][own] - value) for metric, value in pairs], 0)
            order = np.argsort(apart, kind="stable")
            cells = own[order[: np.sum(apart < at.apart)]].tolist()
            yield method, "", len(own), cells, printed
    else:
        robust = table_scores(at.data.table, at.dataset)[ROBUST_MEAN]
        yield at.way, "", len(robust), [int(robust.idxmax())], TABLE_2["", at.way]


def standard_errors(apart: float, error: float) -> float:
    """How far a printed mean is from ours, in errors of a difference of two means like ours.

    Rounding is taken off. Where all runs end alike, any distance is beyond chance.
    """
    beyond = max(apart - ROUNDING, 0.0)
    if error == 0:
        return np.inf if beyond > 0 else 0.0
    return beyond / (2**0.5 * error)


def measure(at: Any) -> Iterator[dict[str, object]]:
    """Accuracies of the chosen cells, a row per method, guide and metric.

    Columns: mean over the runs, or seeds; `low` and `high`, which hold 95 % of these; the printed
    mean; and `errors`, how far that is from ours. Of a printed row the cells are all that have
    it, up to a distance in each of the five accuracies.
    """
    everything = range(SIZE)
    accuracies = {m: at.data.table.accuracies(at.dataset, m, everything) for m in METRICS}
    for method, guide, queries, cells, known in chosen(at, accuracies):
        named = " ".join(dict.fromkeys(Cell(cell).digits for cell in cells[:5]))
        way = {"method": method, "guide": guide, "queries": queries, "runs": len(cells)}
        printed_by: dict[str, float] = dict(zip(METRICS, known, strict=False))
        for metric, accuracy in accuracies.items():
            found, printed = accuracy[cells], printed_by.get(metric, np.nan)
            low, high = np.quantile(found, [0.025, 0.975])
            deviation = found.std(ddof=1) if len(found) > 1 else np.nan
            error, apart = deviation / len(found) ** 0.5, abs(found.mean() - printed)
            yield way | {
                "cells": named,
                "metric": metric,
                "mean": found.mean(),
                "low": low,
                "high": high,
                "error": error,
                "printed": printed,
                "errors": standard_errors(apart, error),
            }


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Table 2 by method, the picks of Table 7, and which cells its rows are."""
    pgd = frame[frame["metric"] == METRIC]
    for method, part in pgd[pgd["way"].isin([*SEARCHERS])].groupby("way", sort=False):
        text = f"{method}, three guides: standard errors from the printed means"
        shown = ", ".join(f"{value:.3f}" for value in part["printed"])
        yield Claim(text, shown, [exact(value) for value in part["errors"]], SURE)
    means = frame[frame["way"].isin([*SEARCHERS]) & frame["printed"].notna()]
    text = f"Share of all {len(means)} printed means of searches so near"
    yield Claim(text, "all", exact((means["errors"] <= SURE.high).mean()), Within(low=0.95))
    for row in pgd[pgd["way"].isin([OPTIMUM, SCORES]) & pgd["printed"].notna()].to_dict("records"):
        found, rule = Interval(row["mean"], row["low"], row["high"]), near(row["printed"], 0.005)
        text = f"PGD 8/255 accuracy: {row['method']}" + ("" if row["way"] == OPTIMUM else "'s pick")
        yield Claim(text, row["printed"], found, rule)
    fits = pgd[pgd["way"] == ROWS].set_index("method")["runs"]
    for names in (["NASI", "DARTS", "AdvRush"], ["KNAS"]):
        text = f"{', '.join(names)}: cells of the table that have the printed row"
        found = [exact(fits.get(name, np.nan)) for name in names]
        yield Claim(text, "one", found, Within(1, 1), ours=True)
    apart = np.abs(np.subtract(TABLE_7["EigenNAS"], TABLE_7["NASWOT"])).max()
    text = "EigenNAS and NASWOT: largest difference of the printed rows"
    yield Claim(text, "two methods", exact(apart), Within(low=0.001), ours=True)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """The cells that are chosen without a search, and those that have a printed row."""
    shown = frame[(frame["metric"] == METRIC) & ~frame["way"].isin([*SEARCHERS])]
    return shown[["way", "method", "cells", "mean", "printed"]].rename(
        columns={"mean": metric_label(METRIC)}
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Searches with the 95 % interval of their mean, and picks with the range of their seeds."""
    figure, axes = plt.subplots(1, 2, figsize=(2.2 * COLUMN, 1.1 * COLUMN))
    pgd = frame[frame["metric"] == METRIC]
    searches, picks = (pgd[pgd["way"].isin(ways)] for ways in (SEARCHERS, [OPTIMUM, SCORES]))
    reach = SURE.high * searches["error"]
    ends = (searches["mean"] - reach, searches["mean"] + reach), (picks["low"], picks["high"])
    for axis, part, (low, high) in zip(axes, (searches, picks), ends, strict=True):
        places = range(len(part))
        axis.hlines(places, low, high, color=COLOURS[0])
        axis.plot(part["mean"], places, "o", color=COLOURS[0], markersize=4, label="ours")
        axis.plot(part["printed"], places, "x", color=COLOURS[1], markersize=6, label="printed")
        labels = [
            f"{method}, by {metric_label(guide)}" if method in SEARCHERS else method
            for method, guide in zip(part["method"], part["guide"], strict=True)
        ]
        axis.set_yticks(places, labels, fontsize=7)
        axis.invert_yaxis()
        axis.set_xlabel(f"{metric_label(METRIC)} accuracy (fraction)")
    axes[0].set_title("searches: mean of the runs")
    axes[1].set_title("no search: range of the seeds")
    axes[1].legend(loc="lower left")
    return figure


SEARCH = Study(
    "Search guided by the table: evolution, random, local (Tables 2 and 7)",
    measure,
    {"way": (OPTIMUM, *SEARCHERS, SCORES, ROWS)},
    {
        "dataset": DATASET,
        "guides": ("val_acc", "val_fgsm_8_acc", "val_pgd_8_acc"),
        "queries": 150,
        "runs": 100,
        "seed": 0,
        "apart": 0.0015,
    },
    claims=claims,
    figure=draw,
    table=table,
    note="The paper gives no settings of its searches, and takes 50 images for scores. Verdicts on "
    "KNAS (8 images, 1,000 cells, kernel of the loss), EigenNAS (trace of the clean kernel) and "
    "NASWOT (16 images, all cells) are of these sizes alone.",
    needs=(BENCHMARK, "space", KNAS_RUN),
    ours=False,
)
