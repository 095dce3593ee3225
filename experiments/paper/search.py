"""Searches guided by the table, a mean over many runs (Tables 2 and 7).

A searcher looks cells up by index among all 15,625; a cell without results of its own has its
representative's. It is an endless stream of the cells it looks up; `first_distinct` stops it at a
budget, so that looking a cell up again costs nothing. Searchers share their arguments: the accuracy
of every cell that guides the search, shape (cells,); the neighbours of every cell, shape (cells,
neighbours); and a random generator. Those of `ntkscore.run.search` take other steps: they evaluate
several networks at a time.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from cells import Cell, all_cells
from experiments.paper import train_free
from experiments.paper.picks import Picks, best_of, draw, space_accuracies, summary
from experiments.plotting import DATASET_LABELS, metric_label
from experiments.study import DATASET, METRIC, Finding, Outcome, Study, count_of, interval, verdict
from ntkscore.analysis.comparison import ROBUST_MEAN, table_scores
from ntkscore.data.tables import Table
from ntkscore.run.search import POPULATION, TOURNAMENT

GUIDES = ("val_acc", "val_fgsm_8_acc", "val_pgd_8_acc")
QUERIES = 150
RUNS = 100
OPTIMUM = "optimum"
SEARCHES = "Table 2: nine searches"
CHOICES = "Tables 2 and 7: the optimum and train-free picks"

PAPER = {
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
"""The paper's column: Table 2 by guide and method, in the order of `PAPER_METRICS`."""
DIFFERENTIABLE = {
    "DARTS": (0.332, 0.286, 0.285, 0.215, 0.213),
    "AdvRush": (0.587, 0.492, 0.489, 0.352, 0.330),
}
"""The paper's picks by differentiable search (Table 7), in the order of `PAPER_METRICS`."""
Searcher = Callable[[np.ndarray, np.ndarray, np.random.Generator], Iterator[int]]


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


def climb(
    start: int, accuracy: np.ndarray, neighbours: np.ndarray, rng: np.random.Generator
) -> Iterator[int]:
    """Moves to the first better neighbour until there is none: at a local optimum."""
    yield start
    here, climbing = start, True
    while climbing:
        climbing = False
        for cell in rng.permutation(neighbours[here]).tolist():
            yield cell
            if accuracy[cell] > accuracy[here]:
                here, climbing = cell, True
                break


def local_search(
    accuracy: np.ndarray, neighbours: np.ndarray, rng: np.random.Generator
) -> Iterator[int]:
    """Climbs from one random cell after another.

    Source: White et al. (2021), "Exploring the loss landscape in neural architecture search".
    """
    while True:
        yield from climb(int(rng.integers(len(accuracy))), accuracy, neighbours, rng)


SEARCHERS: dict[str, Searcher] = {
    "regularised evolution": regularised_evolution,
    "random search": random_search,
    "local search": local_search,
}


def run_search(
    method: str,
    guide: str,
    accuracy: np.ndarray,
    neighbours: np.ndarray,
    *,
    queries: int = QUERIES,
    runs: int = RUNS,
    seed: int = 0,
) -> Picks:
    """The best cells that many runs of a searcher look up, each with its own random generator.

    Args:
        method, guide: of `SEARCHERS` and `GUIDES`.
        accuracy, neighbours: as searchers take them.
        queries: distinct cells that a run may look up.
        runs, seed: number of runs, and the random seed of all.
    """
    searcher, start = SEARCHERS[method], time.perf_counter()
    key = (list(SEARCHERS).index(method), GUIDES.index(guide))
    looked_up = []
    for run in range(runs):
        rng = np.random.default_rng([seed, *key, run])
        looked_up.append(first_distinct(searcher(accuracy, neighbours, rng), queries))
    seconds = (time.perf_counter() - start) / runs
    return Picks(guide, method, **best_of(looked_up, accuracy), seconds=seconds)


def optimum(table: Table) -> Picks:
    """The cell with the highest mean robust accuracy, at the cost of the whole table."""
    best = int(table_scores(table, DATASET)[ROBUST_MEAN].idxmax())
    whole = np.array([len(table.own)])
    return Picks("", OPTIMUM, np.array([best]), whole, whole, np.nan)


def search_all(table: Table, accuracies: dict[str, np.ndarray], seed: int) -> list[Picks]:
    """The optimum, then the choices of every searcher under every guide."""
    neighbours = cell_neighbours()
    searches = (
        run_search(method, guide, accuracies[guide], neighbours, seed=seed)
        for guide in GUIDES
        for method in SEARCHERS
    )
    return [optimum(table), *searches]


