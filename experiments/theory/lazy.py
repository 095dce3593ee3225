"""Two-layer networks close to their initialisation: the step that flips them, training in a ball.

f(x) = m^−1/2 Σ a_s max(0, w_s·x) with a_s = ±1 and rows w_s ~ N(0, I) at the start. The lazy regime
is every W whose rows are within V = C₀/√m of their start; the width does not change C₀.

Source: Wang et al. (2022), "Adversarial robustness is at odds with lazy training".
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from attacks import Attack
from experiments.theory.networks import two_layer
from experiments.theory.training import Labels, input_gradient, mean_loss

ROUNDING = 1e-12
"""Rounding error of a sum over the neurons, in units of the output."""


class Flip(NamedTuple):
    """The smallest step along the gradient that changes the sign of the output.

    Attributes:
        step: η ≥ 0 in x − sign(f) η ∇f; NaN where no step does.
        status: `ok`, or `no_flip`.
        output, gradient: f(x) and ‖∇f(x)‖.
    """

    step: float
    status: str
    output: float
    gradient: float

    @property
    def length(self) -> float:
        """‖δ‖ = η ‖∇f‖, in units of the points."""
        return self.step * self.gradient

    @property
    def linear(self) -> float:
        """|f|/‖∇f‖, what the length would be of a linear function."""
        return abs(self.output) / self.gradient if self.gradient else float("nan")


def flip_along_gradient(
    weights: Float[np.ndarray, "m d"], a: Float[np.ndarray, " m"], x: Float[np.ndarray, " d"]
) -> Flip:
    """The exact smallest flipping step: f is piecewise linear along a ray.

    Example:
        >>> w, a, x = np.array([[1.0, 0.0]]), np.array([1.0]), np.array([2.0, 0.0])
        >>> flip = flip_along_gradient(w, a, x)
        >>> flip.status, flip.output  # relu never gets below zero
        ('no_flip', 2.0)
    """
    root = len(a) ** 0.5
    u = weights @ x
    active = u > 0
    output = float(a[active] @ u[active]) / root
    gradient = (a * active) @ weights / root
    length = float(np.linalg.norm(gradient))
    v = weights @ (-np.sign(output) * gradient)
    # Along the ray the slope changes where a neuron does.
    with np.errstate(divide="ignore", invalid="ignore"):
        breaks = np.where(v != 0, -u / v, np.inf)
    ahead = np.isfinite(breaks) & (breaks > 0)
    order = np.argsort(breaks[ahead])
    starts = np.concatenate([[0.0], breaks[ahead][order]])
    changes = (a * np.abs(v))[ahead][order] / root
    slopes = float(a[active] @ v[active]) / root + np.concatenate([[0.0], np.cumsum(changes)])
    # A sum that should vanish leaves rounding, which would lead below zero far away.
    slopes[np.abs(slopes) <= ROUNDING * np.abs(v).sum() / root] = 0
    values = output + np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(starts))])
    ends = np.append(values[1:], np.inf * np.sign(slopes[-1]) if slopes[-1] else values[-1])
    # Beyond rounding: where every neuron has died, f is zero and stays there.
    crossed = np.nonzero(ends * np.sign(output) < -ROUNDING * abs(output))[0]
    if output == 0 or not len(crossed):
        return Flip(float("nan"), "no_flip", output, length)
    k = crossed[0]
    return Flip(float(starts[k] - values[k] / slopes[k]), "ok", output, length)


def project_rows(
    weights: Float[Array, "m d"], start: Float[Array, "m d"], radius: float | Array
) -> Float[Array, "m d"]:
    """The nearest weights of which every row is within a distance of its start.

    Source: Wang et al. (2022), algorithm 1, line 11, after every step.

    Example:
        >>> project_rows(jnp.asarray([[3.0, 4.0], [0.5, 0.0]]), jnp.zeros((2, 2)), 2.5)
        Array([[1.5, 2. ],
               [0.5, 0. ]], dtype=float32)
    """
    change = weights - start
    length = jnp.sqrt(jnp.sum(change**2, 1, keepdims=True))
    # Rows inside stay as they are, to the bit.
    return jnp.where(length > radius, start + change * (radius / length), weights)


def ball_attack(radius: float | Array, steps: int) -> Attack:
    """PGD in the Euclidean ball, whose steps together reach two and a half times the radius."""
    return Attack(radius, steps, 2.5 * radius / steps, norm="l2", box=None)


@partial(jax.jit, static_argnames=("steps", "batch", "epochs"))
def adversarial_training(
    key: PRNGKeyArray,
    weights: Float[Array, "m d"],
    a: Float[Array, " m"],
    x: Float[Array, "n d"],
    y: Labels,
    radius: float | Array,
    ball: float | Array,
    rate: float | Array,
    steps: int = 7,
    batch: int = 32,
    epochs: int = 6,
) -> Float[Array, "m d"]:
    """Train on attacked points, with each step projected onto a ball of weights.

    In each epoch all points are attacked, then met in batches in a new order; after every step each
    row of W is moved to the nearest place within V of its start.

    Args:
        key: of the orders.
        weights, a: W_0 and the output weights.
        x, y: points and their labels, 1 and −1.
        radius, steps: R and steps of the attack (`ball_attack`).
        ball: V.
        rate, batch: of a step, along the mean loss of its batch.
        epochs: how many.

    Source: Wang et al. (2022), algorithm 1; its attack goes on from step to step, in steps of
    length one, and the projection follows every step of descent.

    Example:
        >>> from experiments.theory.networks import draw_two_layer
        >>> w, a = draw_two_layer(jax.random.key(0), dimension=3, width=50)
        >>> x, y = jnp.eye(3), jnp.asarray([1.0, -1.0, 1.0])
        >>> sizes = {"steps": 3, "batch": 3, "epochs": 50}
        >>> end = adversarial_training(jax.random.key(1), w, a, x, y, 0.1, 1.0, 4.0, **sizes)
        >>> bool(jnp.linalg.norm(end - w, axis=1).max() <= 1 + 1e-6)
        True
        >>> bool((y * two_layer(w, a).apply(end, x)[:, 0]).min() > 0)
        True
    """
    model, count = two_layer(weights, a), len(x) // batch

    def epoch(i: Array, w: Array) -> Array:
        attacked = ball_attack(radius, steps)(input_gradient(model, w, y), x)
        order = jax.random.permutation(jax.random.fold_in(key, i), len(x))

        def step(j: Array, w: Array) -> Array:
            rows = lax.dynamic_slice(order, (j * batch,), (batch,))
            gradient = jax.grad(lambda w: mean_loss(model, w, attacked[rows], y[rows]))(w)
            return project_rows(w - rate * gradient, weights, ball)

        return lax.fori_loop(0, count, step, w)

    return lax.fori_loop(0, epochs, epoch, weights)
