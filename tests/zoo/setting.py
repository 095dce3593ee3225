"""Sizes of the networks of the zoo, and how modules become models at these sizes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import linen as nn

from experiments.tools import networks

Network = networks.Network


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
Maker = Callable[[Scale], Network]


def images_of(scale: Scale) -> Any:
    return networks.images_of(scale.points, scale.side, scale.dtype)


def linen(make: Callable[..., nn.Module], width: int, layers: int | None = None) -> Maker:
    """A maker of a linen module, given its published width and, where it has them, layers."""

    def at(scale: Scale) -> Network:
        sizes = [scale.channels(width)] + ([scale.layers(layers)] if layers else [])
        return networks.of_linen(make(*sizes), images_of(scale))

    return at
