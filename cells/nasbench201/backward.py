"""NAS-Bench-201's backward passes, from the residuals of forward passes.

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
from cells.choice import add_at, at, choose
from cells.nasbench201.cell import KERNEL_SIZES, NONE, OPERATIONS, SKIP
from cells.nasbench201.forward import (
    NAMES,
    NODES,
    SOURCES,
    TARGETS,
    CellRules,
    Residuals,
)
from cells.rules import (
    Outputs,
    Visited,
    Weights,
    back_conv_norm,
    back_norm,
    back_relu,
    back_relu_conv_norm,
)
from cells.visitors import Visitor
from ntkscore.grams import PRECISION, Images


def back(
    rules: CellRules,
    params: Weights,
    stored: Any,
    residuals: Sequence[Residuals],
    cotangent: Float[Array, "m o"],
    visitor: Visitor,
    total: PyTree = (),
) -> tuple[Images, PyTree, Visited]:
    """The gradient in the normalised images, and a visitor's outputs at every layer.

    Args:
        rules, params, stored: as in the forward passes.
        residuals: of forward passes over sets of images.
        cotangent: of the logits of all of them, set after set.
        visitor: visits each layer's gradients.
        total: the visitor's sum over the layers, at the start.

    Returns:
        The gradient; the visitor's total; and its other outputs, at the linear layer, the edges of
        each stage and the convolutions before it, last to first. They are zeros at edges without a
        convolution.
    """
    everything: Visited = []

    def collect(visited: Visited) -> None:
        nonlocal total
        total, outputs = visitor.collect(total, visited)
        everything.extend(jax.tree.map(lambda leaf: leaf[None], outputs))

    g, visited = back_head(rules, params["head"], stored["head"], residuals, cotangent, visitor)
    collect(visited)
    for stage in reversed(range(3)):
        name = f"stage_{stage}"
        nodes = [(each.nodes[stage], each.convolved[stage]) for each in residuals]
        pull, cells = cell_pullback(rules, nodes, params[name], stored[name], visitor)
        step = lambda carry, cell, pull=pull: pull(*carry, cell)  # noqa: E731
        (g, total), outputs = lax.scan(step, (g, total), cells, reverse=True)
        everything.extend(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), outputs))
        if stage:
            name = f"reduction_{stage}"
            x = jnp.concatenate([each.nodes[stage - 1][-1] for each in residuals])
            middle = jnp.concatenate([each.middles[stage - 1] for each in residuals])
            g, visited = back_reduce(rules, x, middle, g, params[name], stored[name], visitor)
            collect(visited)
    images = jnp.concatenate([each.images for each in residuals])
    g, visited = back_conv_norm(rules, images, g, params["stem"]["conv"], stored["stem"], visitor)
    collect(visited)
    return g, total, everything


def pull_blocks(
    rules: CellRules, params: Weights, stored: Any, residuals: Residuals, key: PRNGKeyArray
) -> list[tuple[Float[Array, "_ _ _ _ _"], Float[Array, "_ _ _ _ _"]]]:
    """Pull random signs at the output of every cell and reduction block to the block's input.

    Returns:
        Gradients at the inputs and the signs, blocks of one shape together.
    """

    def signs(like: Float[Array, "k m h w c"]) -> Float[Array, "k m h w c"]:
        return jax.random.rademacher(jax.random.fold_in(key, len(pairs)), like.shape, like.dtype)

    pairs: list[tuple[Array, Array]] = []
    for stage, nodes in enumerate(residuals.nodes):
        name = f"reduction_{stage}"
        if stage:
            x, middle = residuals.nodes[stage - 1][-1], residuals.middles[stage - 1]
            g = signs(nodes[:1])
            dx, _ = back_reduce(rules, x, middle, g[0], params[name], stored[name], Visitor())
            pairs.append((dx[None], g))
        name = f"stage_{stage}"
        both = [(nodes, residuals.convolved[stage])]
        pull, cells = cell_pullback(rules, both, params[name], stored[name], Visitor())
        g = signs(nodes[NODES::NODES])
        to_input = lambda given, pull=pull: pull(given[0], (), given[1])[0][0]  # noqa: E731
        pairs.append((lax.map(to_input, (g, cells)), g))
    return pairs


def cell_pullback(
    rules: CellRules,
    stage: Sequence[tuple[Float[Array, "k n h w c"], Float[Array, "e n h w c"] | None]],
    weights: Weights,
    stored: Any,
    visitor: Visitor,
) -> tuple[Callable[[Images, PyTree, Any], tuple[tuple[Images, PyTree], Visited]], Any]:
    """The pullback of one cell of a stage, last edge first, and what to scan it over.

    Args:
        rules, weights, stored: as in the forward pass.
        stage: nodes and convolution outputs of the stage, for each set of images.
        visitor: visits each edge's convolution.

    Returns:
        A function of (output cotangent, total, cell) that returns the input cotangent and the
        total, and the visitor's outputs by edge; and the cells, along the first axis of each leaf.
    """

    def branch(operation: int) -> Any:
        def pull(
            source: Array,
            cotangents: Array,
            target: Array,
            weights: Weights,
            statistics: Any,
            convolved: list[Images],
        ) -> Any:
            g = at(cotangents, target)
            if operation in KERNEL_SIZES:
                x = jnp.concatenate([at(nodes, source) for nodes, _ in stage])
                z = jnp.concatenate(convolved) if convolved else None
                of_conv = weights[OPERATIONS[operation]]
                return back_relu_conv_norm(rules, x, g, of_conv, statistics, visitor, z=z)
            edge = source, cotangents, target, weights, statistics, convolved
            _, shapes = jax.eval_shape(branch(next(iter(KERNEL_SIZES))), *edge)
            zeros = jax.tree.map(jnp.zeros_like, shapes)
            if operation == NONE:
                return jnp.zeros_like(g), zeros
            return (g if operation == SKIP else layers.pull_average_pool_3x3(g)), zeros

        return pull

    branches = [branch(operation) for operation in range(len(OPERATIONS))]

    def pull(g: Images, total: PyTree, cell: Any) -> tuple[tuple[Images, PyTree], Visited]:
        first, leaves = cell

        def step(carry: Any, edge: Any) -> Any:
            cotangents, total = carry
            source, target, digit, *layer = edge
            dx, visited = choose(digit, branches, first + source, cotangents, target, *layer)
            total, visited = visitor.collect(total, visited)
            return (add_at(cotangents, source, dx), total), visited

        cotangents = jnp.zeros((NODES + 1, *g.shape), g.dtype).at[NODES].set(g)
        edges = (SOURCES, TARGETS, rules.digits, *leaves)
        (cotangents, total), visited = lax.scan(step, (cotangents, total), edges, reverse=True)
        return (cotangents[0], total), visited

    cells = len(stage[0][0]) // NODES
    by_edge = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves, 1), *(layers[name] for name in NAMES))
        for layers in (weights, stored)
    )
    convolved = [z.reshape(cells, -1, *z.shape[1:]) for _, z in stage if z is not None]
    return pull, (NODES * np.arange(cells, dtype=np.int32), (*by_edge, convolved))


def back_head(
    rules: CellRules,
    head: Weights,
    statistics: Any,
    residuals: Sequence[Residuals],
    cotangent: Float[Array, "m o"],
    visitor: Visitor,
) -> tuple[Images, Visited]:
    """The cotangent of the last stage's output, from that of the logits."""
    features = jnp.concatenate([each.features for each in residuals])
    x = jnp.concatenate([each.nodes[-1][-1] for each in residuals])
    kernel, norm = head["kernel"], rules.norm(head, statistics)
    gain = rules.gain(kernel)
    g = jnp.matmul(cotangent, gain * kernel.T, precision=PRECISION)
    g = back_relu(g[:, None, None] / (x.shape[1] * x.shape[2]), norm(x))
    dx, of_norm = back_norm(x, g, norm, visitor)
    return dx, visitor.dense(features, cotangent, kernel, gain) + of_norm


def back_reduce(
    rules: CellRules,
    x: Images,
    middle: Outputs,
    g: Outputs,
    weights: Weights,
    stored: Any,
    visitor: Visitor,
) -> tuple[Images, Visited]:
    """The cotangent of a reduction block's input, and outputs at its three convolutions."""
    a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
    inner, second = back_relu_conv_norm(rules, middle, g, b, stored["conv_b"], visitor)
    dx, first = back_relu_conv_norm(rules, x, inner, a, stored["conv_a"], visitor, stride=2)
    pooled = layers.average_pool_2x2(x)
    shortcut, third = back_conv_norm(rules, pooled, g, weights["downsample"], None, visitor)
    return dx + layers.pull_average_pool_2x2(shortcut), first + second + third
