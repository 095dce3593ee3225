"""Kernels of PyTorch's networks beside `torch.func`, which computes their Jacobians.

`PYTHONPATH=tests python -m zoo.torch_func` in the environment of `make oracles`. Both in one
process, in turns; the shortest run of each counts.
"""

import itertools
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import nn
from torch.func import functional_call, grad, vmap

from cells.wideresnet import Stages
from experiments.page import markdown_table
from experiments.tools.clock import in_turns
from ntkscore import from_torch, ntk
from zoo.in_torch import resnet, transformer, wide_resnet
from zoo.networks import images_of

NETWORKS = {
    "ResNet-18": resnet,
    "WideResNet-28-2": lambda: wide_resnet(Stages.parse("WRN-28-2")),
    "vision transformer": transformer,
}


def by_torch(network: nn.Module, images: np.ndarray) -> np.ndarray:
    """The kernel of the logits' sum, from the Jacobian by `torch.func`."""
    points, kernel = torch.tensor(images).permute(0, 3, 1, 2), torch.zeros(len(images), len(images))
    params = {name: each.detach() for name, each in network.named_parameters()}
    buffers = dict(network.named_buffers())

    def read(params: Any, point: Any) -> Any:
        return functional_call(network, {**params, **buffers}, point[None]).sum()

    for leaf in vmap(grad(read), (None, 0))(params, points).values():
        rows = leaf.reshape(len(points), -1)
        kernel += rows @ rows.T
    return kernel.numpy()


def measure(
    points: Annotated[list[int] | None, typer.Option(help="Numbers of images.")] = None,
    turns: Annotated[int, typer.Option(help="Runs of each.")] = 5,
) -> None:
    """Time `ntkscore.ntk` beside `torch.func`."""
    rows = []
    for name, count in itertools.product(NETWORKS, points or (16, 50, 150)):
        torch.manual_seed(0)
        network, images = NETWORKS[name]().eval(), np.asarray(images_of(count))
        model = from_torch(network, images[:2])
        ways: list[Callable[[], np.ndarray]] = [
            lambda m=model, x=images: np.asarray(ntk(m, x)),
            lambda n=network, x=images: by_torch(n, x),
        ]
        ours, theirs = (way() for way in ways)
        seconds = in_turns(ways, turns)
        apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
        rows.append([name, count, *seconds, seconds[0] / seconds[1], apart])
    head = "network", "points", "ntk, s", "torch.func, s", "ratio", "largest difference"
    typer.echo(markdown_table(head, rows))


if __name__ == "__main__":
    typer.run(measure)
