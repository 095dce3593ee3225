"""DARTS' forward pass, which also returns what the backward pass needs.

A stage is one array of nodes of a width, along its first axis

    n₀ n₁ n₂ n₃ | s₀ s₁ n₀ n₁ n₂ n₃ | s₀ s₁ n₀ n₁ n₂ n₃ | …
      input           cell 0               cell 1

The stage's input is the reduction cell's nodes, or the stem, filled up with zeros. Cell t begins at
place 6t + 4: its input s₁ is made of the four nodes of the cell before it, from place 6t on, and s₀
of those of the one before that, from place 6(t − 1) on.
"""

from functools import partial
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from cells.choice import at, reading, run_edges
from cells.darts.genotype import OPERATIONS, TARGETS
from cells.darts.network import INPUTS, NODES, STEM, factorized_reduce, operate
from cells.rules import Outputs, Rules, Weights
from ntkscore.grams import Images

STEP = INPUTS + NODES
"""Places of a cell."""
EDGE_TARGETS = np.array(TARGETS, np.int32)
Digits = Int[Array, "8"] | Int[np.ndarray, "8"]
Places = Float[Array, "k m h w c"]


class Residuals(NamedTuple):
    """Values of a forward pass over M images that the backward pass needs.

    Attributes:
        images: normalised, (m, h, w, 3).
        stages: nodes of each stage, (place, m, h, w, c).
        middles: of each stage, where a separable convolution is between its two rounds,
            (cell, edge, m, h, w, c).
        inputs: of each reduction cell, its two inputs, (2, m, 2h, 2w, c).
        reduction_middles: of each reduction cell, the same as `middles`, (edge, m, h, w, c).
    """

    images: Images
    stages: list[Places]
    middles: list[Float[Array, "t e m h w c"]]
    inputs: list[Places]
    reduction_middles: list[Places]


def merged(nodes: Places, first: int | Int[Array, ""]) -> Outputs:
    """The four nodes from a place on, side by side."""
    group = jnp.moveaxis(lax.dynamic_slice_in_dim(nodes, first, NODES), 0, -2)
    return group.reshape(*group.shape[:-2], -1)


def split(x: Images) -> Float[Array, "k m h w d"]:
    """The inverse of `merged`."""
    return jnp.moveaxis(x.reshape(*x.shape[:-1], NODES, -1), -2, 0)


def cell_outputs(nodes: Places, last: int = 0) -> list[Outputs]:
    """A stage's input and the outputs of its cells: the `last` ones of these, or all."""
    return [merged(nodes, place) for place in range(0, len(nodes), STEP)[-last:]]


def input_of(nodes: Places, t: Int[Array, ""], k: int) -> Outputs:
    """What input k of cell t is made of: the four nodes of a cell before it, side by side."""
    return merged(nodes, STEP * jnp.maximum(t - 1 + k, 0))


def run_stage(
    rules: Rules, before: list[Array], weights: Weights, stored: Weights
) -> tuple[Places, Float[Array, "t e m h w c"], Weights]:
    """All nodes of a stage, its residuals between rounds, and its statistics.

    `before` are the outputs of the two cells before it, the nearer last. Behind a reduction cell
    the other has twice the size, and the first cell's first input is made of half its pixels.
    """
    cells, entering, new = len(weights["input_1"]["scale"]), split(before[1]), {}
    nodes = jnp.zeros((NODES + STEP * cells, *entering.shape[1:]), entering.dtype)
    nodes = nodes.at[:NODES].set(entering)
    if "halving" in weights:
        halving = weights["halving"], stored["halving"]
        halved, new["halving"] = factorized_reduce(rules, before[0], *halving)
        nodes = nodes.at[NODES].set(halved)
    branches = [reading(partial(operate, index, 1, rules)) for index in range(len(OPERATIONS))]

    def add_input(nodes: Array, t: Array, k: int, layer: PyTree) -> tuple[Array, Weights]:
        """The nodes with input k of cell t, and its statistics."""
        place = NODES + STEP * t + k
        make = lambda nodes: rules.relu_conv_norm(input_of(nodes, t, k), *layer)[:2]  # noqa: E731
        if k or "halving" not in weights:
            y, new = make(nodes)
        else:
            keep = lambda nodes: (at(nodes, place), layer[1])  # noqa: E731
            y, new = lax.cond(t == 0, keep, make, nodes)
        return lax.dynamic_update_index_in_dim(nodes, y, place, 0), new

    def cell(nodes: Array, given: PyTree) -> tuple[Array, PyTree]:
        t, of_inputs, of_edges = given
        measured = {}
        for k, layer in of_inputs.items():
            nodes, measured[k] = add_input(nodes, t, k, layer)
        edges = *rules.code["normal"].T, EDGE_TARGETS, *of_edges
        nodes, outputs = run_edges(branches, nodes, NODES + STEP * t, edges)
        return nodes, (measured, *outputs)

    nodes, outputs = lax.scan(cell, nodes, stage_layers(weights, stored))
    of_inputs, new["edges"], middles = outputs
    for k, statistics in of_inputs.items():
        first = int(k == 0 and "halving" in weights)
        new[f"input_{k}"] = jax.tree.map(itemgetter(slice(first, None)), statistics)
    return nodes, middles, new


