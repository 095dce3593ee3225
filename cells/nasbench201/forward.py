"""NAS-Bench-201's forward pass, which also returns what the backward pass needs.

A stage is one array of nodes: cell t has the nodes 3t … 3t + 3, its last is the next cell's first,
and a loop over the stage's edges adds the output of each edge to the node in which it ends. The
edge's digit selects the operation, so that one compiled program serves every cell.

The network itself is `cells.nasbench201.network`; the tests compare these passes with it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from cells import layers
from cells.choice import add_at, at, choose
from cells.nasbench201.cell import EDGES, OPERATIONS
from cells.nasbench201.network import Network, operation
from cells.rules import NetworkRules, Outputs, Weights
from ntkscore.grams import Images

SOURCES, TARGETS = np.array(EDGES, np.int32).T
NODES = int(TARGETS.max())
"""Nodes of a cell beside its input."""


class Residuals(NamedTuple):
    """Values of a forward pass over M images that the backward pass needs.

    Attributes:
        images: normalised, (m, h, w, 3).
        nodes: of each stage, (node, m, h, w, c).
        middles: of each reduction block, between its two convolutions.
        features: the means over the pixels that the linear layer reads, (m, c).
        convolved: of each stage, the outputs of its edges' convolutions before normalisation,
            (edge, m, h, w, c); or None where the backward pass does not need them.
    """

    images: Images
    nodes: list[Float[Array, "k m h w c"]]
    middles: list[Images]
    features: Float[Array, "m c"]
    convolved: list[Float[Array, "e m h w c"] | None]


def by_edge(stage: Weights) -> Any:
    """Stack the leaves (cells, …) of the six edges to (6 · cells, …), in the order of use."""
    edges = [stage[f"edge_{e}"] for e in range(len(EDGES))]
    return jax.tree.map(
        lambda *leaves: jnp.stack(leaves, 1).reshape(-1, *leaves[0].shape[1:]), *edges
    )


def by_cell(leaves: PyTree) -> Weights:
    """The inverse of `by_edge`."""
    pick = lambda e: jax.tree.map(lambda leaf: leaf[e :: len(EDGES)], leaves)  # noqa: E731
    return {f"edge_{e}": pick(e) for e in range(len(EDGES))}


@dataclass(frozen=True, kw_only=True)
class CellRules(NetworkRules):
    """Computations of the layers, blocks and stages of one cell's network.

    Attributes:
        digits: the cell.
        cells_per_stage: N, cells in each stage.
    """

    digits: Int[Array, "6"] | np.ndarray
    cells_per_stage: int

    @classmethod
    def of(
        cls, network: Network, digits: Int[Array, "6"] | np.ndarray, measure: bool = False
    ) -> "CellRules":
        """The rules of a network for a cell."""
        return cls(
            network.init_name,
            network.bn,
            measure,
            digits=digits,
            cells_per_stage=network.cells_per_stage,
            mean=network.mean,
            std=network.std,
        )

    def reduce(
        self, x: Images, weights: Weights, stored: Any
    ) -> tuple[Outputs, Outputs, dict[str, Any]]:
        """A reduction block's output, the one between its convolutions, and its statistics."""
        a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
        middle, first, _ = self.conv_norm(jax.nn.relu(x), a, stored["conv_a"], 2)
        y, second, _ = self.conv_norm(jax.nn.relu(middle), b, stored["conv_b"])
        shortcut = self.convolve(layers.average_pool_2x2(x), weights["downsample"]["kernel"])
        return y + shortcut, middle, {"conv_a": first, "conv_b": second}

    def stage(
        self, x: Images, weights: Weights, stored: Weights
    ) -> tuple[Float[Array, "k m h w c"], Weights, Float[Array, "e m h w c"] | None]:
        """All nodes of a stage, its statistics, and its convolutions' outputs if needed."""

        def branch(index: int) -> Any:
            operate = operation(self, index)
            return lambda nodes, source, *layer: operate(at(nodes, source), *layer)

        branches = [branch(index) for index in range(len(OPERATIONS))]

        def step(nodes: Array, edge: Any) -> tuple[Array, Any]:
            source, target, digit, *layer = edge
            y, *outputs = choose(digit, branches, nodes, source, *layer)
            return add_at(nodes, target, y), tuple(outputs)

        first = NODES * np.arange(self.cells_per_stage, dtype=np.int32)[:, None]
        sources, targets = ((first + ends).ravel() for ends in (SOURCES, TARGETS))
        digits = jnp.tile(self.digits, self.cells_per_stage)
        edges = sources, targets, digits, by_edge(weights), by_edge(stored)
        nodes = jnp.zeros((NODES * self.cells_per_stage + 1, *x.shape), x.dtype).at[0].set(x)
        nodes, (statistics, convolved) = lax.scan(step, nodes, edges)
        return nodes, by_cell(statistics), convolved


def run(
    rules: CellRules, params: Weights, stored: Any, images: Images
) -> tuple[Float[Array, "m o"], Residuals, Any]:
    """Logits of images (pixels in [0, 1]), residuals, and the statistics to store."""
    new = {}
    mean, std = rules.normalizer(images.dtype)
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
    kept = Residuals(normalised, nodes, middles, features, convolved)
    return rules.dense(features, head), kept, new
