"""DARTS' forward pass, which also returns what the backward pass needs.

A stage is one array of nodes of a width, along its first axis

    n₀ n₁ n₂ n₃ | s₀ s₁ n₀ n₁ n₂ n₃ | s₀ s₁ n₀ n₁ n₂ n₃ | …
      input           cell 0               cell 1

The stage's input is the reduction cell's nodes, or the stem, filled up with zeros. Cell t begins at
place 6t + 4: its input s₁ is made of the four nodes of the cell before it, from place 6t on, and s₀
of those of the one before that, from place 6(t − 1) on.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from cells.choice import add_at, at, choose, scan_edges
from cells.darts.genotype import OPERATIONS, TARGETS
from cells.darts.network import (
    INPUTS,
    NODES,
    STEM,
    Code,
    Shape,
    factorized_reduce,
    operate,
)
from cells.rules import Outputs, Rules, Weights
from ntkscore.grams import Images

STEP = INPUTS + NODES
"""Places of a cell."""
BOTH = 2 * len(OPERATIONS)
"""Operations of a reduction cell, those of stride 1 before those of stride 2."""
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


@dataclass(frozen=True, kw_only=True)
class CellRules(Rules):
    """Computations of the layers of one genotype's network.

    Attributes:
        shape: of the network.
        code: operation and source of each edge.
    """

    shape: Shape
    code: Code

    def preprocess(self, x: Images, weights: Weights, stored: Any) -> tuple[Outputs, Any]:
        """ReLU, 1×1 convolution and normalisation."""
        return self.relu_conv_norm(x, weights, stored)[:2]

    def head(self, x: Images, weights: Weights) -> Float[Array, "m o"]:
        """Logits of the last cell's output."""
        return self.dense(jnp.mean(x, (1, 2)), weights)


def merged(nodes: Places, first: int | Int[Array, ""]) -> Outputs:
    """The four nodes from a place on, side by side."""
    group = jnp.moveaxis(lax.dynamic_slice_in_dim(nodes, first, NODES), 0, -2)
    return group.reshape(*group.shape[:-2], -1)


def split(x: Images) -> Float[Array, "k m h w d"]:
    """The inverse of `merged`."""
    return jnp.moveaxis(x.reshape(*x.shape[:-1], NODES, -1), -2, 0)


def read_from(t: Int[Array, ""], k: int) -> Int[Array, ""]:
    """The place of the four nodes that input k of cell t comes from."""
    return STEP * jnp.maximum(t - 1 + k, 0)


def padded_stem(x: Images, channels: int) -> Outputs:
    """The stem's output with as many channels as a cell's, the last of them zero."""
    return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, (NODES - STEM) * channels)))


def run_stage(
    rules: CellRules,
    entering: Places,
    downsampled: Images | None,
    weights: Weights,
    stored: Weights,
) -> tuple[Float[Array, "p m h w c"], Any, Weights]:
    """All nodes of a stage, its residuals between rounds, and its statistics.

    Args:
        rules: of the network.
        entering: the first four nodes.
        downsampled: the first cell's first input, where a reduction cell precedes.
        weights, stored: of the stage.
    """
    cells = len(weights["input_1"]["scale"])
    nodes = jnp.zeros((NODES + STEP * cells, *entering.shape[1:]), entering.dtype)
    nodes = nodes.at[:NODES].set(entering)
    nodes = nodes if downsampled is None else nodes.at[NODES].set(downsampled)
    skip = downsampled is not None
    branches = [partial(operate, index, 1, rules) for index in range(len(OPERATIONS))]

    def edge(carry: Array, given: Any, first: Array) -> tuple[Array, Any]:
        index, source, target, *layer = given
        y, statistics, middle = choose(index, branches, at(carry, first + source), *layer)
        return add_at(carry, first + target, y), (statistics, middle)

    def of_input(k: int, t: Array, layer: Any, nodes: Array) -> tuple[Images, Any]:
        return rules.preprocess(merged(nodes, read_from(t, k)), *layer)

    def cell(nodes: Array, given: Any) -> tuple[Array, Any]:
        t, of_inputs, of_edges = given
        first, new = NODES + STEP * t, {}
        for k, layer in of_inputs.items():
            compute = partial(of_input, k, t, layer)
            if skip and k == 0:
                keep = lambda nodes, k=k, layer=layer: (at(nodes, first + k), layer[1])  # noqa: E731
                y, new[k] = lax.cond(t == 0, keep, compute, nodes)
            else:
                y, new[k] = compute(nodes)
            nodes = lax.dynamic_update_index_in_dim(nodes, y, first + k, 0)
        operations, sources = rules.code["normal"].T
        edges = operations, sources, np.array(TARGETS, np.int32), *of_edges
        nodes, outputs = scan_edges(lambda carry, e: edge(carry, e, first), nodes, edges)
        return nodes, (new, *outputs)

    given = stage_layers(weights, stored)
    nodes, (of_inputs, of_edges, middles) = lax.scan(cell, nodes, given)
    new = {"edges": of_edges}
    for k, statistics in of_inputs.items():
        drop = skip and k == 0
        new[f"input_{k}"] = jax.tree.map(lambda leaf, drop=drop: leaf[int(drop) :], statistics)
    return nodes, middles, new


