"""What train-free measures with passes of their own are reduced from, beside the kernel's pass.

`ntkscore.kernels.proxies` declares the measures.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from attacks import uniform_in_ball
from cells.grams import Slope
from cells.model import Logits, Model, Points
from ntkscore.kernels.implementations import PRECISION
from ntkscore.kernels.parameters import is_scale, is_weight
from ntkscore.kernels.probes import cross_entropy

Forward = tuple[Logits, Any]
"""Logits, and what the passes kept (`cells.model.Passes.forward`)."""
NOISE = 0.01
"""Zen's step, in standard deviations of its input."""


class Moments(NamedTuple):
    """Moments over the points of the gradients of the loss at one point, a row per layer."""

    mean: list[Float[Array, "_ _"]]
    size: list[Float[Array, "_ _"]]
    deviation: list[Float[Array, "_ _"]]


def gradient_moments(model: Model, points: Points, labels: Int[Array, "n"]) -> Moments:
    """Mean, mean of the absolute value and standard deviation of the weights' gradients.

    One point after the other, so that the gradients of all are never held at once.
    """

    def loss(params: PyTree, x: Array, label: Array) -> Array:
        return cross_entropy(model.apply(params, x[None]), label[None])[0]

    def step(so_far: Any, given: Any) -> tuple[Any, None]:
        mean, size, squares = so_far
        k, *point = given
        slope = _weights(model, jax.grad(loss)(model.params, *point))
        # Welford's update: a difference of large sums would lose small deviations in float32.
        gap = jax.tree.map(jnp.subtract, slope, mean)
        mean = jax.tree.map(lambda m, d: m + d / k, mean, gap)
        size = jax.tree.map(lambda s, g: s + (jnp.abs(g) - s) / k, size, slope)
        squares = jax.tree.map(lambda s, g, d, m: s + d * (g - m), squares, slope, gap, mean)
        return (mean, size, squares), None

    zeros = jax.tree.map(jnp.zeros_like, _weights(model, model.params))
    counts = jnp.arange(1, len(points) + 1).astype(points.dtype)
    (mean, size, squares), _ = lax.scan(step, (zeros,) * 3, (counts, points, labels))
    deviation = jax.tree.map(lambda s: jnp.sqrt(jnp.maximum(s, 0) / counts[-1]), squares)
    return Moments(mean, size, deviation)


def of_gradients(
    model: Model, points: Points, labels: Int[Array, "n"], forward: Forward | None = None
) -> dict[str, Array]:
    """Measures of the weights' gradients: `grad_norm`, `snip` and `zico`.

    Of convolutions and linear layers alone.

    Source: Abdelfattah et al. (2021), "Zero-cost proxies"; Lee et al. (2019), SNIP;
    Li et al. (2023), ZiCo, each point a batch of its own.

    Args:
        model: the network at its weights.
        points, labels: what the loss is of.
        forward: what the model's own passes left there, if they ran.
    """
    if forward is None or model.passes is None:
        moments = gradient_moments(model, points, labels)
        weights = _weights(model, model.params)
        parts = [jax.vmap(_of_layer)(*layer) for layer in zip(weights, *moments, strict=True)]
        seen = jax.tree.map(lambda *layers: jnp.concatenate(layers), *parts)
    else:
        logits, kept = forward
        slope = jax.grad(lambda logits: jnp.sum(cross_entropy(logits, labels)))(logits)
        seen = model.passes.layers(model.params, kept, slope, _of_slope)
    return {name: jnp.sum(part) for name, part in seen.items()}


def _of_slope(slope: Slope) -> dict[str, Float[Array, ""]]:
    each = slope.gradients.reshape(len(slope.x), -1)
    moments = jnp.mean(each, 0), jnp.mean(jnp.abs(each), 0), jnp.std(each, 0)
    return _of_layer(slope.kernel.ravel(), *moments)


