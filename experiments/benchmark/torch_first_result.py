"""A first number from PyTorch: what a person would write to score one cell by its clean kernel.

Run as `python -m experiments.benchmark.torch_first_result CELL CHANNELS CELLS_PER_STAGE IMAGES`.
Weights are fresh and images random; no JAX is imported.
"""

import sys

import torch  # type: ignore[import-not-found]

from cells import Cell
from experiments.benchmark.torch_reference import TorchNetwork, calibrate, kernel

CLASSES = 10


def main(cell: str, channels: int, cells_per_stage: int, samples: int) -> None:
    """Print the Frobenius norm and the smallest eigenvalue of the clean kernel."""
    torch.manual_seed(0)
    network = TorchNetwork(Cell.parse(cell), channels, cells_per_stage, CLASSES)
    images = torch.randn(samples, 3, 32, 32)
    calibrate(network, images)
    gram = kernel(network, images)
    print(f"{torch.linalg.norm(gram):.4g} {torch.linalg.eigvalsh(gram)[0]:.4g}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
