"""What measures of the gradients of a network's weights are taken from.

The weights are those of convolutions and linear layers. `ntkscore.kernels.proxies` declares the
measures.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from cells.grams import Slope
from cells.model import Logits, Model, Points
from ntkscore.kernels.implementations import PRECISION
from ntkscore.kernels.parameters import is_weight
from ntkscore.kernels.probes import cross_entropy

OF_GRADIENTS = ("grad_norm", "snip", "zico")
Forward = tuple[Logits, Any]
"""Logits, and what the passes kept (`cells.model.Passes.forward`)."""


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
        seen = [jax.vmap(_of_layer)(*layer) for layer in zip(weights, *moments, strict=True)]
    else:
        logits, kept = forward
        slope = jax.grad(lambda logits: jnp.sum(cross_entropy(logits, labels)))(logits)
        seen = [model.passes.layers(model.params, kept, slope, _of_slope)]
    return {name: jnp.asarray(sum(jnp.sum(part[name]) for part in seen)) for name in OF_GRADIENTS}


def _of_slope(slope: Slope) -> dict[str, Float[Array, ""]]:
    each = slope.gradients.reshape(len(slope.x), -1)
    # Gradients that are equal deviate by nothing, and by rounding if their mean is looked at.
    deviation = jnp.std(each - each[:1], 0)
    moments = jnp.mean(each, 0), jnp.mean(jnp.abs(each), 0), deviation
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
    A layer whose first weight moves no logit leaves zeros.

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
        none = jnp.zeros(0, logits.dtype)
        return lax.map(lambda x: jnp.concatenate([none, *(g[:, 0] for g in gradient(x))]), points).T

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
        if is_weight(path, leaf)
    ]
