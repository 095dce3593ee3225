"""NAS-Bench-201's forward pass, which also returns what the backward pass needs.

In each cell a loop over the edges adds the output of each edge to the node in which it ends. The
edge's digit selects the operation, so that one compiled program serves every cell; where a cell is
known when it is traced, the loop is unrolled, and nothing else is computed.
"""

from functools import partial
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from cells import layers
from cells.choice import reading, run_edges
from cells.nasbench201.cell import EDGES, KERNEL_SIZES, NONE, OPERATIONS, SKIP
from cells.rules import Outputs, Rules, Weights
from ntkscore.grams import Images

SOURCES, TARGETS = np.array(EDGES, np.int32).T
NODES = int(TARGETS.max())
"""Nodes of a cell beside its input."""
NAMES = tuple(f"edge_{e}" for e in range(len(EDGES)))
"""The edges in the weights and statistics."""


class Residuals(NamedTuple):
    """Values of a forward pass over M images that the backward pass needs.

    Attributes:
        images: normalised, (m, h, w, 3).
        nodes: of each stage, (node, m, h, w, c); cell t has the nodes 3t … 3t + 3, its last is the
            next cell's first.
        middles: of each reduction block, between its two convolutions.
        convolved: of each stage, the outputs of its edges' convolutions before normalisation,
            (edge, m, h, w, c); or None where the backward pass does not need them.
    """

    images: Images
    nodes: list[Float[Array, "k m h w c"]]
    middles: list[Images]
    convolved: list[Float[Array, "e m h w c"] | None]


def operate(
    index: int, rules: Rules, x: Images, weights: Weights, statistics: Weights
) -> tuple[Images, Weights, Images | None]:
    """The output of an edge's operation, and the statistics to store.

    The third output is a convolution's before normalisation, where the backward pass needs it.
    """
    unused = jnp.zeros_like(x) if rules.instance else None
    if index in KERNEL_SIZES:
        y, statistics, z = rules.relu_conv_norm(x, weights[OPERATIONS[index]], statistics)
        return y, statistics, z if rules.instance else None
    if index == NONE:
        return jnp.zeros_like(x), statistics, unused
    return (x if index == SKIP else layers.average_pool_3x3(x)), statistics, unused


def run_reduction(
    rules: Rules, x: Images, weights: Weights, stored: Weights
) -> tuple[Outputs, Outputs, Weights]:
    """A reduction block's output, the one between its convolutions, and its statistics."""
    a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
    middle, first, _ = rules.relu_conv_norm(x, a, stored["conv_a"], 2)
    y, second, _ = rules.relu_conv_norm(middle, b, stored["conv_b"])
    return y + shortcut(rules, x, weights), middle, {"conv_a": first, "conv_b": second}


def shortcut(rules: Rules, x: Images, weights: Weights) -> Outputs:
    """What a reduction block adds to its second convolution's output."""
    return rules.convolve(layers.average_pool_2x2(x), weights["downsample"]["kernel"])


def head(
    rules: Rules, x: Images, weights: Weights, statistics: Weights
) -> tuple[Float[Array, "m o"], Weights]:
    """Logits of the last stage's output, and the last normalisation's statistics."""
    y, statistics = rules.normalize(x, weights, statistics)
    return rules.dense(jnp.mean(jax.nn.relu(y), (1, 2)), weights), statistics


def run_stage(
    rules: Rules, x: Images, weights: Weights, stored: Weights
) -> tuple[Float[Array, "k m h w c"], Weights, Float[Array, "e m h w c"] | None]:
    """All nodes of a stage, its statistics, and its convolutions' outputs if needed.

    Without residuals the last node alone.
    """
    branches = [reading(partial(operate, index, rules)) for index in range(len(OPERATIONS))]

    def through(nodes: PyTree, first: PyTree, layers: PyTree) -> tuple[PyTree, PyTree]:
        """A cell's edges, whose input is the first of its nodes."""
        of_edges = ([layer[name] for name in NAMES] for layer in layers)
        edges = rules.code, SOURCES, TARGETS, *of_edges
        nodes, (new, convolved) = run_edges(branches, nodes, first, edges)
        new = {name: jax.tree.map(itemgetter(e), new) for e, name in enumerate(NAMES)}
        return nodes, (new, convolved)

    def cell(x: Images, layers: PyTree) -> tuple[Images, Weights]:
        nodes, (new, _) = through([x] + [jnp.zeros_like(x)] * NODES, 0, layers)
        return nodes[-1], new

    if not rules.with_residuals:
        x, new = lax.scan(cell, x, (weights, stored))
        return x[None], new, None
    # All nodes are one array, which the loops fill where it stands.
    firsts = NODES * np.arange(len(jax.tree.leaves(weights)[0]), dtype=np.int32)
    nodes = jnp.zeros((NODES * len(firsts) + 1, *x.shape), x.dtype).at[0].set(x)
    nodes, (new, convolved) = lax.scan(
        lambda nodes, given: through(nodes, *given), nodes, (firsts, (weights, stored))
    )
    return nodes, new, jax.tree.map(lambda leaf: leaf.reshape(-1, *x.shape), convolved)


def run(
    rules: Rules, params: Weights, stored: Weights, images: Images
) -> tuple[Float[Array, "m o"], Residuals, Weights]:
    """Logits of images (pixels in [0, 1]), residuals, and the statistics to store."""
    new = {}
    normalised = rules.normalized(images)
    x, new["stem"], _ = rules.conv_norm(normalised, params["stem"]["conv"], stored["stem"])
    nodes, middles, convolved = [], [], []
    for stage in range(3):
        if stage:
            name = f"reduction_{stage}"
            x, middle, new[name] = run_reduction(rules, x, params[name], stored[name])
            middles.append(middle)
        name = f"stage_{stage}"
        filled, new[name], outputs = run_stage(rules, x, params[name], stored[name])
        nodes.append(filled)
        convolved.append(outputs)
        x = filled[-1]
    logits, new["head"] = head(rules, x, params["head"], stored["head"])
    return logits, Residuals(normalised, nodes, middles, convolved), new
