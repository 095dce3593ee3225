"""Training of two-layer networks inside a ball of weights: plain, and against attacks.

The ball of radius V = C₀/√m holds every W whose rows are within V of their start. C₀ is the
deviation, which the width does not change.

Source: Wang et al. (2022), "Adversarial robustness is at odds with lazy training", section 5.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from experiments.theory.lazy import project_rows
from experiments.theory.networks import two_layer
from experiments.theory.training import Labels, input_gradient, logistic, margins
from ntkscore.model import Model

Weights = Float[Array, "m d"]
Signs = Float[Array, " m"]
Points = Float[Array, "n d"]
Run = tuple[Array, Array, Array]
"""Steps taken, the weights before the last one, and those after it."""
Reduction = Literal["mean", "sum"]
REDUCTIONS: dict[str, Callable[[Array], Array]] = {"mean": jnp.mean, "sum": jnp.sum}
"""Reductions of the loss over a batch; the sum makes steps larger by the size of the batch."""


class Inside(NamedTuple):
    """The last weights of a run inside each of k balls.

    Attributes:
        weights: W.
        deviation: the C₀ that they have reached, √m max_s ‖w_s − w_{s,0}‖.
        steps: taken until there.
        left: whether the next step left the ball; else the steps were over before.
    """

    weights: Float[Array, "k m d"]
    deviation: Float[Array, " k"]
    steps: Int[Array, " k"]
    left: Bool[Array, " k"]

    @property
    def status(self) -> list[str]:
        """`ok` for a ball that was left, `inside` for one that no step left."""
        return ["ok" if left else "inside" for left in np.asarray(self.left)]


def deviation(weights: Weights, start: Weights) -> Float[Array, ""]:
    """C₀ of the smallest ball that holds the weights: √m max_s ‖w_s − w_{s,0}‖.

    Example:
        >>> deviation(jnp.ones((4, 1)), jnp.zeros((4, 1)))
        Array(2., dtype=float32)
    """
    rows = jnp.linalg.norm(weights - start, axis=1)
    return len(weights) ** 0.5 * jnp.max(rows)


@partial(jax.jit, static_argnames=("batch", "reduction"))
def train_inside(
    key: PRNGKeyArray,
    weights: Weights,
    a: Signs,
    x: Points,
    y: Labels,
    deviations: Float[Array, " k"],
    rate: float | Array = 0.1,
    batch: int = 8,
    reduction: Reduction = "mean",
    max_steps: int | Array = 20_000,
) -> Inside:
    """Run plain descent on the logistic loss by batches, and return its last weights in each ball.

    Args:
        key: of the order of the points, anew in every epoch.
        weights, a: W_0 and the output weights.
        x, y: points and their labels, 1 and −1.
        deviations: C₀ of the balls, ascending: one run serves all.
        rate, batch, reduction: of a step.
        max_steps: after which a run ends that has not left the largest ball.

    Source: Wang et al. (2022), section 5.1; what it leaves open is filled in here (batch, order,
    reduction, limit).

    Example:
        >>> from experiments.theory.networks import draw_two_layer
        >>> w, a = draw_two_layer(jax.random.key(0), dimension=3, width=50)
        >>> y = jnp.asarray([1.0, -1.0, 1.0])
        >>> balls = jnp.asarray([0.5, 1.0])
        >>> run = train_inside(jax.random.key(1), w, a, jnp.eye(3), y, balls, batch=3)
        >>> run.status, bool((run.deviation <= balls).all())
        (['ok', 'ok'], True)
    """
    model = two_layer(weights, a)

    def step(run: Run) -> Run:
        i, _, now = run
        rows = _batch(key, i, len(x), batch)
        return i + 1, now, now - rate * _gradient(model, now, x[rows], y[rows], reduction)

    def leave(run: Run, ball: Array) -> tuple[Run, Inside]:
        def inside(run: Run) -> Array:
            i, _, now = run
            return (deviation(now, weights) <= ball) & (i < max_steps)

        i, before, now = lax.while_loop(inside, step, run)
        left = deviation(now, weights) > ball
        last = jnp.where(left, before, now)
        taken = i - left.astype(i.dtype)
        return (i, before, now), Inside(last, deviation(last, weights), taken, left)

    return lax.scan(leave, (jnp.asarray(0), weights, weights), deviations)[1]


class Defended(NamedTuple):
    """Weights after adversarial training in a ball, and the number of epochs.

    The robust accuracy is that of the training points under the last epoch's attack, a fraction.
    """

    weights: Weights
    epochs: Int[Array, ""]
    robust: Float[Array, ""]


@partial(jax.jit, static_argnames=("attack", "batch", "reduction", "epochs", "patience"))
def adversarial_training(
    key: PRNGKeyArray,
    weights: Weights,
    a: Signs,
    x: Points,
    y: Labels,
    radius: float | Array,
    ball: float | Array,
    attack: Callable[[float | Array], Callable[..., Array]],
    rate: float | Array,
    batch: int = 32,
    reduction: Reduction = "mean",
    epochs: int = 6,
    patience: int | None = None,
) -> Defended:
    """Train on attacked points, with each step projected onto a ball of weights.

    In each epoch all points are attacked, then met in batches; after every step each row of W is
    moved to the nearest place within V of its start.

    Args:
        key, weights, a, x, y, rate, batch, reduction: as for `train_inside`.
        radius: R of the attack.
        ball: V.
        attack: the attack of a radius, as `attacks.pgd` with `norm="l2"` and `box=None`.
        epochs: at most.
        patience: epochs without a higher robust training accuracy after which it ends.

    Source: Wang et al. (2022), algorithm 1; its attack goes on from step to step, in steps of
    length one, and the projection follows every step of descent.

    Example:
        >>> from attacks import Attack
        >>> from experiments.theory.networks import draw_two_layer
        >>> w, a = draw_two_layer(jax.random.key(0), dimension=3, width=50)
        >>> x, y = jnp.eye(3), jnp.asarray([1.0, -1.0, 1.0])
        >>> attack = lambda radius: Attack(radius, 3, radius / 2, norm="l2", box=None)
        >>> end = adversarial_training(
        ...     jax.random.key(1), w, a, x, y, 0.1, 1.0, attack, rate=4.0, batch=3, epochs=50
        ... )
        >>> bool(deviation(end.weights, w) <= 50**0.5 + 1e-5), end.robust
        (True, Array(1., dtype=float32))
    """
    model, steps = two_layer(weights, a), len(x) // batch

    def epoch(run: PyTree) -> PyTree:
        i, w, _, best, since = run
        attacked = attack(radius)(input_gradient(model, w, y), x)
        robust = jnp.mean(margins(model, w, attacked, y) > 0)

        def step(j: Array, w: Array) -> Array:
            rows = _batch(key, i * steps + j, len(x), batch)
            gradient = _gradient(model, w, attacked[rows], y[rows], reduction)
            return project_rows(w - rate * gradient, weights, ball)

        w = lax.fori_loop(0, steps, step, w)
        since = jnp.where(robust > best, 0, since + 1)
        return i + 1, w, robust, jnp.maximum(best, robust), since

    def unfinished(run: PyTree) -> Array:
        return (run[0] < epochs) & (run[4] < (epochs if patience is None else patience))

    none, zero = jnp.zeros((), x.dtype), jnp.asarray(0)
    i, w, robust, _, _ = lax.while_loop(unfinished, epoch, (zero, weights, none, none - 1, zero))
    return Defended(w, i, robust)


def _gradient(model: Model, w: Array, x: Array, y: Array, reduction: Reduction) -> Array:
    """The gradient of the logistic loss of a batch."""
    return jax.grad(lambda w: REDUCTIONS[reduction](logistic(margins(model, w, x, y))))(w)


def _batch(key: Array, step: Array, count: int, batch: int) -> Array:
    """The rows of a step: each epoch has its own order."""
    epoch, place = jnp.divmod(step, count // batch)
    order = jax.random.permutation(jax.random.fold_in(key, epoch), count)
    return lax.dynamic_slice(order, (place * batch,), (batch,))
