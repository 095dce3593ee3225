"""NAS-Bench-201's backward passes, from what forward passes have kept.

Differentiated as a whole, a network is run again for every gradient; here the statistics, the
attack and the kernel share one forward pass.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from cells import layers
from cells.choice import choose
from cells.nasbench201.cell import EDGES, KERNEL_SIZES, NONE, OPERATIONS, SKIP
from cells.nasbench201.forward import (
    NODES,
    SOURCES,
    TARGETS,
    Images,
    Kept,
    Outputs,
    Rules,
    Weights,
    add_at,
    at,
    by_edge,
)
from ntkscore.grams import Taps


def back(
    rules: Rules,
    params: Weights,
    stored: Any,
    kept: Sequence[Kept],
    cotangent: Float[Array, "m o"],
    taps: Taps,
) -> tuple[Images, Taps]:
    """The gradient in the normalised images, and the contributions where taps are given."""
    g, parts = back_head(rules, params["head"], stored["head"], kept, cotangent, taps)
    for stage in reversed(range(3)):
        name = f"stage_{stage}"
        nodes = [(each.nodes[stage], each.convolved[stage]) for each in kept]
        weights, statistics = by_edge(params[name]), by_edge(stored[name])
        cell, cells = pull_of_cells(rules, nodes, weights, statistics, taps)
        step = lambda carry, own, cell=cell: (cell(*carry, own), None)  # noqa: E731
        (g, parts), _ = lax.scan(step, (g, parts), cells, reverse=True)
        if stage:
            name = f"reduction_{stage}"
            x = jnp.concatenate([each.nodes[stage - 1][-1] for each in kept])
            middle = jnp.concatenate([each.middles[stage - 1] for each in kept])
            g, own = back_reduce(rules, x, middle, g, params[name], stored[name], taps)
            parts = add(parts, own)
    images = jnp.concatenate([each.images for each in kept])
    g, own = pull_conv_norm(rules, images, g, params["stem"]["conv"], stored["stem"], taps)
    return g, add(parts, own)


def pull_blocks(
    rules: Rules, params: Weights, stored: Any, kept: Kept, key: PRNGKeyArray
) -> list[tuple[Float[Array, "_ _ _ _ _"], Float[Array, "_ _ _ _ _"]]]:
    """Random signs at the output of every cell and reduction block, each pulled to its input.

    Returns:
        Gradients at the inputs and the signs, blocks of one shape together.
    """

    def signs(like: Float[Array, "k m h w c"]) -> Float[Array, "k m h w c"]:
        own = jax.random.fold_in(key, len(pairs))
        return jax.random.rademacher(own, like.shape, like.dtype)

    pairs: list[tuple[Array, Array]] = []
    for stage, nodes in enumerate(kept.nodes):
        name = f"reduction_{stage}"
        if stage:
            before, middle = kept.nodes[stage - 1][-1], kept.middles[stage - 1]
            g = signs(nodes[:1])
            dx, _ = back_reduce(rules, before, middle, g[0], params[name], stored[name], {})
            pairs.append((dx[None], g))
        name = f"stage_{stage}"
        weights, statistics = by_edge(params[name]), by_edge(stored[name])
        own = [(nodes, kept.convolved[stage])]
        cell, cells = pull_of_cells(rules, own, weights, statistics, {})
        g = signs(nodes[NODES::NODES])
        pull = lambda both, cell=cell: cell(both[0], {}, both[1])[0]  # noqa: E731
        pairs.append((lax.map(pull, (g, cells)), g))
    return pairs


def pull_conv_norm(
    rules: Rules,
    x: Images,
    g: Outputs,
    weights: Weights,
    statistics: Any,
    taps: Taps,
    stride: int = 1,
    z: Outputs | None = None,
) -> tuple[Images, Taps]:
    """Back through a normalisation and the convolution before it; z lies between, if kept."""
    kernel, norm = weights["kernel"], rules.norm(weights, statistics)
    factor = rules.gain(kernel)
    return layers.pull_convolution(x, g, kernel, norm, taps, stride=stride, gain=factor, z=z)


def pull_rectified(rules: Rules, x: Images, *others: Any, **choices: Any) -> tuple[Images, Taps]:
    """Back through ReLU, convolution, normalisation; the arguments of `pull_conv_norm`."""
    dx, parts = pull_conv_norm(rules, jax.nn.relu(x), *others, **choices)
    return rectified(dx, x), parts


def pull_of_cells(
    rules: Rules,
    kept: Sequence[tuple[Float[Array, "k n h w c"], Float[Array, "e n h w c"] | None]],
    weights: Weights,
    statistics: Any,
    taps: Taps,
) -> tuple[Callable[[Images, Taps, Any], tuple[Images, Taps]], Any]:
    """The way back through one cell of a stage, last edge first, and what tells it which cell."""

    def branch(operation: int) -> Any:
        def pull(
            source: Array,
            slopes: Array,
            target: Array,
            weights: Weights,
            statistics: Any,
            convolved: list[Images],
        ) -> Any:
            g = at(slopes, target)
            if operation in KERNEL_SIZES:
                x = jnp.concatenate([at(nodes, source) for nodes, _ in kept])
                z = jnp.concatenate(convolved) if convolved else None
                own = weights[OPERATIONS[operation]]
                return pull_rectified(rules, x, g, own, statistics, taps, z=z)
            if operation == NONE:
                return jnp.zeros_like(g), taps
            return (g if operation == SKIP else layers.pull_average_pool_3x3(g)), taps

        return pull

    branches = [branch(operation) for operation in range(len(OPERATIONS))]

    def cell(slope: Images, parts: Taps, own: Any) -> tuple[Images, Taps]:
        first, leaves = own

        def step(carry: Any, edge: Any) -> Any:
            slopes, parts = carry
            source, target, digit, *own = edge
            place = first + source
            dx, part = choose(digit, branches, place, slopes, target, *own)
            return (add_at(slopes, source, dx), add(parts, part)), None

        slopes = jnp.zeros((NODES + 1, *slope.shape), slope.dtype).at[NODES].set(slope)
        edges = (SOURCES, TARGETS, rules.digits, *leaves)
        (slopes, parts), _ = lax.scan(step, (slopes, parts), edges, reverse=True)
        return slopes[0], parts

    cells = rules.network.cells_per_stage
    leaves = jax.tree.map(
        lambda leaf: leaf.reshape(cells, len(EDGES), *leaf.shape[1:]),
        (weights, statistics, [z for _, z in kept if z is not None]),
    )
    return cell, (NODES * np.arange(cells, dtype=np.int32), leaves)


def back_head(
    rules: Rules,
    head: Weights,
    statistics: Any,
    kept: Sequence[Kept],
    cotangent: Float[Array, "m o"],
    taps: Taps,
) -> tuple[Images, Taps]:
    """Back through linear layer, mean over the pixels, ReLU, normalisation."""
    features = jnp.concatenate([each.features for each in kept])
    g, parts = layers.pull_dense(
        features, cotangent, head["kernel"], taps, gain=rules.gain(head["kernel"])
    )
    x = jnp.concatenate([each.nodes[-1][-1] for each in kept])
    norm = rules.norm(head, statistics)
    g = rectified(g[:, None, None] / (x.shape[1] * x.shape[2]), norm(x))
    g, own = layers.pull_normalization(x, g, norm, taps)
    return g, add(parts, own)


def back_reduce(
    rules: Rules,
    x: Images,
    middle: Outputs,
    g: Outputs,
    weights: Weights,
    statistics: Any,
    taps: Taps,
) -> tuple[Images, Taps]:
    """Back through a reduction block."""
    a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
    inner, parts = pull_rectified(rules, middle, g, b, statistics["conv_b"], taps)
    dx, own = pull_rectified(rules, x, inner, a, statistics["conv_a"], taps, stride=2)
    parts = add(parts, own)
    kernel = weights["downsample"]["kernel"]
    pooled = layers.average_pool_2x2(x)
    shortcut, own = layers.pull_convolution(pooled, g, kernel, None, taps, gain=rules.gain(kernel))
    return dx + layers.pull_average_pool_2x2(shortcut), add(parts, own)


def rectified(g: Array, x: Array) -> Array:
    """Back through the ReLU of x."""
    return jnp.where(x > 0, g, 0)


def add(parts: Taps, others: Taps) -> Taps:
    """The sum of contributions, kind by kind."""
    return jax.tree.map(jnp.add, parts, others)
