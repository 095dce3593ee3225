"""The benchmark's optimiser: steps with momentum and weight decay on a one-cycle schedule."""

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float

from ntkscore.training.recipe import Recipe

RISE = 0.3
"""Share of the steps in which the step size rises."""


def one_cycle(
    steps: int, start: float, peak: float, end: float, momentum: tuple[float, float]
) -> tuple[Float[np.ndarray, " s"], Float[np.ndarray, " s"]]:
    """Step size and momentum at each step: two halves of a cosine, in opposite directions.

    Args:
        start, peak, end: of the step size.
        momentum: at the start and the end, and at the peak.

    Source: Smith and Topin (2018), "Super-convergence", as in PyTorch's `OneCycleLR`.

    Example:
        >>> rates, momenta = one_cycle(9800, 0.004, 0.1, 4e-7, (0.95, 0.85))
        >>> rates[[0, 1000, 5000]].round(7).tolist(), momenta[[1000, 5000]].round(6).tolist()
        ([0.004, 0.0289091, 0.0793337], [0.924053, 0.870666])
    """
    # With few steps the peak is at the first.
    k, turn = np.arange(steps), max(RISE * steps - 1, 0.0)
    rising = np.where(k <= turn, k / turn if turn > 0 else 1.0, 1.0)
    falling = np.clip((k - turn) / max(steps - 1 - turn, 1e-12), 0, 1)
    up = k <= turn

    def along(first: float, middle: float, last: float) -> Float[np.ndarray, " s"]:
        cosine = lambda a, b, u: b + (a - b) * (1 + np.cos(np.pi * u)) / 2  # noqa: E731
        return np.where(up, cosine(first, middle, rising), cosine(middle, last, falling))

    high, low = momentum
    return along(start, peak, end), along(high, low, high)


def optimizer(recipe: Recipe, steps: int) -> optax.GradientTransformation:
    """Stochastic gradient steps with momentum: v ← μ_k v + g + λ w, w ← w − γ_k v."""
    preset, scale = recipe.preset, recipe.peak / 0.1
    rates, momenta = one_cycle(
        steps, preset.start * scale, recipe.peak, preset.end * scale, preset.momentum
    )

    def at(table: np.ndarray) -> optax.Schedule:
        return lambda k: jnp.asarray(table)[jnp.minimum(k, steps - 1)]

    stepping = optax.inject_hyperparams(optax.sgd)(learning_rate=at(rates), momentum=at(momenta))
    return optax.chain(optax.add_decayed_weights(recipe.decay), stepping)
