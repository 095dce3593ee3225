"""NAS-Bench-201's forward pass, which hands out what the way back needs.

A stage is one array of nodes: cell t has the nodes 3t … 3t + 3, its last is the next cell's first,
and a loop over the stage's edges adds to each the output of every edge that ends in it. The edge's
digit selects what runs, so that one compiled program serves every cell.

The network itself is `cells.nasbench201.network`; the tests hold these passes against it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from cells import layers
from cells.choice import choose
from cells.initializers import gain
from cells.layers import AnyNorm, InstanceNorm, Norm
from cells.nasbench201.cell import EDGES, KERNEL_SIZES, NONE, OPERATIONS, SKIP
from cells.nasbench201.network import Network
from cells.nasbench201.normalization import NORMALIZATIONS, measure_each

SOURCES, TARGETS = np.array(EDGES, np.int32).T
NODES = int(TARGETS.max())
"""Nodes that a cell adds to the one that it is given."""

Images = Float[Array, "m h w c"]
Outputs = Float[Array, "m h2 w2 d"]
"""Of a convolution, which may change the images' size."""
Weights = Mapping[str, Any]


class Kept(NamedTuple):
    """What a forward pass over M images leaves for the way back.

    Attributes:
        images: normalised, (m, h, w, 3).
        nodes: of each stage, (node, m, h, w, c).
        middles: of each reduction block, between its two convolutions.
        features: the means over the pixels that the linear layer reads, (m, c).
        convolved: of each stage, what its edges' convolutions put out, (edge, m, h, w, c); or None
            where the way back does without.
    """

    images: Images
    nodes: list[Float[Array, "k m h w c"]]
    middles: list[Images]
    features: Float[Array, "m c"]
    convolved: list[Float[Array, "e m h w c"] | None]


def by_edge(stage: Weights) -> Any:
    """Leaves (cells, …) of each of six edges, in one leaf (6 · cells, …) in the order of use."""
    edges = [stage[f"edge_{e}"] for e in range(len(EDGES))]
    return jax.tree.map(
        lambda *leaves: jnp.stack(leaves, 1).reshape(-1, *leaves[0].shape[1:]), *edges
    )


def by_cell(leaves: PyTree) -> Weights:
    """The inverse of `by_edge`."""
    pick = lambda e: jax.tree.map(lambda leaf: leaf[e :: len(EDGES)], leaves)  # noqa: E731
    return {f"edge_{e}": pick(e) for e in range(len(EDGES))}


class Rules(NamedTuple):
    """A network's settings and its cell: what its passes go by."""

    network: Network
    digits: Int[Array, "6"]

    @property
    def instance(self) -> bool:
        """Whether each image is normalised by its own statistics."""
        return NORMALIZATIONS[self.network.bn].live is measure_each

    def gain(self, kernel: Array) -> float:
        """What multiplies a kernel."""
        return gain(self.network.init_name, kernel.shape)

    def norm(self, weights: Weights, statistics: Any) -> AnyNorm:
        """A normalisation, by stored statistics unless the mode has each image's own."""
        if self.instance:
            return InstanceNorm(weights["scale"], weights["shift"])
        return Norm(weights["scale"], weights["shift"], statistics["mean"], statistics["var"])


def run(
    rules: Rules, params: Weights, stored: Any, images: Images, measure: bool = False
) -> tuple[Float[Array, "m o"], Kept, Any]:
    """Logits, what is kept, and the statistics, measured on these images if one asks for it."""
    new = {}
    mean, std = (jnp.asarray(v, images.dtype) for v in (rules.network.mean, rules.network.std))
    normalised = (images - mean) / std
    stem = params["stem"]["conv"]
    x, new["stem"], _ = conv_norm(rules, normalised, stem, stored["stem"], measure)
    nodes, middles, convolved = [], [], []
    for stage in range(3):
        if stage:
            name = f"reduction_{stage}"
            x, middle, new[name] = reduce(rules, x, params[name], stored[name], measure)
            middles.append(middle)
        name = f"stage_{stage}"
        weights, statistics = by_edge(params[name]), by_edge(stored[name])
        filled, (statistics, outputs) = run_stage(rules, x, weights, statistics, measure)
        new[name] = by_cell(statistics)
        nodes.append(filled)
        convolved.append(outputs)
        x = filled[-1]
    head = params["head"]
    y, new["head"] = normalize(rules, x, head, stored["head"], measure)
    features = jnp.mean(jax.nn.relu(y), (1, 2))
    factor = rules.gain(head["kernel"])
    logits = layers.dense(features, factor * head["kernel"], head["bias"])
    return logits, Kept(normalised, nodes, middles, features, convolved), new


