"""Convolutional networks after ResNet, in linen: ConvNeXt, MobileNet, DenseNet."""

from functools import partial

import jax.numpy as jnp
from flax import linen as nn

from experiments.networks.setting import CLASSES, Network, Scale, of_linen

BatchNorm = partial(nn.BatchNorm, use_running_average=True)
INVERTED = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
"""Expansion, channels, blocks and stride of MobileNetV2's stages, less the last two."""


class ConvNeXtBlock(nn.Module):
    """A depthwise 7×7 convolution, then a perceptron at each pixel, scaled by channel."""

    width: int

    @nn.compact
    def __call__(self, x):
        y = nn.Conv(self.width, (7, 7), feature_group_count=self.width)(x)
        y = nn.LayerNorm(epsilon=1e-6)(y)
        y = nn.gelu(nn.Dense(4 * self.width)(y), approximate=False)
        y = nn.Dense(self.width)(y)
        gamma = self.param("gamma", nn.initializers.constant(1e-6), (self.width,))
        return x + gamma * y


class ConvNeXt(nn.Module):
    """ConvNeXt with patches of two pixels."""

    widths: tuple[int, ...]
    depths: tuple[int, ...]

    @nn.compact
    def __call__(self, x):
        for stage, (width, depth) in enumerate(zip(self.widths, self.depths, strict=True)):
            if stage:
                x = nn.LayerNorm(epsilon=1e-6)(x)
            x = nn.Conv(width, (2, 2), strides=(2, 2))(x)
            if not stage:
                x = nn.LayerNorm(epsilon=1e-6)(x)
            for _ in range(depth):
                x = ConvNeXtBlock(width)(x)
        return nn.Dense(CLASSES)(nn.LayerNorm(epsilon=1e-6)(x.mean((1, 2))))


class SqueezeExcite(nn.Module):
    """Channels scaled by a function of their means."""

    ratio: int = 4

    @nn.compact
    def __call__(self, x):
        y = jnp.mean(x, axis=(1, 2), keepdims=True)
        y = nn.relu(nn.Conv(max(1, x.shape[-1] // self.ratio), (1, 1))(y))
        return x * nn.sigmoid(nn.Conv(x.shape[-1], (1, 1))(y))


class InvertedResidual(nn.Module):
    """Channels are expanded, convolved one by one, and projected."""

    features: int
    expansion: int
    strides: int

    @nn.compact
    def __call__(self, x):
        hidden, y = x.shape[-1] * self.expansion, x
        if self.expansion != 1:
            y = nn.relu6(BatchNorm()(nn.Conv(hidden, (1, 1), use_bias=False)(y)))
        y = nn.Conv(hidden, (3, 3), self.strides, feature_group_count=hidden, use_bias=False)(y)
        y = SqueezeExcite()(nn.relu6(BatchNorm()(y)))
        y = BatchNorm()(nn.Conv(self.features, (1, 1), use_bias=False)(y))
        return x + y if x.shape == y.shape else y


class MobileNet(nn.Module):
    """MobileNetV2 with squeeze-and-excite, its first strides left out."""

    scale: Scale

    @nn.compact
    def __call__(self, x):
        x = nn.relu6(BatchNorm()(nn.Conv(self.scale.channels(32), (3, 3), use_bias=False)(x)))
        for expansion, channels, blocks, stride in INVERTED[: self.scale.stages(len(INVERTED))]:
            for block in range(self.scale.layers(blocks)):
                features = self.scale.channels(channels)
                x = InvertedResidual(features, expansion, 1 if block else stride)(x)
        x = nn.Conv(self.scale.channels(384), (1, 1), use_bias=False)(x)
        return nn.Dense(CLASSES)(jnp.mean(nn.relu6(BatchNorm()(x)), axis=(1, 2)))


class DenseNet(nn.Module):
    """DenseNet-BC: every layer reads the outputs of all layers before it."""

    growth: int
    stages: int
    layers: int

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(2 * self.growth, (3, 3), use_bias=False)(x)
        for stage in range(self.stages):
            if stage:
                x = nn.Conv(x.shape[-1] // 2, (1, 1), use_bias=False)(nn.relu(BatchNorm()(x)))
                x = nn.avg_pool(x, (2, 2), strides=(2, 2))
            for _ in range(self.layers):
                y = nn.Conv(4 * self.growth, (1, 1), use_bias=False)(nn.relu(BatchNorm()(x)))
                y = nn.Conv(self.growth, (3, 3), use_bias=False)(nn.relu(BatchNorm()(y)))
                x = jnp.concatenate([x, y], axis=-1)
        return nn.Dense(CLASSES)(jnp.mean(nn.relu(BatchNorm()(x)), axis=(1, 2)))


def convnext(scale: Scale) -> Network:
    """ConvNeXt-Atto."""
    stages = slice(scale.stages(4))
    widths = tuple(map(scale.channels, (40, 80, 160, 320)))[stages]
    depths = tuple(map(scale.layers, (2, 2, 6, 2)))[stages]
    return of_linen(ConvNeXt(widths, depths), scale)
