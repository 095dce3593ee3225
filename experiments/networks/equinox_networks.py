"""Networks as equinox writes them: a module of one image, channels first, under `jax.vmap`."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from experiments.networks.setting import CLASSES, Network, Scale, drawn, images_of
from ntkscore.model import Model


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


def of_equinox(make: Callable[..., eqx.Module], *sizes: int, scale: Scale) -> Network:
    """A model of the module that a class makes at these sizes."""
    module = eqx.filter_eval_shape(make, *sizes, key=jax.random.key(0))
    shapes, static = eqx.partition(module, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def apply(params: PyTree, x: Array) -> Array:
        return jax.vmap(eqx.combine(params, static))(jnp.moveaxis(x, -1, 1))

    return Model(apply, drawn(shapes, scale)), images_of(scale)
