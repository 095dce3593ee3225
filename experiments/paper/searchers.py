"""Search algorithms on a graph of cells whose accuracies can be looked up.

Each one is an endless stream of the cells it looks up; `first_distinct` stops it at a budget, so
that looking a cell up again costs nothing. They share their arguments: the accuracy of every cell
that guides the search, shape (cells,); the neighbours of every cell, shape (cells, neighbours);
and a random generator.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from cells import all_cells
from ntkscore.run.search import POPULATION, TOURNAMENT

Searcher = Callable[[np.ndarray, np.ndarray, np.random.Generator], Iterator[int]]


def cell_neighbours() -> np.ndarray:
    """The 24 neighbours of every cell of the space, shape (15625, 24), indices."""
    return np.array([[other.index for other in cell.neighbours()] for cell in all_cells()])


def first_distinct(stream: Iterable[int], budget: int, patience: int = 1000) -> np.ndarray:
    """The first `budget` distinct cells of a stream, in order of appearance, shape (budget,).

    Args:
        stream: cells, perhaps without end.
        budget: number of distinct cells.
        patience: repeats in a row after which a search counts as stuck and the stream ends.
    """
    seen: dict[int, None] = {}
    repeats = 0
    for cell in stream:
        repeats = repeats + 1 if cell in seen else 0
        seen.setdefault(cell)
        if len(seen) >= budget or repeats >= patience:
            break
    return np.fromiter(seen, np.intp, len(seen))


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
    """Mutants of the best of a few; the oldest dies.

    Args:
        accuracy, neighbours, rng: see the module.
        population: cells alive; the first ones are random.
        tournament: cells drawn, with replacement, of which the best has a mutant.

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
    """Moves to the first better neighbour, until there is none; the best cell is a local optimum.

    Args:
        start: a cell.
        accuracy, neighbours, rng: see the module.
    """
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