def _of_layer(
    weights: Float[Array, "e"],
    mean: Float[Array, "e"],
    size: Float[Array, "e"],
    deviation: Float[Array, "e"],
) -> dict[str, Float[Array, ""]]:
    """A layer's part of the measures, from its weights and the moments of their gradients."""
    ratio = jnp.sum(jnp.where(deviation == 0, 0, size / jnp.where(deviation == 0, 1, deviation)))
    return {
        "grad_norm": jnp.linalg.norm(mean),
        "snip": jnp.sum(jnp.abs(weights * mean)),
        # A layer that no gradient reaches is not part of the network; NaN stays.
        "zico": jnp.log(jnp.where(ratio == 0, 1, ratio)),
    }


def fisher(model: Model, points: Points, forward: Forward | None = None) -> Float[Array, "p p"]:
    """The Fisher information of one weight of every convolution and linear layer, their first.

    The mean over the points of Jᵀ(diag π − ππᵀ)J, J the logits' derivatives and π their softmax.
    A layer that no gradient reaches leaves zeros.

    Source: Týbl and Neumann (2025), "Training-free neural architecture search through variance of
    knowledge of deep network weights", VKDNW, where the labels are the network's own.

    Args:
        model: the network at its weights.
        points: as many as one likes; the matrix has a rank of at most (classes − 1) for each.
        forward: what the model's own passes left there, if they ran.

    Example:
        >>> linear = Model(lambda w, x: x @ w, jnp.zeros((3, 2)))
        >>> fisher(linear, jnp.ones((1, 3)))  # π = (½, ½)
        Array([[0.25]], dtype=float32)
    """
    passes = None if forward is None else model.passes
    logits, kept = forward or (model.logits(points), None)

    def derivatives(chosen: Float[Array, "o"]) -> Float[Array, "p n"]:
        """Of one logit."""
        if passes is not None:
            slope = jnp.broadcast_to(chosen, logits.shape)
            return passes.layers(model.params, kept, slope, lambda slope: slope.first)
        one = lambda params, x: model.apply(params, x[None])[0] @ chosen  # noqa: E731
        gradient = lambda x: _weights(model, jax.grad(one)(model.params, x))  # noqa: E731
        return lax.map(lambda x: jnp.concatenate([g[:, 0] for g in gradient(x)]), points).T

    jacobian = lax.map(derivatives, jnp.eye(logits.shape[1], dtype=logits.dtype))
    chance = jax.nn.softmax(logits).T
    product = partial(jnp.einsum, precision=PRECISION)
    mean = product("on,opn->pn", chance, jacobian)
    centred = jacobian - mean
    return product("on,opn,oqn->pq", chance, centred, centred) / len(points)


def _weights(model: Model, tree: PyTree) -> list[Float[Array, "_ _"]]:
    """The leaves of weights, a row per layer."""
    stacked = model.stacked or (lambda path: False)
    return [
        leaf.reshape(len(leaf) if stacked(path) else 1, -1)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        if is_weight(path)
    ]


def zen(
    standardized: Callable[..., tuple[Points, Points, Array]],
    params: PyTree,
    points: Points,
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """ln E‖f(x) − f(x + 0.01 x′)‖₁ + Σ ln σ, x and x′ Gaussian, f before the mean over the pixels.

    Weights are Gaussian too; σ² is a normalisation's variance at x, averaged over its channels.

    Source: Lin et al. (2021), Zen-NAS, algorithm 1, with the norm of NASLib.

    Args:
        standardized: of the network's passes (`cells.model.Passes`).
        params: of which shapes alone count, as of the points.
        points: as many are drawn.
        key: of the draws.
    """
    draw, first, second = jax.random.split(key, 3)
    paths, leaves = zip(*jax.tree_util.tree_leaves_with_path(params), strict=True)

    def drawn(path: tuple, leaf: Array, key: PRNGKeyArray) -> Array:
        if is_weight(path):
            return jax.random.normal(key, leaf.shape, leaf.dtype)
        return jnp.full_like(leaf, is_scale(path))

    keys = jax.random.split(draw, len(leaves))
    weights = jax.tree.unflatten(jax.tree.structure(params), list(map(drawn, paths, leaves, keys)))
    x, other = (jax.random.normal(k, points.shape, points.dtype) for k in (first, second))
    here, there, deviations = standardized(weights, x, x + NOISE * other)
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
