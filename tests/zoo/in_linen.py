"""Networks in linen that nothing here was written for, as its users write them, in small."""

from functools import partial
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from zoo.networks import (
    CLASSES,
    PATCH,
    EncoderBlock,
    MlpBlock,
    Norm,
    ResNet,
    VisionTransformer,
    blocks_of,
    norm_of,
)

BatchNorm = partial(nn.BatchNorm, use_running_average=True)


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
    """MobileNetV2 with squeeze-and-excite, of two blocks."""

    width: int

    @nn.compact
    def __call__(self, x):
        x = nn.relu6(BatchNorm()(nn.Conv(self.width, (3, 3), use_bias=False)(x)))
        for expansion in (1, 6):
            x = InvertedResidual(self.width, expansion, 1)(x)
        x = nn.Conv(3 * self.width, (1, 1), use_bias=False)(x)
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


class WideBlock(nn.Module):
    """Normalisation and ReLU before each of two convolutions."""

    filters: int
    norm: Norm
    strides: tuple[int, int] = (1, 1)

    @nn.compact
    def __call__(self, x):
        conv, shortcut = partial(nn.Conv, use_bias=False), x
        y = nn.relu(self.norm(name="norm1")(x))
        if x.shape[-1] != self.filters or self.strides != (1, 1):
            shortcut = conv(self.filters, (1, 1), self.strides, name="shortcut")(y)
        y = conv(self.filters, (3, 3), self.strides, name="conv1")(y)
        y = nn.relu(self.norm(name="norm2")(y))
        return shortcut + conv(self.filters, (3, 3), name="conv2")(y)


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


class ScannedBlock(nn.Module):
    """An encoder's block as `nn.scan` takes it: a carry, and nothing beside it."""

    heads: int

    @nn.compact
    def __call__(self, x, _):
        return EncoderBlock(self.heads)(x), None


class MixerBlock(nn.Module):
    """A perceptron across tokens, then one across channels."""

    tokens: int
    channels: int

    @nn.compact
    def __call__(self, x):
        y = jnp.swapaxes(nn.LayerNorm()(x), 1, 2)
        y = MlpBlock(self.tokens, name="token_mixing")(y)
        x = x + jnp.swapaxes(y, 1, 2)
        return x + MlpBlock(self.channels, name="channel_mixing")(nn.LayerNorm()(x))


class MlpMixer(nn.Module):
    """Patches and mixer blocks."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.width, (PATCH, PATCH), (PATCH, PATCH), name="stem")(x)
        n, h, w, c = x.shape
        x = x.reshape(n, h * w, c)
        for _ in range(self.depth):
            x = MixerBlock(self.width // 2, 4 * self.width)(x)
        x = nn.LayerNorm(name="pre_head_layer_norm")(x)
        return nn.Dense(CLASSES, name="head")(jnp.mean(x, axis=1))


class Tied(nn.Module):
    """An autoencoder that encodes and decodes by one weight, twice, and a linear layer."""

    width: int

    @nn.compact
    def __call__(self, x):
        x = x.reshape(len(x), -1)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (x.shape[-1], self.width))
        for layer in range(2):
            hidden = nn.relu(x @ kernel + self.param(f"bias_{layer}", nn.zeros, (self.width,)))
            x = nn.tanh(hidden @ kernel.T)
        return nn.Dense(CLASSES)(x)


class Repeated(nn.Module):
    """A convolution that runs several times, as in ALBERT and in recurrent ResNets."""

    width: int
    times: int

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.width, (3, 3))(x)
        conv, norm = nn.Conv(self.width, (3, 3)), nn.LayerNorm()
        for _ in range(self.times):
            x = x + nn.relu(conv(norm(x)))
        return nn.Dense(CLASSES)(jnp.mean(x, axis=(1, 2)))


class RowGRU(nn.Module):
    """A gated recurrent unit that reads an image row by row."""

    width: int

    @nn.compact
    def __call__(self, x):
        rows = x.reshape(*x.shape[:2], -1)
        hidden: Any = nn.RNN(nn.GRUCell(self.width, param_dtype=x.dtype))(rows)
        return nn.Dense(CLASSES)(hidden[:, -1])


class PixelLSTM(nn.Module):
    """A long short-term memory that reads an image pixel by pixel."""

    width: int

    @nn.compact
    def __call__(self, x):
        pixels = x.reshape(len(x), -1, x.shape[-1])
        hidden: Any = nn.RNN(nn.OptimizedLSTMCell(self.width, param_dtype=x.dtype))(pixels)
        return nn.Dense(CLASSES)(hidden[:, -1])


class StdConv(nn.Conv):
    """A convolution by standardised weights, as in Big Transfer."""

    def param(self, name, *args, **kwargs):
        param = super().param(name, *args, **kwargs)
        if name == "kernel":
            param = param - jnp.mean(param, axis=(0, 1, 2))
            param = param / (jnp.std(param, axis=(0, 1, 2)) + 1e-5)
        return param


class Standardised(nn.Module):
    """Convolutions by standardised weights, with group normalisation and skip connections."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, x):
        x = StdConv(self.width, (3, 3))(x)
        for _ in range(self.depth):
            y = nn.relu(nn.GroupNorm(self.width // 4)(x))
            x = x + StdConv(self.width, (3, 3))(y)
        return nn.Dense(CLASSES)(jnp.mean(nn.relu(x), axis=(1, 2)))


class WeightNormed(nn.Module):
    """Convolutions and a linear layer by `nn.WeightNorm`: a length and a direction."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, x):
        for layer in range(self.depth):
            strides = (2, 2) if layer % 2 else (1, 1)
            x = nn.relu(nn.WeightNorm(nn.Conv(self.width, (3, 3), strides))(x))
        return nn.WeightNorm(nn.Dense(CLASSES))(jnp.mean(x, axis=(1, 2)))


class ScannedTransformer(VisionTransformer):
    """A vision transformer whose layers are one scan over stacked weights."""

    def encode(self, x):
        stack = nn.scan(
            nn.remat(ScannedBlock, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=self.depth,
        )
        return stack(self.heads, name="layers")(x, None)[0]


MODULES: dict[str, nn.Module] = {
    "resnet18": ResNet(8, norm_of("group", 8), (1, 1)),
    "resnet18-batch": ResNet(8, norm_of("batch", 8), (1, 1)),
    "wide-resnet": WideResNet(8, 2, 1, norm_of("group", 4)),
    "wide-resnet-batch": WideResNet(8, 2, 1, norm_of("batch", 4)),
    "convnext": ConvNeXt((8, 8), (1, 1)),
    "mobilenet": MobileNet(8),
    "densenet": DenseNet(8, 2, 2),
    "vit": VisionTransformer(12, 3, 2),
    "scanned-vit": ScannedTransformer(12, 3, 2),
    "mixer": MlpMixer(12, 2),
    "tied": Tied(16),
    "repeated": Repeated(8, 2),
    "row-gru": RowGRU(8),
    "pixel-lstm": PixelLSTM(8),
    "standardised": Standardised(8, 1),
    "weight-normed": WeightNormed(8, 1),
}
