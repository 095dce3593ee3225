"""Weights used in several places or made of others: tied, over time, stacked, standardised."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import PyTree

from experiments.networks.setting import CLASSES, Network, Scale, drawn, images_of
from ntkscore.model import Model


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


def stacked(scale: Scale) -> Network:
    """Residual layers in one array, by `lax.scan`, each rematerialised; no library."""
    width, depth = scale.channels(256), scale.layers(8)
    images = images_of(scale)
    inputs = images[0].size

    def apply(params, x):
        @jax.checkpoint
        def layer(x, weights):
            hidden = jax.nn.silu(x @ weights["up"] + weights["bias"])
            return x + hidden @ weights["down"], None

        x = x.reshape(len(x), -1) @ params["embed"]
        x, _ = lax.scan(layer, x, params["layers"])
        return x @ params["readout"]

    shapes = {
        "embed": (inputs, width),
        "layers": {
            "up": (depth, width, 2 * width),
            "bias": (depth, 2 * width),
            "down": (depth, 2 * width, width),
        },
        "readout": (width, CLASSES),
    }
    return Model(apply, _arrays(shapes, scale)), images


def arrays(scale: Scale) -> Network:
    """A list of arrays and a function, no library."""
    images = images_of(scale)
    sizes = [images[0].size, *[scale.channels(256)] * scale.layers(4), CLASSES]

    def apply(params, x):
        x = x.reshape(len(x), -1)
        for kernel, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
            x = jnp.maximum(x @ kernel + bias, 0)
        return x @ params[-2] + params[-1]

    pairs = itertools.pairwise(sizes)
    shapes = [shape for k, d in pairs for shape in ((k, d), (d,))]
    return Model(apply, _arrays(shapes, scale)), images


def _arrays(shapes: PyTree, scale: Scale) -> PyTree:
    """Random arrays of these shapes."""
    like = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, scale.dtype),
        shapes,
        is_leaf=lambda each: isinstance(each, tuple),
    )
    return drawn(like, scale)
