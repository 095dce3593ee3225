"""FLOPs that networks side by side compute, beside those that their cells need.

A group of networks runs through one batched program, and an edge of it does every convolution that
one of the cells has there, with its per-image gradients and Gram matrices, for all of them.
"""

from collections.abc import Iterable

import numpy as np
from ntkscore.run.together import side_by_side

from cells import Cell
from cells.nasbench201.cell import KERNEL_SIZES
from experiments.benchmark.work import stack_flops
from ntkscore import Config, NASBench201


def group_flops(
    cells: Iterable[Cell], space: NASBench201, config: Config, group: int
) -> np.ndarray:
    """FLOPs of a cell's stack where so many are computed side by side, in the order of groups."""
    blank = stack_flops(Cell.from_digits("000000"), space, config)

    def together(operations: np.ndarray) -> float:
        # Costs are sums over edges: those of both convolutions, less what they share once.
        total = -blank
        for convolution in KERNEL_SIZES:
            somewhere = (operations == convolution).any(0)
            digits = "".join(map(str, np.where(somewhere, convolution, 0)))
            total += stack_flops(Cell.from_digits(digits), space, config)
        return total

    parts = [
        np.array([cell.operations for cell in part])
        for part in side_by_side(space, list(cells), group)
    ]
    return np.concatenate([np.full(len(part), together(part)) for part in parts])


def needed_flops(cells: Iterable[Cell], space: NASBench201, config: Config) -> np.ndarray:
    """FLOPs of each cell's stack, computed alone."""
    return np.array([stack_flops(cell, space, config) for cell in cells])
