"""Networks in nnx, in equinox, and without a library."""

import itertools
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float, PyTree

from experiments.tools.networks import CLASSES, STAGES, Norm, blocks_of, drawn
from ntkscore.model import Model
from zoo.setting import Network, Scale, images_of


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


class Block(eqx.Module):
    """Two convolutions with group normalisation, and a skip connection."""

    conv1: eqx.nn.Conv2d
    norm1: eqx.nn.GroupNorm
    conv2: eqx.nn.Conv2d
    norm2: eqx.nn.GroupNorm

    def __init__(self, width: int, *, key: Array) -> None:
        keys = jax.random.split(key)
        self.conv1 = eqx.nn.Conv2d(width, width, 3, padding=1, use_bias=False, key=keys[0])
        self.norm1 = eqx.nn.GroupNorm(width // 4, width)
        self.conv2 = eqx.nn.Conv2d(width, width, 3, padding=1, use_bias=False, key=keys[1])
        self.norm2 = eqx.nn.GroupNorm(width // 4, width)

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, "c h w"]:
        y = jax.nn.relu(self.norm1(self.conv1(x)))
        return jax.nn.relu(x + self.norm2(self.conv2(y)))


class ConvNet(eqx.Module):
    """Blocks with max pooling, and a perceptron."""

    stem: eqx.nn.Conv2d
    blocks: list[Block]
    pool: eqx.nn.MaxPool2d
    head: eqx.nn.MLP

    def __init__(self, width: int, depth: int, *, key: Array) -> None:
        keys = jax.random.split(key, depth + 2)
        self.stem = eqx.nn.Conv2d(3, width, 3, padding=1, key=keys[0])
        self.blocks = [Block(width, key=key) for key in keys[2:]]
        self.pool = eqx.nn.MaxPool2d(2, 2)
        self.head = eqx.nn.MLP(width, CLASSES, 2 * width, 1, activation=jax.nn.gelu, key=keys[1])

    def __call__(self, x: Float[Array, "3 h w"]) -> Float[Array, " o"]:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(self.pool(x), axis=(1, 2)))


class RowGRU(eqx.Module):
    """A gated recurrent unit over rows, by `lax.scan`."""

    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, inputs: int, width: int, *, key: Array) -> None:
        keys = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(inputs, width, key=keys[0])
        self.head = eqx.nn.Linear(width, CLASSES, key=keys[1])

    def __call__(self, x: Float[Array, "3 h w"]) -> Float[Array, " o"]:
        rows = jnp.moveaxis(x, 0, -1).reshape(x.shape[1], -1)
        start = jnp.zeros(self.cell.hidden_size, x.dtype)
        hidden, _ = lax.scan(lambda h, row: (self.cell(row, h), None), start, rows)
        return self.head(hidden)


def nnx_resnet18(scale: Scale, norm: str = "group") -> Network:
    """ResNet-18 in nnx: its params, with all other state fixed."""
    filters, stages = scale.channels(64), tuple(map(scale.layers, STAGES[: scale.stages(4)]))
    groups = partial(nnx.GroupNorm, num_groups=min(32, filters // 2))
    norms = {"group": groups, "batch": partial(nnx.BatchNorm, use_running_average=True)}
    module = nnx.eval_shape(lambda: NnxResNet(filters, norms[norm], stages, rngs=nnx.Rngs(0)))
    graph, *shapes = nnx.split(module, nnx.Param, ...)
    params, fixed = (drawn(each, scale.dtype) for each in shapes)

    def apply(params: PyTree, x: Array) -> Array:
        return nnx.merge(graph, params, fixed)(x)

    return Model(apply, params), images_of(scale)


def of_equinox(make: Callable[..., eqx.Module], *sizes: int, scale: Scale) -> Network:
    """A model of the module that a class makes at these sizes."""
    module = eqx.filter_eval_shape(make, *sizes, key=jax.random.key(0))
    shapes, static = eqx.partition(module, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def apply(params: PyTree, x: Array) -> Array:
        return jax.vmap(eqx.combine(params, static))(jnp.moveaxis(x, -1, 1))

    return Model(apply, drawn(shapes, scale.dtype)), images_of(scale)


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
    return drawn(like, scale.dtype)
