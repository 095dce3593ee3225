"""Algorithm 1: one pass over fresh points, with the losses at clean and attacked ones mixed.

Source: Wu et al. (2024), "Robust NAS under adversarial training", equation 3 and algorithm 1.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from attacks import twice
from experiments.theory.infinite_width import check_on_sphere
from experiments.theory.tasks import check_labels
from ntkscore.errors import InputError
from ntkscore.model import Model

Labels = Float[Array, " n"]
Attack = Callable[..., Array]


def margins(model: Model, params: PyTree, x: Float[Array, "n ..."], y: Labels) -> Labels:
    """y f(x) of networks with one output.

    Example:
        >>> linear = Model(lambda w, x: x @ w, jnp.ones((2, 1)))
        >>> margins(linear, linear.params, jnp.eye(2), jnp.asarray([1.0, -1.0]))
        Array([ 1., -1.], dtype=float32)
    """
    return y * model.apply(params, x)[:, 0]


def logistic(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """ℓ(z) = log(1 + e^−z) of margins z, in nats.

    Example:
        >>> logistic(jnp.zeros(1)).round(4)
        Array([0.6931], dtype=float32)
    """
    return jax.nn.softplus(-z)


def input_gradient(model: Model, params: PyTree, y: Labels) -> Callable[[Array], Array]:
    """The gradient in the points, (n, …), that an attack on a model of one output follows.

    It is the loss's gradient divided by σ(−margin), as in `ntkscore.measures.cross_entropy`.
    """
    return jax.grad(lambda x: -jnp.sum(margins(model, params, x, y)))


def attacked_stack(
    attack: Attack, model: Model, params: PyTree, x: Float[Array, "n ..."], y: Labels
) -> Float[Array, "m ..."]:
    """X, X_ρ and X_2ρ, one below the other, attacked at these weights."""
    return jnp.concatenate([x, *twice(attack, input_gradient(model, params, y), x)])


def linearisation(
    model: Model, end: PyTree, x: Float[Array, "n ..."]
) -> tuple[Float[Array, "n o"], Float[Array, "n o"]]:
    """The change of the outputs from the model's weights to others, and its first-order part."""
    change = jax.tree.map(jnp.subtract, end, model.params)
    before, along = jax.jvp(lambda w: model.apply(w, x), (model.params,), (change,))
    return model.apply(end, x) - before, along


def mixed_gradient(
    model: Model,
    params: PyTree,
    x: Float[Array, "n ..."],
    attacked: Float[Array, "n ..."],
    y: Labels,
    beta: Float[Array, ""] | float,
) -> tuple[PyTree, tuple[Labels, Labels]]:
    """(1−β) ∇ℓ(y f(x)) + β ∇ℓ(y f(x̂)), averaged over the points; and the margins at the two.

    The attacked points x̂ are held fixed.
    """

    def loss(params: PyTree) -> tuple[Array, tuple[Array, Array]]:
        clean, robust = (margins(model, params, z, y) for z in (x, attacked))
        mixed = (1 - beta) * logistic(clean) + beta * logistic(robust)
        return jnp.mean(mixed), (clean, robust)

    return jax.grad(loss, has_aux=True)(params)


class Trained(NamedTuple):
    """A run of the algorithm.

    Attributes:
        params: W^{[N+1]}, which is not among those that the algorithm draws from.
        clean, robust: margins of each point and of its attacked one at the weights that had not
            seen it.
    """

    params: PyTree
    clean: Labels
    robust: Labels

    @property
    def progressive(self) -> tuple[float, float]:
        """Clean and attacked error in expectation over the returned network, unbiased and free.

        An output of 0 counts as right, one that is not a number as wrong.
        """
        clean, robust = (~(np.asarray(each) >= 0) for each in (self.clean, self.robust))
        return float(clean.mean()), float(robust.mean())


def steps(
    model: Model,
    attack: Attack,
    params: PyTree,
    x: Float[Array, "n ..."],
    y: Labels,
    beta: Float[Array, ""],
    step_size: Float[Array, ""] | float,
) -> tuple[PyTree, Labels, Labels]:
    """Take a step of the algorithm for each point, one after the other.

    The model's own weights are not used. β and γ are data, so that one program serves a sweep.

    Returns:
        The weights after the last point; and the margins of each point and of its attacked one at
        the weights before its step.
    """

    def step(params: PyTree, point: tuple[Array, Array]) -> tuple[PyTree, tuple[Array, Array]]:
        x, y = (each[None] for each in point)
        attacked = lax.cond(
            beta > 0, lambda x: attack(input_gradient(model, params, y), x), lambda x: x, x
        )
        gradient, (clean, robust) = mixed_gradient(model, params, x, attacked, y, beta)
        params = jax.tree.map(lambda w, g: w - step_size * g, params, gradient)
        return params, (clean[0], robust[0])

    params, (clean, robust) = lax.scan(step, params, (x, y))
    return params, clean, robust


@partial(jax.jit, static_argnames=("model", "attack"))
def _compiled(model: Model, attack: Attack, *arrays: PyTree) -> Trained:
    return Trained(*steps(model, attack, *arrays))


def algorithm_1(
    model: Model,
    x: Float[np.ndarray, "n ..."],
    y: Float[np.ndarray, " n"],
    attack: Attack,
    beta: float,
    step_size: float,
) -> Trained:
    """Train a network by one pass over fresh points, each attacked at the weights it meets.

    Plain steps of γ along (1−β) ∇ℓ(y f(x)) + β ∇ℓ(y f(x̂)), with x̂ held fixed: no momentum, no
    projection, no averaging. The paper returns one of the iterates drawn at random; the expectation
    over it is what `Trained` gives.

    Args:
        model: with one output, at W^{[1]}.
        x, y: N points on the sphere, in the order in which they are met; and labels 1 and −1.
        attack: of (gradient, points), such as `sphere.CapAttack`; it must be hashable.
        beta: weight of adversarial training, from 0 to 1. At 0 nothing is attacked.
        step_size: γ > 0.

    Source: Wu et al. (2024), algorithm 1.

    Example:
        >>> from experiments.theory.sphere import CapAttack
        >>> from experiments.theory.tasks import margin
        >>> points, labels = margin(400, 5, 0.2, np.random.default_rng(0))
        >>> linear = Model(lambda w, x: x @ w, jnp.zeros((5, 1)))
        >>> trained = algorithm_1(linear, points, labels, CapAttack(0.1), beta=0.5, step_size=0.5)
        >>> trained.progressive[0] < 0.1
        True
    """
    check_labels(y)
    check_on_sphere(np.asarray(x, float))
    if not 0 <= beta <= 1:
        raise InputError("beta from 0 to 1", f"{beta:g}", "0 is training without attacks")
    if not 0 < step_size < np.inf:
        raise InputError("step_size above 0", f"{step_size:g}", "raise it")
    dtype = jax.tree.leaves(model.params)[0].dtype
    arrays = (jnp.asarray(each, dtype) for each in (x, y, beta, step_size))
    return _compiled(model._replace(params=None), attack, model.params, *arrays)
