"""Projected descent in a ball around the initial weights, and what bounds its regret.

Source: Gao et al. (2019), "Convergence of adversarial training in overparametrized neural
networks", sections 3 to 5.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from experiments.theory.training import logistic, margins
from ntkscore.model import Model

Perturb = Callable[[PyTree], Array]
"""A perturbation function 𝒜(W, ·): the perturbed points, (n, d), that weights are met with."""


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

    def step(params: PyTree, _: Any) -> tuple[PyTree, tuple[Array, ...]]:
        points = lax.stop_gradient(perturb(params))
        loss_at = lambda w: jnp.mean(logistic(margins(model, w, points, y)))  # noqa: E731
        loss, slope = jax.value_and_grad(loss_at)(params)
        towards = jax.tree.map(jnp.subtract, other, params)
        defect = loss + _inner(slope, towards) - loss_at(other)
        moved = jax.tree.map(lambda w, g: w - step_size * g, params, slope)
        inside = project_to_ball(moved, model.params, radius)
        changed = jax.tree.leaves(jax.tree.map(lambda a, b: jnp.any(a != b), moved, inside))
        distance = jnp.sqrt(_inner(towards, towards))
        share = jnp.mean(jnp.stack(changed).astype(loss.dtype))
        return inside, (loss, _inner(slope, slope), defect, distance, share)

    params, seen = lax.scan(step, model.params, None, length=steps)
    return Descent(params, *seen)


def regret(
    run: Descent, step_size: float, curvature: float | None = None, width: int = 1
) -> Regret:
    """What bounds the regret of a run against its comparator, which must lie in the ball.

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


def _inner(a: PyTree, b: PyTree) -> Array:
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda p, q: jnp.sum(p * q), a, b))
