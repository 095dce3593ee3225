"""Networks in nnx, in equinox, and without a library."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float, PyTree

from ntkscore.model import Model
from zoo.networks import CLASSES, Norm, blocks_of, drawn


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


def nnx_resnet18(images: Array, norm: str) -> Model:
    """ResNet in nnx: its params, with all other state fixed."""
    groups = partial(nnx.GroupNorm, num_groups=4)
    norms = {"group": groups, "batch": partial(nnx.BatchNorm, use_running_average=True)}
    module = nnx.eval_shape(lambda: NnxResNet(8, norms[norm], (1, 1), rngs=nnx.Rngs(0)))
    graph, *shapes = nnx.split(module, nnx.Param, ...)
    params, fixed = (drawn(each, images.dtype) for each in shapes)

    def apply(params: PyTree, x: Array) -> Array:
        return nnx.merge(graph, params, fixed)(x)

    return Model(apply, params)


def of_equinox(make: Callable[..., eqx.Module], *sizes: int, images: Array) -> Model:
    """A model of the module that a class makes at these sizes."""
    module = eqx.filter_eval_shape(make, *sizes, key=jax.random.key(0))
    shapes, static = eqx.partition(module, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def apply(params: PyTree, x: Array) -> Array:
        return jax.vmap(eqx.combine(params, static))(jnp.moveaxis(x, -1, 1))

    return Model(apply, drawn(shapes, images.dtype))


def stacked(images: Array) -> Model:
    """Residual layers in one array, by `lax.scan`, each rematerialised; no library."""

    def apply(params, x):
        @jax.checkpoint
        def layer(x, weights):
            hidden = jax.nn.silu(x @ weights["up"] + weights["bias"])
            return x + hidden @ weights["down"], None

        x = x.reshape(len(x), -1) @ params["embed"]
        x, _ = lax.scan(layer, x, params["layers"])
        return x @ params["readout"]

    layers = {"up": (2, 16, 32), "bias": (2, 32), "down": (2, 32, 16)}
    shapes = {"embed": (images[0].size, 16), "layers": layers, "readout": (16, CLASSES)}
    return Model(apply, _arrays(shapes, images))


def arrays(images: Array) -> Model:
    """A list of arrays and a function, no library."""

    def apply(params, x):
        first, bias, second, readout = params
        return jnp.maximum(x.reshape(len(x), -1) @ first + bias, 0) @ second + readout

    return Model(apply, _arrays([(images[0].size, 16), (16,), (16, CLASSES), (CLASSES,)], images))


def _arrays(shapes: PyTree, images: Array) -> PyTree:
    """Random arrays of these shapes."""
    like = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, images.dtype),
        shapes,
        is_leaf=lambda each: isinstance(each, tuple),
    )
    return drawn(like, images.dtype)
