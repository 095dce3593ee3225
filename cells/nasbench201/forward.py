"""NAS-Bench-201's forward pass, which hands out what the way back needs.

A stage is one array of nodes: cell t has the nodes 3t … 3t + 3, its last is the next cell's first,
and a loop over the stage's edges adds to each the output of every edge that ends in it. The edge's
digit selects what runs, so that one compiled program serves every cell.

The network itself is `cells.nasbench201.network`; the tests hold these passes against it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Rules:
    """A network's settings and its cell, and what its layers compute.

    Attributes:
        network: width, depth, initialiser, normalisation and the images' normaliser.
        digits: the cell.
        measure: whether every normalisation's statistics are measured on the images at hand.
    """

    network: Network
    digits: Int[Array, "6"] | np.ndarray
    measure: bool = False

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

    def normalize(self, z: Images, weights: Weights, statistics: Weights) -> tuple[Images, Weights]:
        """The normalised images and the statistics after them."""
        if self.measure:
            # What is calibrated is frozen: no gradient knows how it came about.
            mean, var = lax.stop_gradient(layers.measure(z))
            statistics = {"mean": mean, "var": var}
        return self.norm(weights, statistics)(z), statistics

    def convolve(self, x: Images, kernel: Array, stride: int = 1) -> Outputs:
        """A convolution by a kernel as it is stored."""
        return layers.convolve(x, self.gain(kernel) * kernel, stride)

    def conv_norm(
        self, x: Images, weights: Weights, statistics: Weights, stride: int = 1
    ) -> tuple[Outputs, Weights, Outputs]:
        """Convolution and normalisation, the statistics, and what lay between the two."""
        z = self.convolve(x, weights["kernel"], stride)
        return *self.normalize(z, weights, statistics), z

    def reduce(
        self, x: Images, weights: Weights, stored: Weights
    ) -> tuple[Outputs, Outputs, Weights]:
        """Output of a reduction block, what lies between its convolutions, and its statistics."""
        a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
        middle, first, _ = self.conv_norm(jax.nn.relu(x), a, stored["conv_a"], 2)
        y, second, _ = self.conv_norm(jax.nn.relu(middle), b, stored["conv_b"])
        shortcut = self.convolve(layers.average_pool_2x2(x), weights["downsample"]["kernel"])
        return y + shortcut, middle, {"conv_a": first, "conv_b": second}

    def stage(
        self, x: Images, weights: Weights, stored: Weights
    ) -> tuple[Float[Array, "k m h w c"], Weights, Float[Array, "e m h w c"] | None]:
        """All nodes of a stage; its statistics, and what its edges keep for the way back."""
        branches = [self._branch(operation) for operation in range(len(OPERATIONS))]

        def step(nodes: Array, edge: Any) -> tuple[Array, Any]:
            source, target, digit, *own = edge
            y, *kept = choose(digit, branches, nodes, source, *own)
            return add_at(nodes, target, y), tuple(kept)

        cells = self.network.cells_per_stage
        first = NODES * np.arange(cells, dtype=np.int32)[:, None]
        sources, targets = ((first + ends).ravel() for ends in (SOURCES, TARGETS))
        edges = sources, targets, jnp.tile(self.digits, cells), by_edge(weights), by_edge(stored)
        nodes = jnp.zeros((NODES * cells + 1, *x.shape), x.dtype).at[0].set(x)
        nodes, (statistics, convolved) = lax.scan(step, nodes, edges)
        return nodes, by_cell(statistics), convolved

    def _branch(self, operation: int) -> Any:
        def operate(nodes: Array, source: Array, weights: Weights, statistics: Weights) -> Any:
            x = at(nodes, source)
            blank = jnp.zeros_like(x) if self.instance else None
            if operation in KERNEL_SIZES:
                own = weights[OPERATIONS[operation]]
                *y, z = self.conv_norm(jax.nn.relu(x), own, statistics)
                return *y, None if blank is None else z
            if operation == NONE:
                return jnp.zeros_like(x), statistics, blank
            return (x if operation == SKIP else layers.average_pool_3x3(x)), statistics, blank

        return operate


def run(
    rules: Rules, params: Weights, stored: Any, images: Images
) -> tuple[Float[Array, "m o"], Kept, Any]:
    """Logits of images, pixels in [0, 1]; what is kept; and the statistics after them."""
    new = {}
    mean, std = (jnp.asarray(v, images.dtype) for v in (rules.network.mean, rules.network.std))
    normalised = (images - mean) / std
    x, new["stem"], _ = rules.conv_norm(normalised, params["stem"]["conv"], stored["stem"])
    nodes, middles, convolved = [], [], []
    for stage in range(3):
        if stage:
            name = f"reduction_{stage}"
            x, middle, new[name] = rules.reduce(x, params[name], stored[name])
            middles.append(middle)
        name = f"stage_{stage}"
        filled, new[name], outputs = rules.stage(x, params[name], stored[name])
        nodes.append(filled)
        convolved.append(outputs)
        x = filled[-1]
    head = params["head"]
    y, new["head"] = rules.normalize(x, head, stored["head"])
    features = jnp.mean(jax.nn.relu(y), (1, 2))
    logits = layers.dense(features, rules.gain(head["kernel"]) * head["kernel"], head["bias"])
    return logits, Kept(normalised, nodes, middles, features, convolved), new


def at(nodes: Float[Array, "k m h w c"], place: Int[Array, ""]) -> Images:
    """One node; `nodes[place]` would look whether there is such a place."""
    return lax.dynamic_index_in_dim(nodes, place, keepdims=False)


def add_at(nodes: Float[Array, "k m h w c"], place: Int[Array, ""], y: Images) -> Array:
    """The nodes with y added to one of them."""
    return lax.dynamic_update_index_in_dim(nodes, at(nodes, place) + y, place, 0)
