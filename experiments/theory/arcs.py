"""Arcs of the circle as perturbation sets, on which the worst case is known."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from experiments.theory.tasks import circle, lifted
from experiments.theory.training import logistic
from ntkscore.errors import InputError
from ntkscore.model import Model


@dataclass(frozen=True)
class Arcs:
    """Arcs around the angles of the task `circle`, lifted to the sphere (`lifted`).

    Attributes:
        radius: of each arc, in radians, at most half of the angles' distance.
        count: number n of angles.
        grid: angles that the worst one of an arc is sought among, its ends included.

    Raises:
        InputError: if arcs of different labels could meet.

    Example:
        >>> Arcs(radius=0.15).points.shape
        (10, 81, 3)
    """

    radius: float
    count: int = 10
    grid: int = 81

    def __post_init__(self) -> None:
        if not 0 <= self.radius < np.pi / self.count:
            raise InputError(
                f"expected arcs of a radius from 0 to below {np.pi / self.count:.3f}, got "
                f"{self.radius:g}; wider ones meet"
            )

    @property
    def y(self) -> Float[np.ndarray, " n"]:
        """Labels 1 and −1."""
        return circle(self.count)[1]

    @property
    def clean(self) -> Float[np.ndarray, "n 3"]:
        """The arcs' middles."""
        return lifted(circle(self.count)[0])

    @property
    def points(self) -> Float[np.ndarray, "n g 3"]:
        """The grid of every arc."""
        across = np.linspace(-self.radius, self.radius, self.grid)
        return lifted(circle(self.count)[0][:, None] + across)

    def margins(self, model: Model, params: PyTree) -> Float[Array, "n g"]:
        """y f on the grids."""
        dtype = jax.tree.leaves(params)[0].dtype
        flat = jnp.asarray(self.points.reshape(-1, 3), dtype)
        outputs = model.apply(params, flat)[:, 0].reshape(self.count, self.grid)
        return jnp.asarray(self.y, dtype)[:, None] * outputs

    def worst(self, model: Model, params: PyTree) -> Float[Array, "n 3"]:
        """𝒜*: of each grid the point of largest loss."""
        least = jnp.argmin(self.margins(model, params), axis=1)
        grid = jnp.asarray(self.points, jax.tree.leaves(params)[0].dtype)
        return jnp.take_along_axis(grid, least[:, None, None], axis=1)[:, 0]

    def stepped(self, model: Model, params: PyTree) -> Float[Array, "n 3"]:
        """A weak 𝒜: the end of each arc that the loss's slope at its middle points to."""
        dtype = jax.tree.leaves(params)[0].dtype
        angles, y = (jnp.asarray(each, dtype) for each in circle(self.count))

        def on(angles: Array) -> Array:
            return jnp.stack([jnp.cos(angles), jnp.sin(angles), jnp.ones_like(angles)], 1) / 2**0.5

        slope = jax.grad(lambda p: jnp.sum(logistic(y * model.apply(params, on(p))[:, 0])))(angles)
        return on(angles + self.radius * jnp.sign(slope))

    def robust_loss(self, model: Model, params: PyTree) -> tuple[Array, Array]:
        """L_* on the grids, nats, and by how much the true one may exceed it.

        The second is the largest measured slope along an arc times half of the grid's distance.
        """
        margins = self.margins(model, params)
        spacing = 2 * self.radius / (self.grid - 1)
        steepest = jnp.max(jnp.abs(jnp.diff(margins, axis=1))) / spacing
        return jnp.mean(logistic(jnp.min(margins, axis=1))), steepest * spacing / 2
