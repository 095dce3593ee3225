"""Adversarial training of a two-layer network in a ball around its initialisation.

f(x) = m^−1/2 Σ a_s max(0, w_s·x) with a_s = ±1 and rows w_s ~ N(0, I) at the start. The lazy regime
is every W whose rows are within V = C₀/√m of their start; the width does not change C₀.

Source: Wang et al. (2022), "Adversarial robustness is at odds with lazy training".
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from attacks import Attack
from experiments.theory.networks import two_layer
from experiments.theory.training import Labels, input_gradient, mean_loss


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
        rate, batch, epochs: step size along the mean loss of a batch, its points, and passes.

    Source: Wang et al. (2022), algorithm 1; its attack goes on from step to step, in steps of
    length one, and the projection follows every step of descent.

    Example:
        >>> from experiments.theory.networks import draw_two_layer
        >>> w, a = draw_two_layer(jax.random.key(0), dimension=3, width=50)
        >>> x, y = jnp.eye(3), jnp.asarray([1.0, -1.0, 1.0])
        >>> end = adversarial_training(jax.random.key(1), w, a, x, y, 0.1, 1.0, 4.0, 3, 3, 50)
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
