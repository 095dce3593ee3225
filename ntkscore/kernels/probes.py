"""What train-free measures are reduced from, taken on the way to a kernel.

`ntkscore.kernels.proxies` declares the measures.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PyTree, Shaped

from ntkscore.grams import square
from ntkscore.kernels.checks import is_floating
from ntkscore.kernels.implementations import PRECISION
from ntkscore.model import Activations, Passes, Points
from ntkscore.trace.parameters import is_scale, is_weight

TINY = 1e-30
"""Where even the largest entry of a gradient is below it, the gradient counts as zero. Ones of this
size are what `synflow` begins with, so that float32 holds every network's flow."""


def cross_entropy(logits: Float[Array, "n o"], labels: Int[Array, "n"]) -> Float[Array, "n"]:
    """−log of the softmax at the label, in nats."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def correlation(rows: Float[Array, "m ..."]) -> Float[Array, "m m"]:
    """Pearson's correlation of each row with each; zero with one of equal entries."""
    rows = rows.reshape(len(rows), -1)
    # Means of what is far from 1 would overflow when squared.
    rows = rows / jnp.maximum(jnp.max(jnp.abs(rows), 1, keepdims=True), TINY)
    rows -= jnp.mean(rows, 1, keepdims=True)
    norms = jnp.linalg.norm(rows, axis=1, keepdims=True)
    rows /= jnp.where(norms > 0, norms, 1)
    return jnp.matmul(rows, rows.T, precision=PRECISION)


def equal_states(inside: Activations) -> Float[Array, "n n"]:
    """The number of rectifiers that are in the same state, on or off, at two points.

    Source: Mellor et al. (2021), "Neural architecture search without training".
    """

    first, *others = (_equal_states(*each) for each in inside.rectified)
    return sum(others, first)


@jax.jit
def _equal_states(count: Int[Array, "k"], x: Shaped[Array, "k n ..."]) -> Float[Array, "n n"]:
    """Of layers of one shape, of which some are there several times and some not at all."""
    dtype = jnp.zeros(()).dtype

    def add(total: Array, layer: Any) -> tuple[Array, None]:
        count, x = layer
        signs = jnp.where(x > 0, 1, -1).astype(dtype).reshape(len(x), -1)
        # The product counts those in the same state, less the others.
        same = lambda signs: (signs.shape[1] + square(signs)) / 2  # noqa: E731
        none = lambda signs: jnp.zeros_like(total)  # noqa: E731
        return total + count * lax.cond(count > 0, same, none, signs), None

    n = x.shape[1]
    return lax.scan(add, jnp.zeros((n, n), dtype), (count.astype(dtype), x))[0]


def flips(inside: Activations, attacked: Activations) -> Float[Array, ""]:
    """The share of rectifiers, over all points, in another state than at the attacked points."""
    changed, units, dtype = [], [], jnp.zeros(()).dtype
    for (count, x), (_, other) in zip(inside.rectified, attacked.rectified, strict=True):
        share = jnp.mean((x > 0) != (other > 0), tuple(range(1, x.ndim)), dtype)
        units.append(jnp.sum(count.astype(dtype)) * x[0].size)
        changed.append(jnp.sum(count.astype(dtype) * share) * x[0].size)
    return jnp.asarray(sum(changed) / sum(units))


def feature_products(inside: Activations) -> list[Float[Array, "_ _ _"]]:
    """Of each block's centred features the product with themselves: a multiple of their covariance.

    Over channels or over points and pixels, whichever is smaller; the eigenvalues differ by zeros.
    They are left to the host: of the LAPACK calls in a program on a CPU, two at a time can wait for
    each other without end (jaxlib 0.10.2, batches of matrices).
    """

    return [_covariances(blocks) for blocks in inside.features]


@jax.jit
def _covariances(blocks: Float[Array, "k n ... c"]) -> Float[Array, "k d d"]:
    def product(features: Float[Array, "n ... c"]) -> Float[Array, "d d"]:
        rows = features.reshape(-1, features.shape[-1])
        rows -= jnp.mean(rows, 0)
        rows = rows if len(rows) < rows.shape[1] else rows.T
        return jnp.matmul(rows, rows.T, precision=PRECISION)

    return lax.map(product, blocks)


def curvature(before: Points, after: Points, slope: Points, there: Points) -> Float[Array, ""]:
    """The mean over points of ‖∇ℓ(x_ρ) − ∇ℓ(x)‖²/‖x_ρ − x‖².

    Args:
        before, after: x and x_ρ.
        slope, there: the loss's gradients at the two.

    Source: Moosavi-Dezfooli et al. (2019), "Robustness via curvature regularization".
    """

    def squared(a: Points) -> Float[Array, "n"]:
        return jnp.sum(jnp.square(a.reshape(len(a), -1)), 1)

    return jnp.mean(squared(there - slope) / squared(after - before))


def synflow(passes: Passes, params: PyTree, points: Points) -> Float[Array, ""] | None:
    """ln Σ_θ |θ ∂R/∂θ|, R the summed logits at a point of ones, of the weights' absolute values.

    Normalisations and biases are left out. Where θ and ∂R/∂θ are nowhere negative, the sum is the
    derivative of R along θ itself, and takes no backward pass.

    Source: Tanaka et al. (2020), "Pruning neural networks without any data".

    Args:
        passes: of the network.
        params: its weights.
        points: of which shape and dtype alone count.

    Returns:
        The logarithm; None where it is not known which the network's normalisations are.
    """
    weights, fixed = _absolute(params)
    one = jnp.full_like(points[:1], TINY)
    if jax.eval_shape(passes.unnormalized, params, one) is None:
        return None

    def log_flow(size: Float[Array, ""]) -> Float[Array, ""]:
        sized = lambda w, f: size.astype(w.dtype) * w + f if is_floating(w) else f  # noqa: E731
        logits = passes.unnormalized(jax.tree.map(sized, weights, fixed), one)
        assert logits is not None
        return jnp.log(jnp.sum(logits))

    along = jnp.ones((), points.dtype)
    level, rise = jax.jvp(log_flow, (along,), (along,))
    return jnp.log(rise) + level - jnp.log(TINY)


def _absolute(params: PyTree) -> tuple[PyTree, PyTree]:
    """The weights' absolute values, and ones for scales; zeros elsewhere in both.

    Integers, which are no parameters, stay in the second.
    """

    def weight(path: tuple, leaf: Array) -> Array:
        keep = is_floating(leaf) and is_weight(path, leaf)
        return jnp.abs(leaf) if keep else jnp.zeros_like(leaf)

    def scale(path: tuple, leaf: Array) -> Array:
        return jnp.full_like(leaf, is_scale(path, leaf)) if is_floating(leaf) else leaf

    by_path = jax.tree_util.tree_map_with_path
    return by_path(weight, params), by_path(scale, params)
