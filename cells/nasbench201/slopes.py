"""NAS-Bench-201's weight gradients, looked at layer by layer on a way back that keeps none."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from cells import layers
from cells.choice import choose
from cells.layers import InstanceNorm
from cells.nasbench201.backward import back_head, rectified
from cells.nasbench201.cell import KERNEL_SIZES, NONE, OPERATIONS, SKIP
from cells.nasbench201.forward import (
    Images,
    Kept,
    Outputs,
    Rules,
    Weights,
    add_at,
    at,
    by_edge,
    edges_of_stage,
)
from ntkscore.grams import Slope

Look = Callable[[Slope], PyTree]


def look_back(
    rules: Rules,
    params: Weights,
    stored: Any,
    kept: Kept,
    cotangent: Float[Array, "m o"],
    look: Look,
) -> PyTree:
    """What a function sees of each convolution's and of the linear layer's slope.

    Its outputs must have one shape for all layers. An edge that is no convolution leaves zeros.

    Returns:
        Its outputs, layers along a new first axis.
    """
    head = params["head"]["kernel"]
    g = rules.gain(head) * cotangent[:, None, None]
    seen = [_one(look(Slope(head[None, None], kept.features[:, None, None], g)))]
    g, _ = back_head(rules, params["head"], stored["head"], [kept], cotangent, {})
    for stage in reversed(range(3)):
        name = f"stage_{stage}"
        g, own = _back_stage(rules, kept, stage, params[name], stored[name], g, look)
        seen.append(own)
        if stage:
            name = f"reduction_{stage}"
            x, middle = kept.nodes[stage - 1][-1], kept.middles[stage - 1]
            g, own = _back_reduction(rules, x, middle, g, params[name], stored[name], look)
            seen += own
    _, own = _back_convolution(
        rules, kept.images, g, params["stem"]["conv"], stored["stem"], look=look
    )
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *seen, _one(own))


def _one(seen: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[None], seen)


def _back_convolution(
    rules: Rules,
    x: Images,
    g: Outputs,
    weights: Weights,
    statistics: Any,
    stride: int = 1,
    z: Outputs | None = None,
    *,
    look: Look,
) -> tuple[Images, PyTree]:
    """Back through a normalisation, where there is one, and a convolution; what is seen of it."""
    kernel = weights["kernel"]
    gain = rules.gain(kernel)
    norm = rules.norm(weights, statistics) if "scale" in weights else None
    if isinstance(norm, InstanceNorm):
        z = layers.convolve(x, gain * kernel, stride) if z is None else z
        g, _ = layers.pull_normalization(z, g, norm, {})
    elif norm is not None:
        g = g * (norm.inverse * norm.scale)
    seen = look(Slope(kernel, x, gain * g, stride))
    return layers.transposed_convolve(g, gain * kernel, x, stride), seen


def _back_rectified(rules: Rules, x: Images, *others: Any, look: Look) -> tuple[Images, PyTree]:
    """Back through ReLU, convolution, normalisation."""
    dx, seen = _back_convolution(rules, jax.nn.relu(x), *others, look=look)
    return rectified(dx, x), seen


def _back_reduction(
    rules: Rules, x: Images, middle: Outputs, g: Outputs, weights: Weights, stored: Any, look: Look
) -> tuple[Images, list[PyTree]]:
    """Back through a reduction block, and what is seen of its three convolutions."""
    a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
    inner, second = _back_rectified(rules, middle, g, b, stored["conv_b"], look=look)
    dx, first = _back_rectified(rules, x, inner, a, stored["conv_a"], 2, look=look)
    pooled = layers.average_pool_2x2(x)
    shortcut, third = _back_convolution(rules, pooled, g, weights["downsample"], None, look=look)
    return dx + layers.pull_average_pool_2x2(shortcut), list(map(_one, (first, second, third)))


def _back_stage(
    rules: Rules, kept: Kept, stage: int, weights: Weights, stored: Any, g: Images, look: Look
) -> tuple[Images, PyTree]:
    """Back through the cells of a stage, last edge first, and what is seen of every edge."""
    nodes, convolved = kept.nodes[stage], kept.convolved[stage]

    def branch(operation: int) -> Any:
        def pull(source: Array, g: Images, weights: Weights, statistics: Any, z: Any) -> Any:
            if operation in KERNEL_SIZES:
                own = weights[OPERATIONS[operation]]
                x = at(nodes, source)
                return _back_rectified(rules, x, g, own, statistics, 1, z, look=look)
            if operation == NONE:
                return jnp.zeros_like(g), blank(source, g, weights, statistics, z)
            dx = g if operation == SKIP else layers.pull_average_pool_3x3(g)
            return dx, blank(source, g, weights, statistics, z)

        return pull

    def blank(*edge: Any) -> PyTree:
        _, seen = jax.eval_shape(branch(next(iter(KERNEL_SIZES))), *edge)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), seen)

    branches = [branch(operation) for operation in range(len(OPERATIONS))]

    def step(slopes: Array, edge: Any) -> tuple[Array, PyTree]:
        source, target, digit, *own = edge
        dx, seen = choose(digit, branches, source, at(slopes, target), *own)
        return add_at(slopes, source, dx), seen

    slopes = jnp.zeros_like(nodes).at[-1].set(g)
    edges = (*edges_of_stage(rules), by_edge(weights), by_edge(stored), convolved)
    slopes, seen = lax.scan(step, slopes, edges, reverse=True)
    return slopes[0], seen
