"""Networks in PyTorch, and their training against FGSM."""

from typing import Any

import torch
from torch import nn

from cells.wideresnet import Stages

# Beside a PyTorch without CUDA torchvision's compiled operators are missing; none is needed here.
LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
for operator in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, operator):
        LIBRARY.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from torchvision import models  # noqa: E402


def convolution(before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, normal of variance 2/(area · outputs)."""
    made = nn.Conv2d(before, after, size, stride, size // 2, bias=False)
    nn.init.normal_(made.weight, 0, (2 / (size**2 * after)) ** 0.5)
    return made


class WideBlock(nn.Module):
    """A block of `wide_resnet`."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(before), nn.BatchNorm2d(after)
        self.conv1 = convolution(before, after, 3, stride)
        self.conv2 = convolution(after, after, 3)
        changes = stride > 1 or before != after
        self.shortcut = convolution(before, after, 1, stride) if changes else None

    def forward(self, x: Any) -> Any:
        y = self.norm1(x).relu()
        beside = x if self.shortcut is None else self.shortcut(y)
        return self.conv2(self.norm2(self.conv1(y)).relu()) + beside


def wide_resnet(stages: Stages, classes: int = 10, seed: int = 0) -> nn.Sequential:
    """The network of NARes, in PyTorch, from what its authors' code defines, drawn as there.

    A stem of 16 channels, 3×3; blocks of BN, ReLU, a 3×3 convolution, twice, the first with the
    stride (1, 2, 2 by stage); a bare 1×1 convolution as shortcut, taken after the first ReLU, where
    the shape changes; BN, ReLU, the mean over the pixels, a linear layer. Convolutions are normal
    of variance 2/(area · outputs); the linear layer has PyTorch's weights, and no bias at first.
    """
    torch.manual_seed(seed)
    made: list[nn.Module] = [convolution(3, 16, 3)]
    before = 16
    for stage, (depth, width) in enumerate(zip(stages.depths, stages.widths, strict=True)):
        after = 16 * 2**stage * width
        for place in range(depth):
            made.append(WideBlock(before, after, 2 if stage and not place else 1))
            before = after
    linear = nn.Linear(before, classes)
    nn.init.zeros_(linear.bias)
    last = (nn.BatchNorm2d(before), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*made, *last, nn.Flatten(), linear)


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


def train(network: nn.Module, x: torch.Tensor, y: torch.Tensor, rho: float) -> None:
    """Train a network for eight epochs against FGSM from random points."""
    optimizer, loss = torch.optim.Adam(network.parameters(), 2e-3), nn.functional.cross_entropy
    for _ in range(8):
        for rows in torch.randperm(len(x)).split(100):
            change = ((torch.rand_like(x[rows]) * 2 - 1) * rho).requires_grad_()
            (slope,) = torch.autograd.grad(loss(network(x[rows] + change), y[rows]), change)
            change = (change + 1.25 * rho * slope.sign()).clamp(-rho, rho).detach()
            optimizer.zero_grad()
            loss(network((x[rows] + change).clamp(0, 1)), y[rows]).backward()
            optimizer.step()
    network.eval()
