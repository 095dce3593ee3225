"""What train-free measures with passes of their own are reduced from, beside the kernel's pass.

`ntkscore.kernels.proxies` declares the measures.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from attacks import uniform_in_ball
from ntkscore.kernels.checks import is_floating
from ntkscore.kernels.implementations import PRECISION
from ntkscore.model import Model, Points
from ntkscore.trace.parameters import is_scale, is_weight

NOISE = 0.01
"""Zen's step, in standard deviations of its input."""


def zen(
    standardized: Callable[..., tuple[Points, Points, Array] | None],
    params: PyTree,
    points: Points,
    key: PRNGKeyArray,
) -> Float[Array, ""] | None:
    """ln E‖f(x) − f(x + 0.01 x′)‖₁ + Σ ln σ, x and x′ Gaussian, f before the mean over the pixels.

    Weights are Gaussian too; σ² is a normalisation's variance at x, averaged over its channels.

    Source: Lin et al. (2021), Zen-NAS, algorithm 1, with the norm of NASLib.

    Args:
        standardized: of the network's passes (`ntkscore.model.Passes`).
        params: of which shapes alone count, as of the points.
        points: as many are drawn.
        key: of the draws.
    """
    draw, first, second = jax.random.split(key, 3)
    paths, leaves = zip(*jax.tree_util.tree_leaves_with_path(params), strict=True)

    def drawn(path: tuple, leaf: Array, key: PRNGKeyArray) -> Array:
        if not is_floating(leaf):
            return leaf
        if is_weight(path, leaf):
            return jax.random.normal(key, leaf.shape, leaf.dtype)
        return jnp.full_like(leaf, is_scale(path, leaf))

    keys = jax.random.split(draw, len(leaves))
    weights = jax.tree.unflatten(jax.tree.structure(params), list(map(drawn, paths, leaves, keys)))
    x, other = (jax.random.normal(k, points.shape, points.dtype) for k in (first, second))
    if (found := standardized(weights, x, x + NOISE * other)) is None:
        return None
    here, there, deviations = found
    change = jnp.sum(jnp.abs(here - there).reshape(len(here), -1), 1)
    return jnp.log(jnp.mean(change)) + deviations


def displacements(
    apply: Callable[[Points], Float[Array, "n o"]], points: Points, key: PRNGKeyArray
) -> Float[Array, "n"]:
    """‖∇f(x)ᵀ(x − x̂)‖ of each point, x̂ uniform in the ball of radius 1: one product each.

    Source: Zhu et al. (2022), "Robustness in deep learning: the good (width), the bad (depth), and
    the ugly (initialization)", appendix B, whose mean is the perturbation stability 𝒫/ε.

    Args:
        apply: the network at its weights, whose points do not meet each other.
        points: x.
        key: of the draws.

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
) -> Float[Array, "n"]:
    """|Δ|/‖∇Δ‖ of each point, Δ the largest logit less the second; of one output, Δ is that.

    In a network that is linear around the point it is the way to another class.

    Source: Moosavi-Dezfooli et al. (2016), DeepFool, its first step towards the runner-up alone.

    Args:
        logits: of the points.
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
    slopes = pullback(weights)
    lengths = jnp.linalg.norm(slopes.reshape(len(slopes), -1), axis=1)
    return jnp.where(gap == 0, 0, gap / jnp.where(gap == 0, 1, lengths))


def of_perturbations(
    model: Model,
    points: Points,
    logits: Float[Array, "n o"],
    pullback: Callable[[Float[Array, "n o"]], Points],
    key: PRNGKeyArray,
) -> dict[str, Float[Array, ""]]:
    """Measures of how outputs answer to small changes: `stability` and `flip_distance`.

    Args:
        model: the network at its weights.
        points: x.
        logits, pullback: as for `flip_distances`.
        key: as for `displacements`.
    """
    return {
        "stability": jnp.mean(displacements(model.logits, points, key)),
        "flip_distance": jnp.mean(flip_distances(logits, pullback)),
    }


def pullback_products(
    pairs: Sequence[tuple[Float[Array, "_ _ _ _ _"], Float[Array, "_ _ _ _ _"]]],
) -> list[Float[Array, "_ _ _"]]:
    """Correlation of what leaves a block backwards with what entered it, block by block.

    Where a block changes the resolution, the pixels of a patch become channels.

    Source: Lee and Ham (2024), AZ-NAS, trainability.

    Args:
        pairs: gradients at the blocks' inputs, (blocks, m, h, w, c), and the cotangents at their
            outputs, (blocks, m, h2, w2, d).

    Returns:
        Of each pair (blocks, c · (h/h2) · (w/w2), d).
    """

    def product(left: Float[Array, "m h w c"], right: Float[Array, "m h2 w2 d"]) -> Array:
        m, h, w, d = right.shape
        a, b = left.shape[1] // h, left.shape[2] // w
        patches = left.reshape(m, h, a, w, b, -1).transpose(0, 1, 3, 2, 4, 5)
        rows, cotangents = patches.reshape(m * h * w, -1), right.reshape(-1, d)
        return jnp.matmul(rows.T, cotangents, precision=PRECISION) / len(rows)

    return [lax.map(lambda pair: product(*pair), pair) for pair in pairs]
