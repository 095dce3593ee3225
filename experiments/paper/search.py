"""Cells found by searches in the table, and by scores without training (Tables 2 and 7).

A search is an endless stream of the cells that it looks up, by index among all 15,625; a cell
without results of its own has its representative's. `first_distinct` stops it at a budget, so that
looking a cell up again costs nothing. Those of `ntkscore.run.search` take other steps: they
evaluate several networks at a time.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells.nasbench201 import SIZE, Cell, all_cells
from experiments.data import BENCHMARK, DATASET, DEFAULT, METRIC, METRICS, single_seeds, sum_named
from experiments.frame import Claim, Interval, Study, Within, exact, near
from experiments.paper.measures import with_counts
from experiments.plotting import COLOURS, COLUMN, metric_label, points
from experiments.recordings import OF_DEFAULT, OF_KNAS
from ntkscore.analysis.comparison import ROBUST_MEAN, table_scores
from ntkscore.analysis.frames import pick_rho
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

PICKS = {
    # The methods' own conventions: the norm of the kernel of the loss, images by their own
    # statistics; the trace, which stands in for λ_min; the determinant of equal states.
    "KNAS": ("clean.frobenius", OF_KNAS, 1),
    "EigenNAS": ("clean.trace", OF_DEFAULT, 1),
    "NASWOT": ("clean.naswot", OF_DEFAULT, 1),
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


def first_distinct(stream: Iterable[int], budget: int, patience: int = 1000) -> list[int]:
    """The first `budget` distinct cells of a stream, in order of appearance.

    After `patience` repeats in a row a search counts as stuck, and the stream ends.
    """
    visited: dict[int, None] = {}
    repeats = 0
    for cell in stream:
        repeats = repeats + 1 if cell in visited else 0
        visited[cell] = None
        if len(visited) >= budget or repeats >= patience:
            break
    return list(visited)


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

    Source: Real et al. (2019), "Regularized evolution for image classifier architecture search".
    """
    alive = deque(rng.integers(len(accuracy), size=population).tolist(), maxlen=population)
    yield from alive
    while True:
        drawn = np.array(alive)[rng.integers(population, size=tournament)]
        parent = drawn[np.argmax(accuracy[drawn])]
        alive.append(int(neighbours[parent, rng.integers(neighbours.shape[1])]))
        yield alive[-1]


def local_search(
    accuracy: np.ndarray, neighbours: np.ndarray, rng: np.random.Generator
) -> Iterator[int]:
    """Moves to the first better neighbour; where none is better, starts anew at a random cell.

    Source: White et al. (2021), "Exploring the loss landscape in neural architecture search".
    """
    yield (here := int(rng.integers(len(accuracy))))
    while True:
        for cell in rng.permutation(neighbours[here]).tolist():
            yield cell
            if accuracy[cell] > accuracy[here]:
                here = cell
                break
        else:
            yield (here := int(rng.integers(len(accuracy))))


SEARCHERS = {
    "regularised evolution": regularised_evolution,
    "random search": random_search,
    "local search": local_search,
}


def searched(
    method: str, accuracy: np.ndarray, neighbours: np.ndarray, key: Sequence[int], at: Any
) -> list[int]:
    """The best cell that each of many runs looks up, each with a random generator of its own."""
    own = (np.random.default_rng([at.seed, *key, run]) for run in range(at.runs))
    streams = (SEARCHERS[method](accuracy, neighbours, rng) for rng in own)
    return [max(first_distinct(s, at.queries), key=accuracy.__getitem__) for s in streams]


