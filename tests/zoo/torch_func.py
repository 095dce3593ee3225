"""Kernels of PyTorch's networks beside `torch.func`, which computes their Jacobians.

`PYTHONPATH=tests python -m zoo.torch_func` in the environment of `make oracles`. Both in one
process, in turns; the shortest run of each counts.
"""

import itertools
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import nn
from torch.func import functional_call, grad, vmap

from experiments.page import markdown_table
from ntkscore import from_torch, ntk
from zoo.networks import images_of

# Beside a PyTorch without CUDA torchvision's compiled operators are missing; none is needed here.
LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
for operator in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, operator):
        LIBRARY.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from torchvision import models  # noqa: E402


class WideBlock(nn.Module):
    """A block of a wide residual network, of Zagoruyko and Komodakis (2016)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(before), nn.BatchNorm2d(after)
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        alike = before == after and stride == 1
        self.shortcut = None if alike else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        rectified = torch.relu(self.norm1(x))
        beside = x if self.shortcut is None else self.shortcut(rectified)
        return beside + self.conv2(torch.relu(self.norm2(self.conv1(rectified))))


def wide_resnet() -> nn.Module:
    """WideResNet-28-2."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
    before = 16
    for width, stride in ((32, 1), (64, 2), (128, 2)):
        for place in range(4):
            layers.append(WideBlock(before, width, stride if place == 0 else 1))
            before = width
    end = nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, *end, nn.Linear(128, 10))


def resnet() -> nn.Module:
    """ResNet-18 for images of 32×32, with group normalisation."""
    network = models.resnet18(num_classes=10, norm_layer=lambda width: nn.GroupNorm(32, width))
    network.conv1, network.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return network


def transformer() -> nn.Module:
    """A vision transformer with patches of 4×4, width 192 and six layers."""
    network = models.VisionTransformer(32, 4, 6, 3, 192, 768, num_classes=10)
    nn.init.normal_(network.heads.head.weight, std=0.02)
    return network


NETWORKS = {"ResNet-18": resnet, "WideResNet-28-2": wide_resnet, "vision transformer": transformer}


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
        seconds = np.min([[once(way) for way in ways] for _ in range(turns)], 0)
        apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
        rows.append([name, count, *seconds, seconds[0] / seconds[1], apart])
    head = "network", "points", "ntk, s", "torch.func, s", "ratio", "largest difference"
    typer.echo(markdown_table(head, rows))


def once(function: Callable[[], Any]) -> float:
    """Seconds of a run."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    typer.run(measure)
