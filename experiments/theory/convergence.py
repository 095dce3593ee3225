"""Projected descent in a ball around the initial weights, its regret, and arcs to run it on.

Source: Gao et al. (2019), "Convergence of adversarial training in overparametrized neural
networks", sections 3 to 5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from experiments.theory.tasks import circle, lifted
from experiments.theory.training import logistic, mean_loss
from ntkscore.errors import InputError
from ntkscore.model import Model

Perturb = Callable[[PyTree], Array]
"""A perturbation function 𝒜(W, ·): the perturbed points, (n, d), at some weights."""


def project_to_ball(params: PyTree, centre: PyTree, radius: float | Array) -> PyTree:
    """The nearest weights of which every array is within a Frobenius distance of its centre.

    The radius is R/√m for the deep network, R for the two-layer one.

    Source: Gao et al. (2019), equation 2.

    Example:
        >>> project_to_ball([jnp.asarray([3.0, 4.0])], [jnp.zeros(2)], 1.0)
        [Array([0.6, 0.8], dtype=float32)]
    """

    def nearest(weight: Array, start: Array) -> Array:
        change = weight - start
        length = jnp.sqrt(jnp.sum(change**2))
        # Weights inside stay as they are, to the bit.
        return jnp.where(length > radius, start + change * (radius / length), weight)

    return jax.tree.map(nearest, params, centre)


class Descent(NamedTuple):
    """A run of T steps: its end, and at each W_t, t < T, what the regret is made of.

    Attributes:
        params: W_T.
        losses: L_𝒜(W_t), nats, (T,).
        slopes: ‖∇L_𝒜(W_t)‖², (T,).
        defects: mean over the points of ℓ(W_t) + ⟨∇ℓ(W_t), W^c − W_t⟩ − ℓ(W^c), each at the
            perturbed point of W_t: what a convex loss has at most zero, (T,).
        distances: ‖W_t − W^c‖, (T,).
        projected: share of the weights' arrays that the projection moved after step t, (T,).
    """

    params: PyTree
    losses: Float[Array, " t"]
    slopes: Float[Array, " t"]
    defects: Float[Array, " t"]
    distances: Float[Array, " t"]
    projected: Float[Array, " t"]


class Regret(NamedTuple):
    """Bounds min_t L_𝒜(W_t) − L_*(W^c) by their sum, nats.

    Attributes:
        distance: ‖W_0 − W^c‖²/(2αT).
        slope: α/2 · mean ‖g_t‖².
        defect: mean lack of convexity.
    """

    distance: Float[Array, ""]
    slope: Float[Array, ""]
    defect: Float[Array, ""]


def projected_descent(
    model: Model,
    y: Float[Array, " n"],
    perturb: Perturb,
    step_size: float,
    steps: int,
    radius: float | Array = float("inf"),
    comparator: PyTree | None = None,
) -> Descent:
    """Full-batch steps on the surrogate loss, each projected back into the ball around W_0.

    The surrogate loss is that at the perturbed points; its gradient holds them fixed.

    Args:
        model: with one output, at W_0.
        y: labels 1 and −1.
        perturb: the perturbed points at weights, arbitrary.
        step_size, steps: α and T.
        radius: of the ball for every array of the weights (`project_to_ball`).
        comparator: W^c, weights that the run is compared with; W_0 if left out.

    Source: Gao et al. (2019), section 4; theorem 4.1 has the projection, theorem 5.1 has none.

    Example:
        >>> linear = Model(lambda w, x: x @ w, jnp.zeros((2, 1)))
        >>> y = jnp.asarray([1.0, -1.0])
        >>> run = projected_descent(linear, y, lambda w: jnp.eye(2), 1.0, steps=50, radius=2.0)
        >>> float(jnp.sum(run.params**2) ** 0.5), bool(run.losses[-1] < run.losses[0])
        (2.0, True)
    """
    other = model.params if comparator is None else comparator

    def step(params: PyTree, _: None) -> tuple[PyTree, tuple[Array, ...]]:
        points = lax.stop_gradient(perturb(params))
        loss_at = lambda w: mean_loss(model, w, points, y)  # noqa: E731
        loss, gradient = jax.value_and_grad(loss_at)(params)
        towards = jax.tree.map(jnp.subtract, other, params)
        defect = loss + _inner(gradient, towards) - loss_at(other)
        moved = jax.tree.map(lambda w, g: w - step_size * g, params, gradient)
        inside = project_to_ball(moved, model.params, radius)
        changed = jax.tree.leaves(jax.tree.map(lambda a, b: jnp.any(a != b), moved, inside))
        distance = jnp.sqrt(_inner(towards, towards))
        share = jnp.mean(jnp.stack(changed).astype(loss.dtype))
        return inside, (loss, _inner(gradient, gradient), defect, distance, share)

    params, measured = lax.scan(step, model.params, None, length=steps)
    return Descent(params, *measured)


def descend_until(
    loss: Callable[[PyTree], Array],
    params: PyTree,
    step_size: float | Array,
    enough: float | Array,
    most: int | Array,
) -> tuple[Array, PyTree, Array]:
    """The number of steps of descent until a loss is low enough; weights, and the loss found last.

    Args:
        loss: of weights.
        params: where it starts.
        step_size: α.
        enough: the loss at which it ends.
        most: steps after which it ends anyway.

    Example:
        >>> length = lambda w: jnp.sum(w**2)
        >>> t, w, loss = descend_until(length, jnp.ones(1), 0.25, enough=0.1, most=9)
        >>> int(t), w.tolist(), float(loss)
        (2, [0.25], 0.0625)
    """

    def step(run: tuple[Array, PyTree, Array]) -> tuple[Array, PyTree, Array]:
        t, w, _ = run
        value, gradient = jax.value_and_grad(loss)(w)
        # The loss is of the weights before the step, which are kept where it is low enough.
        done = value <= enough
        moved = jax.tree.map(lambda a, g: jnp.where(done, a, a - step_size * g), w, gradient)
        return t + jnp.where(done, 0, 1), moved, value

    start = (jnp.asarray(0), params, jnp.asarray(jnp.inf))
    return lax.while_loop(lambda run: (run[0] < most) & (run[2] > enough), step, start)


def regret(
    run: Descent, step_size: float, curvature: float | None = None, width: int = 1
) -> Regret:
    """The terms that bound the regret of a run against its comparator, which must be in the ball.

    Args:
        run: with the comparator W^c.
        step_size: α.
        curvature: sup |σ″|; in place of the measured defects the bound of a two-layer network's,
            C″/(2√m) ‖W_t − W^c‖², counts.
        width: m of that network.

    Source: the proofs of theorems 4.1 and 5.1 of Gao et al. (2019), with measured numbers in place
    of their constants; with d_0²/(2αT), which is misprinted there.

    Example:
        >>> linear = Model(lambda w, x: x @ w, jnp.zeros((2, 1)))
        >>> y, best = jnp.asarray([1.0, -1.0]), jnp.asarray([[2.0], [-2.0]])
        >>> run = projected_descent(linear, y, lambda w: jnp.eye(2), 0.5, 40, comparator=best)
        >>> gap = run.losses.min() - jnp.log1p(jnp.exp(-2.0))
        >>> bool(gap <= sum(regret(run, 0.5)))
        True
    """
    defects = run.defects
    if curvature is not None:
        defects = curvature / (2 * width**0.5) * run.distances**2
    return Regret(
        run.distances[0] ** 2 / (2 * step_size * len(run.losses)),
        step_size / 2 * jnp.mean(run.slopes),
        jnp.mean(defects),
    )


def theorem41_width(radius: float, hidden: int, gap: float, dimension: int = 1) -> float:
    """m = max(R⁹ H¹⁶/ε⁷, d²), for projected descent on a deep network; constants are not given.

    R is the ball's radius, H the number of trained layers, ε, in nats, by how much the loss may
    exceed the best of the ball.

    Source: Gao et al. (2019), theorem 4.1.

    Example:
        >>> f"{theorem41_width(radius=1, hidden=2, gap=0.1):.1e}"
        '6.6e+11'
    """
    return float(max(radius**9 * hidden**16 / gap**7, dimension**2))


def theorem51_width(radius: float, gap: float) -> float:
    """m = R⁴/ε², for descent on a smooth two-layer network, as `theorem41_width`.

    Source: Gao et al. (2019), theorem 5.1.

    Example:
        >>> round(theorem51_width(radius=2, gap=0.1))
        1600
    """
    return float(radius**4 / gap**2)


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
        """A weak 𝒜: the end of each arc that the loss's gradient at its middle points to."""
        dtype = jax.tree.leaves(params)[0].dtype
        angles, y = (jnp.asarray(each, dtype) for each in circle(self.count))

        def on(angles: Array) -> Array:
            return jnp.stack([jnp.cos(angles), jnp.sin(angles), jnp.ones_like(angles)], 1) / 2**0.5

        loss = lambda angles: jnp.sum(logistic(y * model.apply(params, on(angles))[:, 0]))  # noqa: E731
        gradient = jax.grad(loss)(angles)
        return on(angles + self.radius * jnp.sign(gradient))

    def robust_loss(self, model: Model, params: PyTree) -> tuple[Array, Array]:
        """L_* on the grids, nats, and by how much the true one may exceed it.

        The second is the largest measured slope along an arc times half of the grid's distance.
        """
        margins = self.margins(model, params)
        spacing = 2 * self.radius / (self.grid - 1)
        steepest = jnp.max(jnp.abs(jnp.diff(margins, axis=1))) / spacing
        return jnp.mean(logistic(jnp.min(margins, axis=1))), steepest * spacing / 2


def _inner(a: PyTree, b: PyTree) -> Array:
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda p, q: jnp.sum(p * q), a, b))