def stage_layers(weights: Weights, stored: Weights) -> Any:
    """A stage's layers with one entry for each cell, to scan over, and the cells' numbers.

    Args:
        weights, stored: of the stage. Where they lack the first cell's first input, which then
            comes from elsewhere, its entry is zeros.
    """
    cells = len(weights["input_1"]["scale"])
    inputs = {}
    for k in range(INPUTS):
        if f"input_{k}" in weights:
            layer = weights[f"input_{k}"], stored[f"input_{k}"]
            missing = cells - len(layer[0]["scale"])
            inputs[k] = jax.tree.map(
                lambda leaf, missing=missing: jnp.pad(
                    leaf, [(missing, 0)] + [(0, 0)] * (leaf.ndim - 1)
                ),
                layer,
            )
    return np.arange(cells, dtype=np.int32), inputs, (weights["edges"], stored["edges"])


def run_reduction(
    rules: CellRules, before: tuple[Images, Images], weights: Weights, stored: Weights
) -> tuple[Array, Array, Array, Weights]:
    """The inputs, nodes, residuals between rounds, and statistics of a reduction cell.

    Args:
        rules: of the network.
        before: the outputs of the two cells before it, the nearer last.
        weights, stored: of the cell.
    """
    inputs, new = [], {}
    for k, x in enumerate(before):
        name = f"input_{k}"
        y, new[name] = rules.preprocess(x, weights[name], stored[name])
        inputs.append(y)
    big = jnp.stack(inputs)
    nodes = jnp.zeros((NODES, *big[:, :, ::2, ::2].shape[1:]), big.dtype)

    def branch(place: int) -> Any:
        stride, index = divmod(place, len(OPERATIONS))
        run = partial(operate, index, stride + 1, rules)
        if stride:
            return lambda nodes, source, *layer: run(at(big, source), *layer)
        return lambda nodes, source, *layer: run(at(nodes, source - INPUTS), *layer)

    branches = [branch(place) for place in range(BOTH)]

    def edge(nodes: Array, given: Any) -> tuple[Array, Any]:
        place, source, target, *layer = given
        y, statistics, middle = choose(place, branches, nodes, source, *layer)
        return add_at(nodes, target - INPUTS, y), (statistics, middle)

    places, sources = reduction_places(rules.code)
    targets = np.array(TARGETS, np.int32)
    edges = places, sources, targets, weights["edges"], stored["edges"]
    nodes, (new["edges"], middles) = scan_edges(edge, nodes, edges)
    return big, nodes, middles, new


def reduction_places(code: Code) -> tuple[Digits, Digits]:
    """Places in a reduction cell's operations, and sources: an edge from an input has stride 2."""
    operations, sources = code["reduce"].T
    strided = (sources < INPUTS).astype(operations.dtype)
    return operations + len(OPERATIONS) * strided, sources


def run(
    rules: CellRules, params: Weights, stored: Any, images: Images
) -> tuple[Float[Array, "m o"], Residuals, Any]:
    """Logits of images (pixels in [0, 1]), residuals, and the statistics to store."""
    normalised, new = rules.normalized(images), {}
    stem, new["stem"], _ = rules.conv_norm(normalised, params["stem"], stored["stem"])
    last = padded_stem(stem, rules.shape.channels)
    stages, middles, inputs, reduction_middles = [], [], [], []
    previous = last
    for stage in range(3):
        entering, downsampled, name = split(last), None, f"stage_{stage}"
        of_stage, of_norms = params[name], stored[name]
        if stage:
            cell = f"reduction_{stage}"
            of_cell = params[cell], stored[cell]
            big, entering, middle, new[cell] = run_reduction(rules, (previous, last), *of_cell)
            inputs.append(big)
            reduction_middles.append(middle)
            layer = of_stage["halving"], of_norms["halving"]
            downsampled, statistics = factorized_reduce(rules, last, *layer)
        nodes, middle, new[name] = run_stage(rules, entering, downsampled, of_stage, of_norms)
        if stage:
            new[name]["halving"] = statistics
        stages.append(nodes)
        middles.append(middle)
        previous, last = (merged(nodes, len(nodes) - k * STEP - NODES) for k in (1, 0))
    residuals = Residuals(normalised, stages, middles, inputs, reduction_middles)
    return rules.head(last, params["head"]), residuals, new