def stage_layers(weights: Weights, stored: Weights) -> PyTree:
    """A stage's layers with one entry for each cell, to scan over, and the cells' numbers.

    Where they lack the first cell's first input, which then comes from elsewhere, its entry is
    zeros.
    """
    cells = len(weights["input_1"]["scale"])

    def padded(leaf: Array) -> Array:
        return jnp.pad(leaf, [(cells - len(leaf), 0)] + [(0, 0)] * (leaf.ndim - 1))

    names = {k: f"input_{k}" for k in range(INPUTS) if f"input_{k}" in weights}
    inputs = {k: jax.tree.map(padded, (weights[name], stored[name])) for k, name in names.items()}
    return np.arange(cells, dtype=np.int32), inputs, (weights["edges"], stored["edges"])


def run_reduction(
    rules: Rules, before: list[Images], weights: Weights, stored: Weights
) -> tuple[Array, Array, Array, Weights]:
    """The inputs, nodes, residuals between rounds, and statistics of a reduction cell.

    `before` are the outputs of the two cells before it, the nearer last.
    """
    inputs, new = [], {}
    for k, x in enumerate(before):
        name = f"input_{k}"
        y, new[name], _ = rules.relu_conv_norm(x, weights[name], stored[name])
        inputs.append(y)
    big = jnp.stack(inputs)
    # The inputs' places among nodes of half the size stay empty.
    nodes = jnp.zeros((STEP, *big[:, :, ::2, ::2].shape[1:]), big.dtype)
    branches = [
        reading(partial(operate, index, stride, rules), others)
        for stride, others in ((1, None), (2, big))
        for index in range(len(OPERATIONS))
    ]
    edges = *reduction_code(rules.code), EDGE_TARGETS, weights["edges"], stored["edges"]
    nodes, (new["edges"], middles) = run_edges(branches, nodes, 0, edges)
    return big, nodes, middles, new


def reduction_code(code: Weights) -> tuple[Digits, Digits]:
    """Operations of a reduction cell, those of stride 2 behind the others, and their sources.

    An edge from an input has stride 2.
    """
    operations, sources = code["reduce"].T
    strided = (sources < INPUTS).astype(operations.dtype)
    return operations + len(OPERATIONS) * strided, sources


def run(
    rules: Rules, params: Weights, stored: Weights, images: Images
) -> tuple[Float[Array, "m o"], Residuals, Weights]:
    """Logits of images (pixels in [0, 1]), residuals, and the statistics to store."""
    normalised, new = rules.normalized(images), {}
    stem, new["stem"], _ = rules.conv_norm(normalised, params["stem"], stored["stem"])
    # As many channels as a cell's output, the last of them zero.
    last = jnp.pad(stem, [(0, 0)] * 3 + [(0, stem.shape[-1] * (NODES - STEM) // STEM)])
    residuals = Residuals(normalised, [], [], [], [])
    before = [last, last]
    for stage in range(3):
        if stage:
            name = f"reduction_{stage}"
            big, nodes, middles, new[name] = run_reduction(
                rules, before, params[name], stored[name]
            )
            residuals.inputs.append(big)
            residuals.reduction_middles.append(middles)
            before = [before[1], merged(nodes, INPUTS)]
        name = f"stage_{stage}"
        nodes, middles, new[name] = run_stage(rules, before, params[name], stored[name])
        residuals.stages.append(nodes)
        residuals.middles.append(middles)
        before = cell_outputs(nodes, 2)
    return rules.dense(before[1], params["head"]), residuals, new