def findings(frame: pd.DataFrame) -> Iterator[Finding]:
    """Findings on the paper's mean PGD 8/255 accuracies: of searches, and of train-free picks."""
    pgd = frame[frame["paper"].notna() & (frame["metric"] == METRIC)]
    for row in pgd.to_dict("records"):
        guide = f", guided by {metric_label(row['guide'])}" if row["guide"] else ""
        what, paper = f"{row['method']}{guide}: PGD 8/255 accuracy", f"{row['paper']:.3f}"
        if row["method"] in SEARCHERS:
            means = interval(row["mean"], row["low"], row["high"])
            ours = f"{means}, {count_of(row['runs'], 'run')}"
            why = "inside the 95 % interval of a difference of two such means, up to rounding"
            yield Finding(what, paper, ours, verdict(row["near"]), why, SEARCHES)
        else:
            ours = f"{row['mean']:.3f}, {count_of(row['runs'], 'seed')}"
            single = "a single training seed there, a mean of three here"
            why = single if row["method"] == OPTIMUM else train_free.OTHERWISE
            yield Finding(what, paper, ours, "not decidable", why, CHOICES)


def overview(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracies, queries and seconds of a run, a row per way of choosing."""
    keys = ["guide", "method", "runs", "queries", "found_after", "seconds"]
    order = frame.drop_duplicates(["guide", "method"]).set_index(["guide", "method"]).index
    wide = frame.pivot(index=keys, columns="metric", values="mean")
    wide = wide[list(dict.fromkeys(frame["metric"]))].rename(columns=metric_label).reset_index()
    return wide.set_index(["guide", "method"]).loc[order].reset_index()


def pick_remarks(picks: Sequence[Picks]) -> Iterator[str]:
    """Sentences on train-free picks: the cells chosen, seed by seed, and the paper's others."""
    chosen = [
        f"{pick.method} {', '.join(Cell(int(cell)).digits for cell in pick.cells)}"
        for pick in picks
        if pick.method not in train_free.NOT_DRAWN
    ]
    yield f"Train-free picks, seed by seed: {'; '.join(chosen)}."
    others = ", ".join(f"{name} {value:.3f}" for name, value in train_free.PAPER_ONLY.items())
    yield f"Table 7 has one more train-free pick (PGD 8/255 accuracy): {others}."
    darts = " and ".join(f"{name} {row[-1]:.3f}" for name, row in DIFFERENTIABLE.items())
    yield (
        f"Table 7's differentiable searches (PGD 8/255 accuracy), {darts}, train a network of all "
        "operations at once: `python -m experiments training-differentiable`, on the page "
        "TRAINING.md."
    )


def run(study: Study) -> Outcome:
    """Table 2, and the searches of Table 7."""
    accuracies = space_accuracies(study.table, DATASET)
    free = list(train_free.picks(study, accuracies[train_free.GUIDE]))
    chosen = [*search_all(study.table, accuracies, study.seed), *free]
    frame = summary(chosen, accuracies, {**PAPER, **train_free.PAPER})
    searches = frame[frame["paper"].notna() & frame["method"].isin(SEARCHERS)]
    apart = (searches["mean"] - searches["paper"]).abs()
    climbed, best = PAPER[METRIC, "local search"][-1], PAPER["", OPTIMUM][-1]
    remarks = (
        f"{searches['near'].sum()} of the paper's {len(searches)} means of a search, over all "
        "metrics, lie within the 95 % interval of a difference of two such means, up to rounding; "
        f"the furthest is {apart.max():.4f} away from ours.",
        "The table read here has means of three training seeds. The paper's optimum belongs to a "
        "single seed, but its searches look like means too: its local search, guided by PGD 8/255 "
        f"accuracy, ends at {climbed:.3f}, below that optimum's {best:.3f}.",
        "The paper does not give the settings of its searches. Evolution has few cells alive "
        "and small tournaments, local search takes the first better neighbour and starts anew at "
        "a local optimum, and only distinct cells count as queries.",
    )
    configuration = {
        "table": study.table.name,
        "dataset": DATASET,
        "guides": GUIDES,
        "searchers": list(SEARCHERS),
        "runs": RUNS,
        "queries": QUERIES,
        "population": POPULATION,
        "tournament": TOURNAMENT,
        "recordings": study.configurations((train_free.RECORDING, train_free.TIMED)),
    }
    figure = draw(
        frame[~frame["method"].isin(train_free.NOT_DRAWN)],
        ("val_acc", METRIC),
        DATASET_LABELS[DATASET],
    )
    return Outcome(
        frame,
        figure,
        configuration,
        (*remarks, *pick_remarks(free)),
        (*findings(frame),),
        overview(frame),
    )
