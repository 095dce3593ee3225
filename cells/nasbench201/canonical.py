"""Equality of cells: which of them compute the same function, and so have the same kernel.

Every node is a sum of terms. `skip_connect` copies the terms of its source node, `none` drops
them, `avg_pool_3x3` is linear and pools each of them, and a convolution edge (ReLU, convolution,
normalisation) makes one new term with weights of its own. Two cells are equal when their output
nodes are the same sum up to the naming of those weights. Edges that do not reach the output are
ignored. A convolution that reads a node without terms gives its normalisation's shift at every
pixel, a trainable constant, whatever its kernel size and however often it is pooled.

The map that NAS-RobBench-201 publishes is made from nested strings, and differs in three ways:
it counts one convolution used twice as two convolutions (index 3599 is not index 0); it drops the
constants; and it does not pool sums term by term (`pool(x + pool(x))`).
"""

from functools import lru_cache
from pathlib import Path

import numpy as np

from cells.nasbench201.cell import Cell


@lru_cache(1)
def representatives() -> tuple[int, ...]:
    """For every index, the lowest index whose cell computes the same function.

    They are compared once, by `tests/cell_functions.py`, and kept in a file.
    """
    return tuple(np.load(Path(__file__).with_name("representatives.npy")).tolist())


def canonical(cell: Cell) -> Cell:
    """The cell of lowest index that computes the same function as this one."""
    return Cell(representatives()[cell.index])


def distinct_cells() -> tuple[Cell, ...]:
    """One cell for each of the 5,234 functions that the space can express, by index."""
    return tuple(map(Cell, sorted(set(representatives()))))
