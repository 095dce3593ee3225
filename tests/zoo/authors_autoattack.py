"""AutoAttack beside its authors' code, on one trained PyTorch network and 200 images of CIFAR-10.

`PYTHONPATH=tests python -m zoo.authors_autoattack DATA` in the environment of `make oracles`, where
DATA has the folder cifar-10-batches-py.
"""

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from pyautoattack.autoattack import AutoAttack
from torch import nn

from cells.wideresnet import Stages
from experiments.page import markdown_table
from ntkscore import from_torch, load_images, robustness
from zoo.in_torch import train, wide_resnet

RHO, TRAINED, ATTACKED = 8 / 255, 4000, 200


def network_of(width: int) -> nn.Sequential:
    """Three convolutions of 3×3, two of stride 2."""
    convolutions = [
        layer
        for before, after, stride in ((3, width, 1), (width, 2 * width, 2), (2 * width,) * 2 + (2,))
        for layer in (nn.Conv2d(before, after, 3, stride, 1), nn.ReLU())
    ]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(2 * width * 64, 10))


def measure(
    data: Annotated[Path, typer.Argument(help="The folder of CIFAR-10's folder.")],
    width: Annotated[int, typer.Option(help="Channels of the first convolution.")] = 16,
    wide: Annotated[bool, typer.Option(help="A wide residual network, 1-1-1x1-1-1.")] = False,
) -> None:
    """Time both, ours with its compilation and without."""
    images = load_images("cifar10", data)
    pixels = images.images[: TRAINED + ATTACKED].astype(np.float32) / 255
    x = torch.tensor(pixels).permute(0, 3, 1, 2).contiguous()
    labels = np.asarray(images.labels[: TRAINED + ATTACKED], np.int32)
    torch.manual_seed(0)
    y = torch.tensor(labels).long()
    network = wide_resnet(Stages.parse("1-1-1x1-1-1")) if wide else network_of(width)
    train(network, x[:TRAINED], y[:TRAINED], RHO)
    model = from_torch(network, pixels[:2])
    network.requires_grad_(False)
    rows = []
    for name in ("ours, first", "ours, again"):
        start = time.perf_counter()
        found = robustness(model, pixels[TRAINED:], labels[TRAINED:], rho=RHO)
        rows.append([name, time.perf_counter() - start, ATTACKED * min(found.accuracies.values())])
    start = time.perf_counter()
    attack = AutoAttack(network, eps=RHO, norm="Linf", seed=0)
    attack.verbose = False
    given = x[TRAINED:], y[TRAINED:]
    attacked, _ = attack.run_standard_evaluation(*given, batch_size=ATTACKED)
    seconds = time.perf_counter() - start
    rows.append(["the authors'", seconds, int((network(attacked).argmax(1) == given[1]).sum())])
    typer.echo(markdown_table(("AutoAttack", "seconds", "images left right"), rows))


if __name__ == "__main__":
    typer.run(measure)
