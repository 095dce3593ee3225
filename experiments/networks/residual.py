"""Residual networks, as the examples of flax write them: linen and nnx."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

from experiments.networks.setting import CLASSES, Network, Scale, of_linen, of_nnx

STAGES = (2, 2, 2, 2)
Norm = Callable[..., Any]


def blocks_of(stages: Iterable[int]) -> list[tuple[int, int]]:
    """The width of each block, as a multiple of the first, and its stride."""
    return [
        (2**stage, 2 if stage > 0 and block == 0 else 1)
        for stage, blocks in enumerate(stages)
        for block in range(blocks)
    ]


def linen_norm(kind: str, channels: int) -> Norm:
    """`GroupNorm` of at most 32 groups, or `BatchNorm` by running averages."""
    if kind == "batch":
        return partial(nn.BatchNorm, use_running_average=True, momentum=0.9)
    return partial(nn.GroupNorm, num_groups=min(32, channels // 2))


class ResNetBlock(nn.Module):
    """Two convolutions and a skip connection."""

    filters: int
    norm: Norm
    strides: tuple[int, int] = (1, 1)

    @nn.compact
    def __call__(self, x):
        residual = x
        y = nn.Conv(self.filters, (3, 3), self.strides, use_bias=False)(x)
        y = nn.relu(self.norm()(y))
        y = nn.Conv(self.filters, (3, 3), use_bias=False)(y)
        y = self.norm(scale_init=nn.initializers.zeros_init())(y)
        if residual.shape != y.shape:
            residual = nn.Conv(
                self.filters, (1, 1), self.strides, use_bias=False, name="conv_proj"
            )(residual)
            residual = self.norm(name="norm_proj")(residual)
        return nn.relu(residual + y)


class ResNet(nn.Module):
    """ResNet with a stem for CIFAR: no first stride, no max pooling."""

    filters: int
    norm: Norm
    stages: tuple[int, ...] = STAGES

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.filters, (3, 3), use_bias=False, name="conv_init")(x)
        x = nn.relu(self.norm(name="norm_init")(x))
        for times, stride in blocks_of(self.stages):
            x = ResNetBlock(self.filters * times, self.norm, (stride, stride))(x)
        return nn.Dense(CLASSES)(jnp.mean(x, axis=(1, 2)))


class WideBlock(nn.Module):
    """Normalisation and ReLU before each of two convolutions."""

    filters: int
    norm: Norm
    strides: tuple[int, int] = (1, 1)

    @nn.compact
    def __call__(self, x):
        y = nn.relu(self.norm(name="norm1")(x))
        shortcut = x
        if x.shape[-1] != self.filters or self.strides != (1, 1):
            shortcut = nn.Conv(self.filters, (1, 1), self.strides, use_bias=False, name="shortcut")(
                y
            )
        y = nn.Conv(self.filters, (3, 3), self.strides, use_bias=False, name="conv1")(y)
        y = nn.relu(self.norm(name="norm2")(y))
        y = nn.Conv(self.filters, (3, 3), use_bias=False, name="conv2")(y)
        return shortcut + y


class WideResNet(nn.Module):
    """WideResNet: stages of blocks, k times as wide as the first ResNets."""

    filters: int
    stages: int
    blocks: int
    norm: Norm

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.filters // 2, (3, 3), use_bias=False, name="conv_init")(x)
        for times, stride in blocks_of((self.blocks,) * self.stages):
            x = WideBlock(self.filters * times, self.norm, (stride, stride))(x)
        x = nn.relu(self.norm(name="norm_final")(x))
        return nn.Dense(CLASSES)(jnp.mean(x, axis=(1, 2)))


class NnxBlock(nnx.Module):
    """Two convolutions and a skip connection."""

    def __init__(self, before: int, after: int, strides: int, norm: Norm, *, rngs: nnx.Rngs):
        conv = partial(nnx.Conv, use_bias=False, rngs=rngs)
        self.conv1 = conv(before, after, (3, 3), strides=strides)
        self.norm1 = norm(after, rngs=rngs)
        self.conv2 = conv(after, after, (3, 3))
        self.norm2 = norm(after, rngs=rngs)
        self.shortcut = (
            nnx.Sequential(conv(before, after, (1, 1), strides=strides), norm(after, rngs=rngs))
            if (before, strides) != (after, 1)
            else None
        )

    def __call__(self, x):
        y = nnx.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return nnx.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class NnxResNet(nnx.Module):
    """`ResNet`, as a person writes it with nnx."""

    def __init__(self, filters: int, norm: Norm, stages: tuple[int, ...], *, rngs: nnx.Rngs):
        self.stem = nnx.Conv(3, filters, (3, 3), use_bias=False, rngs=rngs)
        self.norm = norm(filters, rngs=rngs)
        blocks, before = [], filters
        for times, stride in blocks_of(stages):
            blocks.append(NnxBlock(before, filters * times, stride, norm, rngs=rngs))
            before = filters * times
        self.blocks = nnx.List(blocks)
        self.head = nnx.Linear(before, CLASSES, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(x, axis=(1, 2)))


def stages_of(scale: Scale) -> tuple[int, ...]:
    """The number of blocks in each stage of a ResNet-18."""
    return tuple(map(scale.layers, STAGES[: scale.stages(len(STAGES))]))


def resnet18(scale: Scale, norm: str = "group") -> Network:
    """Linen ResNet-18, 64 channels wide."""
    filters, stages = scale.channels(64), stages_of(scale)
    return of_linen(ResNet(filters, linen_norm(norm, filters), stages), scale)


def wide_resnet(scale: Scale, norm: str = "group") -> Network:
    """Linen WideResNet-28-2."""
    filters = scale.channels(32)
    sizes = filters, scale.stages(3), scale.layers(4)
    return of_linen(WideResNet(*sizes, linen_norm(norm, filters // 2)), scale)


def nnx_resnet18(scale: Scale, norm: str = "group") -> Network:
    """ResNet-18 in nnx, 64 channels wide."""
    filters, stages = scale.channels(64), stages_of(scale)
    groups = partial(nnx.GroupNorm, num_groups=min(32, filters // 2))
    norms = {"group": groups, "batch": partial(nnx.BatchNorm, use_running_average=True)}
    module = nnx.eval_shape(lambda: NnxResNet(filters, norms[norm], stages, rngs=nnx.Rngs(0)))
    return of_nnx(module, scale)
