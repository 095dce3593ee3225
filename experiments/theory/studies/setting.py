"""Residual networks on the points of a study, as compiled functions take them."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from cells.residual.networks import Residual
from ntkscore.task import Task


@lru_cache
def _apply(space: Residual, shape: Any) -> Any:
    """One function for all networks of a shape: their skips and weights are its arguments."""
    return lambda code, weights, points: space.model(shape, weights, code, points).apply(
        weights, points
    )


def network(
    space: Residual, name: str, points: np.ndarray, seed: int
) -> tuple[jax.tree_util.Partial, PyTree]:
    """Function and weights W^{[1]}, float32, of a `Model` with one output, for compiled functions.

    They are compiled once for all networks of a shape.
    """
    space = space.on(Task(points.shape[1:], 1))
    skips = space.parse(name)
    shape, code = space.shape(skips), jnp.asarray(space.encode(skips))
    return jax.tree_util.Partial(_apply(space, shape), code), space.draw(shape, seed, jnp.float32)


def singles(*numbers: Any) -> list[Array]:
    """Numbers and arrays in float32."""
    return [jnp.asarray(each, jnp.float32) for each in numbers]
