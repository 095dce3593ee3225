"""NAS-Bench-201's backward passes, from what forward passes have kept.

Differentiated as a whole, a network is run again for every gradient; here the statistics, the
attack, the kernel and the measures of weight gradients share one forward pass.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

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
from cells.pullbacks import Visitor, pull_convolution, pull_dense, pull_normalization

Seen = list[PyTree]
"""What a visitor sees of a layer, or of several along the first axis."""


def back(
    rules: Rules,
    params: Weights,
    stored: Any,
    kept: Sequence[Kept],
    cotangent: Float[Array, "m o"],
    visitor: Visitor,
    total: PyTree = (),
) -> tuple[Images, PyTree, list[Seen]]:
    """The gradient in the normalised images, and what a visitor sees on the way.

    Args:
        rules, params, stored: as in the forward passes.
        kept: what forward passes over sets of images left.
        cotangent: of the logits of all of them, set after set.
        visitor: what the layers hand their gradients to.
        total: what it carries on from layer to layer, at the start.

    Returns:
        The gradient; what the visitor carried on; and what it laid by, of the linear layer, the
        edges of each stage and the convolutions before it, last to first. An edge that is no
        convolution leaves zeros.
    """
    all_seen: list[Seen] = []

    def keep(seen: Seen) -> None:
        nonlocal total
        total, own = visitor.keep(total, seen)
        all_seen.append(jax.tree.map(lambda leaf: leaf[None], own))

    g, seen = back_head(rules, params["head"], stored["head"], kept, cotangent, visitor)
    keep(seen)
    for stage in reversed(range(3)):
        name = f"stage_{stage}"
        nodes = [(each.nodes[stage], each.convolved[stage]) for each in kept]
        cell, cells = pull_of_cells(rules, nodes, params[name], stored[name], visitor)
        step = lambda carry, own, cell=cell: cell(*carry, own)  # noqa: E731
        (g, total), own = lax.scan(step, (g, total), cells, reverse=True)
        all_seen.append(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), own))
        if stage:
            name = f"reduction_{stage}"
            x = jnp.concatenate([each.nodes[stage - 1][-1] for each in kept])
            middle = jnp.concatenate([each.middles[stage - 1] for each in kept])
            g, of_layers = back_reduce(rules, x, middle, g, params[name], stored[name], visitor)
            for seen in of_layers:
                keep(seen)
    images = jnp.concatenate([each.images for each in kept])
    g, seen = pull_conv_norm(rules, images, g, params["stem"]["conv"], stored["stem"], visitor)
    keep(seen)
    return g, total, all_seen


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
            g, own = signs(nodes[:1]), (params[name], stored[name])
            dx, _ = back_reduce(rules, before, middle, g[0], *own, Visitor())
            pairs.append((dx[None], g))
        name = f"stage_{stage}"
        own = [(nodes, kept.convolved[stage])]
        cell, cells = pull_of_cells(rules, own, params[name], stored[name], Visitor())
        g = signs(nodes[NODES::NODES])
        pull = lambda both, cell=cell: cell(both[0], (), both[1])[0][0]  # noqa: E731
        pairs.append((lax.map(pull, (g, cells)), g))
    return pairs


def pull_conv_norm(
    rules: Rules,
    x: Images,
    g: Outputs,
    weights: Weights,
    statistics: Any,
    visitor: Visitor,
    stride: int = 1,
    z: Outputs | None = None,
) -> tuple[Images, Seen]:
    """Back through a normalisation and the convolution before it; z lies between, if kept."""
    kernel = weights["kernel"]
    norm = rules.norm(weights, statistics) if "scale" in weights else None
    return pull_convolution(
        x, g, kernel, norm, visitor, stride=stride, gain=rules.gain(kernel), z=z
    )


def pull_rectified(rules: Rules, x: Images, *others: Any, **choices: Any) -> tuple[Images, Seen]:
    """Back through ReLU, convolution, normalisation; the arguments of `pull_conv_norm`."""
    dx, seen = pull_conv_norm(rules, jax.nn.relu(x), *others, **choices)
    return rectified(dx, x), seen


def pull_of_cells(
    rules: Rules,
    kept: Sequence[tuple[Float[Array, "k n h w c"], Float[Array, "e n h w c"] | None]],
    weights: Weights,
    stored: Any,
    visitor: Visitor,
) -> tuple[Callable[[Images, PyTree, Any], tuple[tuple[Images, PyTree], Seen]], Any]:
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
                return pull_rectified(rules, x, g, own, statistics, visitor, z=z)
            edge = source, slopes, target, weights, statistics, convolved
            _, shapes = jax.eval_shape(branch(next(iter(KERNEL_SIZES))), *edge)
            unseen = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
            if operation == NONE:
                return jnp.zeros_like(g), unseen
            return (g if operation == SKIP else layers.pull_average_pool_3x3(g)), unseen

        return pull

    branches = [branch(operation) for operation in range(len(OPERATIONS))]

    def cell(slope: Images, total: PyTree, own: Any) -> tuple[tuple[Images, PyTree], Seen]:
        first, leaves = own

        def step(carry: Any, edge: Any) -> Any:
            slopes, total = carry
            source, target, digit, *own = edge
            place = first + source
            dx, seen = choose(digit, branches, place, slopes, target, *own)
            total, seen = visitor.keep(total, seen)
            return (add_at(slopes, source, dx), total), seen

        slopes = jnp.zeros((NODES + 1, *slope.shape), slope.dtype).at[NODES].set(slope)
        edges = (SOURCES, TARGETS, rules.digits, *leaves)
        (slopes, total), seen = lax.scan(step, (slopes, total), edges, reverse=True)
        return (slopes[0], total), seen

    cells = rules.network.cells_per_stage
    leaves = jax.tree.map(
        lambda leaf: leaf.reshape(cells, len(EDGES), *leaf.shape[1:]),
        (by_edge(weights), by_edge(stored), [z for _, z in kept if z is not None]),
    )
    return cell, (NODES * np.arange(cells, dtype=np.int32), leaves)


def back_head(
    rules: Rules,
    head: Weights,
    statistics: Any,
    kept: Sequence[Kept],
    cotangent: Float[Array, "m o"],
    visitor: Visitor,
) -> tuple[Images, Seen]:
    """Back through linear layer, mean over the pixels, ReLU, normalisation."""
    features = jnp.concatenate([each.features for each in kept])
    kernel, norm = head["kernel"], rules.norm(head, statistics)
    g, of_layer = pull_dense(features, cotangent, kernel, visitor, gain=rules.gain(kernel))
    x = jnp.concatenate([each.nodes[-1][-1] for each in kept])
    g = rectified(g[:, None, None] / (x.shape[1] * x.shape[2]), norm(x))
    g, seen = pull_normalization(x, g, norm, visitor)
    return g, of_layer + seen


def back_reduce(
    rules: Rules,
    x: Images,
    middle: Outputs,
    g: Outputs,
    weights: Weights,
    stored: Any,
    visitor: Visitor,
) -> tuple[Images, list[Seen]]:
    """Back through a reduction block, and what is seen of its three convolutions."""
    a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
    inner, second = pull_rectified(rules, middle, g, b, stored["conv_b"], visitor)
    dx, first = pull_rectified(rules, x, inner, a, stored["conv_a"], visitor, stride=2)
    pooled = layers.average_pool_2x2(x)
    shortcut, third = pull_conv_norm(rules, pooled, g, weights["downsample"], None, visitor)
    return dx + layers.pull_average_pool_2x2(shortcut), [first, second, third]


def rectified(g: Array, x: Array) -> Array:
    """Back through the ReLU of x."""
    return jnp.where(x > 0, g, 0)
