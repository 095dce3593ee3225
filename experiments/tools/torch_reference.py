"""The same network in PyTorch, for a comparison of speed: frozen statistics, one cell, no digits.

Run as `python -m experiments.tools.torch_reference CELL CHANNELS CELLS_PER_STAGE IMAGES` it
prints a first number: what a person would write to score one cell by its clean kernel. It imports
no JAX.
"""

import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from torch import nn  # type: ignore[import-not-found]
from torch.func import functional_call, grad, vmap  # type: ignore[import-not-found]

from cells.nasbench201 import Cell
from cells.nasbench201.cell import EDGES, OPERATIONS


def convolution(width: int, out: int, size: int, stride: int = 1) -> nn.Module:
    """ReLU, convolution, normalisation, under NAS-Bench-201's names."""
    layer = nn.Conv2d(width, out, size, stride, size // 2, bias=False)
    return nn.Sequential(OrderedDict(op=nn.Sequential(nn.ReLU(), layer, nn.BatchNorm2d(out))))


class Zero(nn.Module):
    """The operation `none`."""

    def forward(self, x: Any) -> Any:
        return torch.zeros_like(x)


def operation(name: str, width: int) -> nn.Module:
    """One edge's module."""
    if name == "none":
        return Zero()
    if name == "skip_connect":
        return nn.Identity()
    if name == "avg_pool_3x3":
        return nn.AvgPool2d(3, 1, 1, count_include_pad=False)
    return convolution(width, width, 3 if name == "nor_conv_3x3" else 1)


class Block(nn.Module):
    """A cell."""

    def __init__(self, cell: Cell, width: int) -> None:
        super().__init__()
        names = [OPERATIONS[operation] for operation in cell.operations]
        self.layers = nn.ModuleList(operation(name, width) for name in names)

    def forward(self, x: Any) -> Any:
        nodes = [x]
        for target in range(1, 4):
            first, *others = (
                layer(nodes[source])
                for layer, (source, end) in zip(self.layers, EDGES, strict=True)
                if end == target
            )
            nodes.append(sum(others, first))
        return nodes[-1]


class Reduction(nn.Module):
    """The residual block between two stages."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv_a = convolution(width, 2 * width, 3, 2)
        self.conv_b = convolution(2 * width, 2 * width, 3)
        self.downsample = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(width, 2 * width, 1, bias=False))

    def forward(self, x: Any) -> Any:
        return self.conv_b(self.conv_a(x)) + self.downsample(x)


class TorchNetwork(nn.Module):
    """NAS-Bench-201's network of one cell; images are normalised, channels first."""

    def __init__(self, cell: Cell, channels: int, cells_per_stage: int, num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        )
        layers: list[nn.Module] = []
        for stage in range(3):
            width = channels << stage
            if stage:
                layers.append(Reduction(width // 2))
            layers += [Block(cell, width) for _ in range(cells_per_stage)]
        self.cells = nn.Sequential(*layers)
        self.lastact = nn.Sequential(nn.BatchNorm2d(4 * channels), nn.ReLU())
        self.classifier = nn.Linear(4 * channels, num_classes)

    def forward(self, x: Any) -> Any:
        return self.classifier(self.lastact(self.cells(self.stem(x))).mean((2, 3)))


def load(network: TorchNetwork, state: Mapping[str, np.ndarray]) -> None:
    """Take the weights of a state dict, and fresh statistics."""
    tensors = {name: torch.tensor(value) for name, value in state.items()}
    missing, unexpected = network.load_state_dict(tensors, strict=False)
    wrong = [*unexpected, *(name for name in missing if name.endswith(("weight", "bias")))]
    if wrong:
        raise ValueError(f"expected the network's own weights, got a mismatch at {wrong[0]}")


def calibrate(network: TorchNetwork, images: Any) -> None:
    """Store mean and biased variance of these images in every normalisation, layer by layer."""

    def store(module: Any, inputs: tuple) -> None:
        module.running_mean, module.running_var = (
            inputs[0].mean((0, 2, 3)),
            inputs[0].var((0, 2, 3), unbiased=False),
        )

    network.eval()
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(store) for norm in norms]
    with torch.no_grad():
        network(images)
    for hook in hooks:
        hook.remove()


def kernel(network: TorchNetwork, images: Any) -> Any:
    """The clean kernel of the summed logits, by vmap(grad) over the images."""
    params = {name: value.detach() for name, value in network.named_parameters()}
    buffers = dict(network.named_buffers())

    def reading(params: Any, image: Any) -> Any:
        return functional_call(network, (params, buffers), (image[None],)).sum()

    gradients = vmap(grad(reading), (None, 0))(params, images)
    total = torch.zeros(len(images), len(images))
    for leaf in gradients.values():
        rows = leaf.reshape(len(images), -1)
        total += rows @ rows.T
    return total


def main(cell: str, channels: int, cells_per_stage: int, samples: int) -> None:
    """Print norm and smallest eigenvalue of a kernel, of fresh weights and random images."""
    torch.manual_seed(0)
    network = TorchNetwork(Cell.parse(cell), channels, cells_per_stage, 10)
    images = torch.randn(samples, 3, 32, 32)
    calibrate(network, images)
    gram = kernel(network, images)
    print(f"{torch.linalg.norm(gram):.4g} {torch.linalg.eigvalsh(gram)[0]:.4g}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
