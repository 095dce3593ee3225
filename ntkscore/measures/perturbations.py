"""Measures of the change of outputs under small changes of the images."""

from collections.abc import Callable

from jaxtyping import Float

from attacks import uniform_in_ball
from attacks.lazy import Array, jax, jnp, lax
from ntkscore.kernels.joint import POINTS
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.registry import Measure, Quantity
from ntkscore.model import Points

PERTURBATIONS = 1
"""Folded into the key of the draws, whose halves other measures have."""


def displacements(
    apply: Callable[[Points], Float[Array, "n o"]], points: Points, key: Array
) -> Float[Array, " n"]:
    """‖∇f(x)ᵀ(x − x̂)‖ of each point, x̂ uniform in the ball of radius 1: one product each.

    Source: Zhu et al. (2022), "Robustness in deep learning: the good (width), the bad (depth), and
    the ugly (initialization)", appendix B, whose mean is the perturbation stability 𝒫/ε.

    Args:
        apply: the network at its weights, in which points do not affect each other.

    Example:
        >>> moved = displacements(lambda x: 2 * x, jnp.zeros((500, 3)), jax.random.key(0))
        >>> bool(moved.max() <= 2), bool(abs(moved.mean() - 2 * 3 / 4) < 0.1)
        (True, True)
    """
    delta = uniform_in_ball(key, points.shape, points.dtype)
    _, moved = jax.jvp(apply, (points,), (delta,))
    return jnp.linalg.norm(moved, axis=1)


def flip_distances(
    logits: Float[Array, "n o"], pullback: Callable[[Float[Array, "n o"]], Points]
) -> Float[Array, " n"]:
    """|Δ|/‖∇Δ‖ of each point, Δ the largest logit less the second; of one output, Δ is that.

    In a network that is linear around the point it is the distance to another class.

    Source: Moosavi-Dezfooli et al. (2016), DeepFool, its first step towards the runner-up alone.

    Args:
        pullback: the gradient in the points of a weighted sum of the logits.

    Example:
        >>> points = jnp.asarray([[3.0, 0.0, -1.0]])
        >>> flip_distances(points, lambda weights: weights).round(3)  # 3/√2
        Array([2.121], dtype=float32)
    """
    if logits.shape[1] == 1:
        weights, gap = jnp.ones_like(logits), jnp.abs(logits[:, 0])
    else:
        values, places = lax.top_k(logits, 2)
        first, second = (jax.nn.one_hot(places[:, k], logits.shape[1]) for k in range(2))
        weights, gap = (first - second).astype(logits.dtype), values[:, 0] - values[:, 1]
    input_gradients = pullback(weights)
    lengths = jnp.linalg.norm(input_gradients.reshape(len(logits), -1), axis=1)
    return jnp.where(gap == 0, 0, gap / jnp.where(gap == 0, 1, lengths))


def stability(at: Pass) -> Float[Array, ""]:
    """The mean displacement, for one draw around each point."""
    key = jax.random.fold_in(at.noise, PERTURBATIONS)
    return jnp.mean(displacements(at.model.logits, at.points, key))


def flip_distance(at: Pass) -> Float[Array, ""]:
    """The mean distance to the runner-up."""
    return jnp.mean(flip_distances(at.logits, at.pullback))


CLEAN = POINTS[:1]

MEASURES = (
    Measure(
        "stability",
        -1,
        "E‖∇f(x)ᵀ(x − x̂)‖, x̂ uniform within 1 of x",
        Quantity("stability", CLEAN, stability, float, own_passes=True),
        source="Zhu et al. (2022), perturbation stability",
    ),
    Measure(
        "flip_distance",
        +1,
        "mean of |Δ|/‖∇Δ‖, Δ the largest logit less the second",
        Quantity("flip_distance", CLEAN, flip_distance, float, own_passes=True),
        source="Moosavi-Dezfooli et al. (2016), DeepFool; Wang et al. (2022)",
    ),
)
