"""FLOPs that networks side by side compute, beside those that their cells need.

A group of networks runs through one batched program, and a batched choice between operations
computes all of them: every edge does both of its convolutions, with their per-image gradients and
Gram matrices, whatever its cell has there.
"""

from collections.abc import Iterable

import numpy as np

from cells import Cell
from experiments.benchmark.work import stack_flops
from ntkscore import Config, NASBench201


def group_flops(space: NASBench201, config: Config) -> float:
    """FLOPs of any one network's stack in a group."""

    def flops(digit: str) -> float:
        return stack_flops(Cell.from_digits(6 * digit), space, config)

    # Costs are sums over edges: both convolutions everywhere, and once what all cells share.
    return flops("2") + flops("3") - flops("0")


def needed_flops(cells: Iterable[Cell], space: NASBench201, config: Config) -> np.ndarray:
    """FLOPs of each cell's stack, computed alone."""
    return np.array([stack_flops(cell, space, config) for cell in cells])
