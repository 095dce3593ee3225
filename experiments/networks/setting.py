"""Sizes, images and weights that the networks share, and how a library's module becomes a model."""

from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import nnx
from jaxtyping import Array, Float, PyTree

from ntkscore.model import Model

CLASSES = 10
SPREAD = 0.1
"""Standard deviation of scales around one, and of shifts."""


class Scale(NamedTuple):
    """The size of a network and of its images.

    Attributes:
        width, depth: multiples of the published numbers of channels and of layers.
        side: of the images, in pixels.
        points: how many images.
        dtype: of weights and images.
    """

    width: float = 1.0
    depth: float = 1.0
    side: int = 32
    points: int = 4
    dtype: Any = jnp.float32

    def channels(self, published: int) -> int:
        """The published number of channels at this width: a multiple of four, at least eight."""
        return max(8, 4 * round(published * self.width / 4))

    def layers(self, published: int) -> int:
        """The published number of layers at this depth, at least one."""
        return max(1, round(published * self.depth))

    def stages(self, published: int) -> int:
        """The published number of stages at this depth, at least two."""
        return max(2, round(published * self.depth))


TINY = Scale(width=1 / 16, depth=0.25, side=8, points=3)
Network = tuple[Model, Float[Array, "m h w c"]]
"""A network at its weights, and images for it."""


def images_of(scale: Scale) -> Float[Array, "m h w 3"]:
    """Images of random pixels in [0, 1]."""
    shape = scale.points, scale.side, scale.side, 3
    return jnp.asarray(np.random.default_rng(0).uniform(size=shape), scale.dtype)


def drawn(shapes: PyTree, scale: Scale) -> PyTree:
    """Random weights and statistics of these shapes, in which no scale is one and no shift zero.

    Weights vary with their fan-in, scales and variances about one, shifts and means about zero.
    """
    rng = np.random.default_rng(1)

    def one(path: tuple, leaf: Any) -> Array:
        name, noise = jax.tree_util.keystr(path), rng.standard_normal(leaf.shape)
        if "bias" in name or "mean" in name:
            noise *= SPREAD
        elif "scale" in name or len(leaf.shape) < 2:
            noise = 1 + SPREAD * noise
        else:
            noise /= prod(leaf.shape[:-1]) ** 0.5
        return jnp.asarray(noise, scale.dtype)

    return jax.tree_util.tree_map_with_path(one, shapes)


def of_linen(module: nn.Module, scale: Scale) -> Network:
    """A model of a linen module in evaluation mode: its params, with all other variables fixed."""
    images = images_of(scale)
    shapes = jax.eval_shape(module.init, jax.random.key(0), images[:1])
    variables = {name: drawn(part, scale) for name, part in shapes.items()}
    params = variables.pop("params")

    def apply(params: PyTree, x: Array) -> Any:
        return module.apply({"params": params, **variables}, x)

    return Model(apply, params), images


def of_nnx(module: Any, scale: Scale) -> Network:
    """A model of an nnx module: its params, with all other state fixed.

    Args:
        module: in evaluation mode, as `nnx.eval_shape` makes it.
        scale: how large it is.
    """
    graph, *shapes = nnx.split(module, nnx.Param, ...)
    params, fixed = (drawn(each, scale) for each in shapes)

    def apply(params: PyTree, x: Array) -> Array:
        return nnx.merge(graph, params, fixed)(x)

    return Model(apply, params), images_of(scale)