def normalize(
    rules: Rules, z: Images, weights: Weights, statistics: Weights, measure: bool
) -> tuple[Images, Weights]:
    """The normalised images and the statistics, measured on them if one asks for it."""
    if measure:
        # What is calibrated is frozen: no gradient knows how it came about.
        mean, var = lax.stop_gradient(layers.measure(z))
        statistics = {"mean": mean, "var": var}
    return rules.norm(weights, statistics)(z), statistics


def conv_norm(
    rules: Rules, x: Images, weights: Weights, statistics: Weights, measure: bool, stride: int = 1
) -> tuple[Outputs, Weights, Outputs]:
    """Convolution and normalisation, the statistics, and what lay between the two."""
    kernel = weights["kernel"]
    z = layers.convolve(x, rules.gain(kernel) * kernel, stride)
    return *normalize(rules, z, weights, statistics, measure), z


def run_stage(
    rules: Rules, x: Images, weights: Weights, statistics: Weights, measure: bool
) -> tuple[Float[Array, "k m h w c"], tuple[Weights, Float[Array, "e m h w c"] | None]]:
    """All nodes of a stage; its edges' statistics, and what they keep for the way back."""

    def branch(operation: int) -> Any:
        def operate(nodes: Array, source: Array, weights: Weights, statistics: Weights) -> Any:
            x = at(nodes, source)
            blank = jnp.zeros_like(x) if rules.instance else None
            if operation in KERNEL_SIZES:
                own = weights[OPERATIONS[operation]]
                *y, z = conv_norm(rules, jax.nn.relu(x), own, statistics, measure)
                return *y, None if blank is None else z
            if operation == NONE:
                return jnp.zeros_like(x), statistics, blank
            return (x if operation == SKIP else layers.average_pool_3x3(x)), statistics, blank

        return operate

    branches = [branch(operation) for operation in range(len(OPERATIONS))]

    def step(nodes: Array, edge: Any) -> tuple[Array, Any]:
        source, target, digit, *own = edge
        y, *kept = choose(digit, branches, nodes, source, *own)
        return add_at(nodes, target, y), tuple(kept)

    count = NODES * rules.network.cells_per_stage + 1
    nodes = jnp.zeros((count, *x.shape), x.dtype).at[0].set(x)
    return lax.scan(step, nodes, (*edges_of_stage(rules), weights, statistics))


def edges_of_stage(rules: Rules) -> tuple[np.ndarray, np.ndarray, Int[Array, "e"]]:
    """Source, target and digit of each edge of a stage's cells, in the order of use."""
    first = NODES * np.arange(rules.network.cells_per_stage, dtype=np.int32)[:, None]
    sources, targets = ((first + ends).ravel() for ends in (SOURCES, TARGETS))
    return sources, targets, jnp.tile(rules.digits, rules.network.cells_per_stage)


def reduce(
    rules: Rules, x: Images, weights: Weights, stored: Weights, measure: bool
) -> tuple[Outputs, Outputs, Weights]:
    """Output of a reduction block, what lies between its convolutions, and its statistics."""
    a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
    middle, first, _ = conv_norm(rules, jax.nn.relu(x), a, stored["conv_a"], measure, 2)
    y, second, _ = conv_norm(rules, jax.nn.relu(middle), b, stored["conv_b"], measure)
    kernel = weights["downsample"]["kernel"]
    shortcut = layers.convolve(layers.average_pool_2x2(x), rules.gain(kernel) * kernel)
    return y + shortcut, middle, {"conv_a": first, "conv_b": second}


def at(nodes: Float[Array, "k m h w c"], place: Int[Array, ""]) -> Images:
    """One node; `nodes[place]` would look whether there is such a place."""
    return lax.dynamic_index_in_dim(nodes, place, keepdims=False)


def add_at(nodes: Float[Array, "k m h w c"], place: Int[Array, ""], y: Images) -> Array:
    """The nodes with y added to one of them."""
    return lax.dynamic_update_index_in_dim(nodes, at(nodes, place) + y, place, 0)