def chosen(at: Any, accuracies: pd.DataFrame) -> Iterator[tuple[str, str, int, list[int]]]:
    """Of each way: method, guide, how many accuracies are looked up, and the cells of its runs."""
    if at.way in SEARCHERS:
        for i, guide in enumerate(at.guides):
            key, accuracy = ([*SEARCHERS].index(at.way), i), accuracies[guide].to_numpy()
            yield at.way, guide, at.queries, searched(at.way, accuracy, cell_neighbours(), key, at)
    elif at.way == SCORES:
        # Scores at 8/255, joint ones at β = 0.5, a table for each seed.
        tables = {
            run: [with_counts(one) for one in single_seeds(pick_rho(at.data.rows(run), 8 / 255))]
            for run in ("space", OF_KNAS, OF_DEFAULT)
        }
        for method, (name, run, first) in PICKS.items():
            scores = (sum_named(name).of(one).dropna() for one in tables[run])
            ranked = (of.sort_values(ascending=False, kind="stable").index for of in scores)
            cells = [int(accuracies.loc[of[:first], METRIC].idxmax()) for of in ranked]
            guide, queries = (METRIC, first) if first > 1 else ("", 0)
            yield method, guide, queries, cells
    elif at.way == ROWS:
        own = accuracies.loc[at.data.table.own, list(METRICS[:5])]
        for method, printed in TABLE_7.items():
            apart = (own - printed).abs().max(axis=1).sort_values(kind="stable")
            yield method, "", len(own), [int(cell) for cell in apart.index[apart < at.apart]]
    else:
        robust = table_scores(at.data.table, at.dataset)[ROBUST_MEAN]
        yield at.way, "", len(robust), [int(robust.idxmax())]


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
    table = at.data.table
    accuracies = pd.DataFrame({m: table.accuracies(at.dataset, m, range(SIZE)) for m in METRICS})
    for method, guide, queries, cells in chosen(at, accuracies):
        way = {"method": method, "guide": guide, "queries": queries, "runs": len(cells)}
        way["cells"] = " ".join(dict.fromkeys(Cell(cell).digits for cell in cells[:5]))
        known = TABLE_7.get(method) or TABLE_2.get((guide, method), ())
        for metric, printed in zip_longest(METRICS, known, fillvalue=np.nan):
            found = accuracies[metric].to_numpy()[cells]
            deviation = found.std(ddof=1) if len(found) > 1 else np.nan
            error = deviation / len(found) ** 0.5
            low, high = np.quantile(found, [0.025, 0.975])
            yield way | {
                "metric": metric,
                "mean": found.mean(),
                "low": low,
                "high": high,
                "error": error,
                "printed": printed,
                "errors": standard_errors(abs(found.mean() - printed), error),
            }


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Table 2 by method, the picks of Table 7, and which cells its rows are."""
    pgd = frame[frame["metric"] == METRIC]
    for method, part in pgd[pgd["way"].isin(SEARCHERS)].groupby("way", sort=False):
        text = f"{method}, three guides: standard errors from the printed means"
        shown = ", ".join(f"{value:.3f}" for value in part["printed"])
        yield Claim(text, shown, [*map(exact, part["errors"])], SURE)
    errors = frame.loc[frame["way"].isin(SEARCHERS) & frame["printed"].notna(), "errors"]
    text = f"Share of all {len(errors)} printed means of searches so near"
    yield Claim(text, "all", exact((errors <= SURE.high).mean()), Within(low=0.95))
    for row in pgd[pgd["way"].isin([OPTIMUM, SCORES]) & pgd["printed"].notna()].itertuples():
        text = f"PGD 8/255 accuracy: {row.method}" + ("" if row.way == OPTIMUM else "'s pick")
        yield Claim(
            text, row.printed, Interval(row.mean, row.low, row.high), near(row.printed, 0.005)
        )
    fits = pgd[pgd["way"] == ROWS].set_index("method")["runs"]
    for names in (["NASI", "DARTS", "AdvRush"], ["KNAS"]):
        text = f"{', '.join(names)}: cells of the table that have the printed row"
        yield Claim(text, "one", [*map(exact, fits.reindex(names))], Within(1, 1), ours=True)
    apart = np.abs(np.subtract(TABLE_7["EigenNAS"], TABLE_7["NASWOT"])).max()
    text = "EigenNAS and NASWOT: largest difference of the printed rows"
    yield Claim(text, "two methods", exact(apart), Within(low=0.001), ours=True)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """The cells that are chosen without a search, and those that have a printed row."""
    shown = frame[(frame["metric"] == METRIC) & ~frame["way"].isin(SEARCHERS)]
    shown = shown.rename(columns={"mean": metric_label(METRIC)})
    return shown[["way", "method", "cells", metric_label(METRIC), "printed"]]


def draw(frame: pd.DataFrame) -> Figure:
    """Searches with the 95 % interval of their mean, and picks with the range of their seeds."""
    figure, axes = plt.subplots(1, 2, figsize=(2.2 * COLUMN, 1.1 * COLUMN))
    pgd = frame[frame["metric"] == METRIC].rename(columns={"mean": "value"})
    searches, picks = (pgd[pgd["way"].isin(ways)] for ways in (SEARCHERS, [OPTIMUM, SCORES]))
    reach = SURE.high * searches["error"]
    searches = searches.assign(
        low=searches["value"] - reach,
        high=searches["value"] + reach,
        method=searches["method"] + ", by " + searches["guide"].map(metric_label),
    )
    for axis, part in zip(axes, (searches, picks), strict=True):
        places = range(len(part))
        points(axis, places, part, across=True, fmt="o", markersize=4, label="ours")
        axis.plot(part["printed"], places, "x", color=COLOURS[1], markersize=6, label="printed")
        axis.set_yticks(places, part["method"], fontsize=7)
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
    note="The paper gives no settings of its searches. KNAS (kernel of the loss, 1,000 cells), "
    "EigenNAS (trace of the clean kernel, all cells) and NASWOT (all cells) pick at the paper's 50 "
    "images, one seed, from the 100 that are first by 8 or 16 images; our scores are of 16 images.",
    needs=(BENCHMARK, "space", OF_KNAS, OF_DEFAULT),
    ours=False,
)
