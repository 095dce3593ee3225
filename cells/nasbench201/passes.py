"""NAS-Bench-201's forward pass and its backward passes, apart from each other.

Differentiated as a whole, a network is run again for every gradient. Here a forward pass hands out
what the way back needs, so that the statistics, the attack and the kernel share it.

A stage is one array of nodes: cell t has the nodes 3t … 3t + 3, its last is the next cell's first,
and a loop over the stage's edges adds to each the output of every edge that ends in it. The edge's
digit selects what runs, so that one compiled program serves every cell.

The network itself is `cells.nasbench201.network`; the tests hold these passes against it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from cells import layers
from cells.grams import Taps
from cells.initializers import gain
from cells.layers import AnyNorm, InstanceNorm, Norm
from cells.model import Activations
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


class Passes:
    """The passes of one cell's network.

    Args:
        network: the network's settings.
        params: its parameters, as the flax network has them.
        statistics: stored statistics of its normalisations, likewise.
        digits: the cell.
        images: where they are given, the statistics are measured on them instead, layer by
            layer; a forward pass over these same images is then never run again.
    """

    def __init__(
        self,
        network: Network,
        params: Weights,
        statistics: Weights,
        digits: Int[Array, "6"],
        images: Images | None = None,
    ) -> None:
        self.network, self.digits = network, digits
        self.statistics: Any = statistics
        self._first: Any = None
        if images is not None:
            logits, kept, self.statistics = self._run(params, images, measure=True)
            self._first = params, images, logits, kept

    def forward(self, params: Weights, images: Images) -> tuple[Float[Array, "m o"], Kept]:
        """Logits of images, pixels in [0, 1], and what the way back needs."""
        if self._first is not None and self._first[0] is params and self._first[1] is images:
            return self._first[2:]
        logits, kept, _ = self._run(params, images)
        return logits, kept

    def gradient(self, params: Weights, kept: Kept, cotangent: Float[Array, "m o"]) -> Images:
        """The gradient in the images, from the cotangent of their logits."""
        return self.parts(params, [kept], cotangent, {})[0]

    def parts(
        self, params: Weights, kept: Sequence[Kept], cotangent: Float[Array, "m o"], taps: Taps
    ) -> tuple[Images, Taps]:
        """The gradient in the images, and contributions to Gram matrices (`cells.grams.Taps`).

        Args:
            params: as in the forward passes.
            kept: what forward passes over sets of images left.
            cotangent: of the logits of all of them, set after set.
            taps: zeros of the matrices' shapes.
        """
        g, parts = self._back(params, kept, cotangent, taps)
        return g / jnp.asarray(self.network.std, g.dtype), parts

    def activations(self, params: Weights, kept: Kept) -> Activations:
        """The inputs of all rectifiers, and what stem, cells and reduction blocks hand on."""
        is_convolution = jnp.zeros(len(OPERATIONS), jnp.int32).at[np.array([*KERNEL_SIZES])].set(1)
        own = jnp.zeros(NODES + 1, jnp.int32).at[SOURCES].add(is_convolution[self.digits])
        counts = jnp.tile(own[:NODES], self.network.cells_per_stage)
        rectified = []
        for stage, nodes in enumerate(kept.nodes):
            # A stage's last node goes on to a reduction block, or to the head's normalisation.
            after = jnp.full(1, int(stage < 2), jnp.int32)
            rectified.append((jnp.concatenate([counts, after]), nodes))
        once, head = jnp.ones(1, jnp.int32), params["head"]
        norm = self._norm(head, self.statistics["head"])
        rectified += [(once, middle[None]) for middle in kept.middles]
        rectified.append((once, norm(kept.nodes[-1][-1])[None]))
        return Activations(rectified, [nodes[::NODES] for nodes in kept.nodes])

    def _gain(self, kernel: Array) -> float:
        return gain(self.network.init_name, kernel.shape)

    def _norm(self, weights: Weights, statistics: Any) -> AnyNorm:
        """A normalisation, by stored statistics unless the mode has each image's own."""
        if self._instance:
            return InstanceNorm(weights["scale"], weights["shift"])
        return Norm(weights["scale"], weights["shift"], statistics["mean"], statistics["var"])

    def _run(
        self, params: Weights, images: Images, measure: bool = False
    ) -> tuple[Float[Array, "m o"], Kept, Any]:
        """Logits, what is kept, and the statistics, measured on these images if one asks for it."""
        stored, new = self.statistics, {}
        mean, std = (jnp.asarray(v, images.dtype) for v in (self.network.mean, self.network.std))
        normalised = (images - mean) / std
        stem = params["stem"]["conv"]
        x, new["stem"], _ = self._conv_norm(normalised, stem, stored["stem"], measure)
        nodes, middles, convolved = [], [], []
        for stage in range(3):
            if stage:
                name = f"reduction_{stage}"
                x, middle, new[name] = self._reduce(x, params[name], stored[name], measure)
                middles.append(middle)
            name = f"stage_{stage}"
            weights, statistics = by_edge(params[name]), by_edge(stored[name])
            run, (statistics, outputs) = self._stage(x, weights, statistics, measure)
            new[name] = by_cell(statistics)
            nodes.append(run)
            convolved.append(outputs)
            x = run[-1]
        head = params["head"]
        y, new["head"] = self._normalize(x, head, stored["head"], measure)
        features = jnp.mean(jax.nn.relu(y), (1, 2))
        factor = self._gain(head["kernel"])
        logits = layers.dense(features, head["kernel"], head["bias"], None, gain=factor)
        return logits, Kept(normalised, nodes, middles, features, convolved), new

    @property
    def _instance(self) -> bool:
        """Whether each image is normalised by its own statistics."""
        return NORMALIZATIONS[self.network.bn].live is measure_each

    def _normalize(
        self, z: Images, weights: Weights, statistics: Weights, measure: bool
    ) -> tuple[Images, Weights]:
        if measure:
            # What is calibrated is frozen: no gradient knows how it came about.
            mean, var = lax.stop_gradient(layers.measure(z))
            statistics = {"mean": mean, "var": var}
        return self._norm(weights, statistics)(z), statistics

    def _conv_norm(
        self, x: Images, weights: Weights, statistics: Weights, measure: bool, stride: int = 1
    ) -> tuple[Outputs, Weights, Outputs]:
        """Convolution and normalisation, the statistics, and what lay between the two."""
        kernel = weights["kernel"]
        z = layers.convolve(x, self._gain(kernel) * kernel, stride)
        return *self._normalize(z, weights, statistics, measure), z

    def _stage(
        self, x: Images, weights: Weights, statistics: Weights, measure: bool
    ) -> tuple[Float[Array, "k m h w c"], tuple[Weights, Float[Array, "e m h w c"] | None]]:
        """All nodes of a stage; its edges' statistics, and what they keep for the way back."""

        def branch(operation: int) -> Any:
            def run(nodes: Array, source: Array, weights: Weights, statistics: Weights) -> Any:
                x = at(nodes, source)
                blank = jnp.zeros_like(x) if self._instance else None
                if operation in KERNEL_SIZES:
                    own = weights[OPERATIONS[operation]]
                    *y, z = self._conv_norm(jax.nn.relu(x), own, statistics, measure)
                    return *y, None if blank is None else z
                if operation == NONE:
                    return jnp.zeros_like(x), statistics, blank
                return (x if operation == SKIP else layers.average_pool_3x3(x)), statistics, blank

            return run

        branches = [branch(operation) for operation in range(len(OPERATIONS))]

        def step(nodes: Array, edge: Any) -> tuple[Array, Any]:
            source, target, digit, *own = edge
            y, *kept = lax.switch(digit, branches, nodes, source, *own)
            return add_at(nodes, target, y), tuple(kept)

        first = NODES * np.arange(self.network.cells_per_stage, dtype=np.int32)[:, None]
        sources, targets = ((first + ends).ravel() for ends in (SOURCES, TARGETS))
        digits = jnp.tile(self.digits, self.network.cells_per_stage)
        count = NODES * self.network.cells_per_stage + 1
        nodes = jnp.zeros((count, *x.shape), x.dtype).at[0].set(x)
        return lax.scan(step, nodes, (sources, targets, digits, weights, statistics))

    def _reduce(
        self, x: Images, weights: Weights, stored: Weights, measure: bool
    ) -> tuple[Outputs, Outputs, Weights]:
        """Output of a reduction block, what lies between its convolutions, and its statistics."""
        a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
        middle, first, _ = self._conv_norm(jax.nn.relu(x), a, stored["conv_a"], measure, 2)
        y, second, _ = self._conv_norm(jax.nn.relu(middle), b, stored["conv_b"], measure)
        kernel = weights["downsample"]["kernel"]
        shortcut = layers.convolve(layers.average_pool_2x2(x), self._gain(kernel) * kernel)
        return y + shortcut, middle, {"conv_a": first, "conv_b": second}

    def _back(
        self, params: Weights, kept: Sequence[Kept], cotangent: Float[Array, "m o"], taps: Taps
    ) -> tuple[Images, Taps]:
        """The gradient in the normalised images, and the contributions where taps are given."""
        stored: Any = self.statistics
        head = params["head"]
        features = jnp.concatenate([each.features for each in kept])
        g, parts = layers.pull_dense(
            features, cotangent, head["kernel"], taps, gain=self._gain(head["kernel"])
        )
        x = jnp.concatenate([each.nodes[-1][-1] for each in kept])
        norm = self._norm(head, stored["head"])
        g = rectified(g[:, None, None] / (x.shape[1] * x.shape[2]), norm(x))
        g, own = layers.pull_normalization(x, g, norm, taps)
        parts = add(parts, own)
        for stage in reversed(range(3)):
            name = f"stage_{stage}"
            nodes = [(each.nodes[stage], each.convolved[stage]) for each in kept]
            g, own = self._back_stage(nodes, g, by_edge(params[name]), by_edge(stored[name]), taps)
            parts = add(parts, own)
            if stage:
                name = f"reduction_{stage}"
                x = jnp.concatenate([each.nodes[stage - 1][-1] for each in kept])
                middle = jnp.concatenate([each.middles[stage - 1] for each in kept])
                g, own = self._back_reduce(x, middle, g, params[name], stored[name], taps)
                parts = add(parts, own)
        images = jnp.concatenate([each.images for each in kept])
        g, own = self._pull_conv_norm(images, g, params["stem"]["conv"], stored["stem"], taps)
        return g, add(parts, own)

    def _pull_conv_norm(
        self,
        x: Images,
        g: Outputs,
        weights: Weights,
        statistics: Any,
        taps: Taps,
        stride: int = 1,
        z: Outputs | None = None,
    ) -> tuple[Images, Taps]:
        kernel, norm = weights["kernel"], self._norm(weights, statistics)
        factor = self._gain(kernel)
        return layers.pull_convolution(x, g, kernel, norm, taps, stride=stride, gain=factor, z=z)

    def _pull_rectified(self, x: Images, *others: Any, **choices: Any) -> tuple[Images, Taps]:
        """Back through ReLU, convolution, normalisation; the arguments of `_pull_conv_norm`."""
        dx, parts = self._pull_conv_norm(jax.nn.relu(x), *others, **choices)
        return rectified(dx, x), parts

    def _back_stage(
        self,
        kept: Sequence[tuple[Float[Array, "k n h w c"], Float[Array, "e n h w c"] | None]],
        g: Images,
        weights: Weights,
        statistics: Any,
        taps: Taps,
    ) -> tuple[Images, Taps]:
        """Back through a stage, last cell and last edge first."""

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
                    return self._pull_rectified(x, g, own, statistics, taps, z=z)
                if operation == NONE:
                    return jnp.zeros_like(g), taps
                return (g if operation == SKIP else layers.pull_average_pool_3x3(g)), taps

            return pull

        branches = [branch(operation) for operation in range(len(OPERATIONS))]

        def cell(carry: Any, own: Any) -> Any:
            first, leaves = own

            def step(carry: Any, edge: Any) -> Any:
                slopes, parts = carry
                source, target, digit, *own = edge
                place = first + source
                dx, part = lax.switch(digit, branches, place, slopes, target, *own)
                return (add_at(slopes, source, dx), add(parts, part)), None

            slope, parts = carry
            slopes = jnp.zeros((NODES + 1, *slope.shape), slope.dtype).at[NODES].set(slope)
            edges = (SOURCES, TARGETS, self.digits, *leaves)
            (slopes, parts), _ = lax.scan(step, (slopes, parts), edges, reverse=True)
            return (slopes[0], parts), None

        cells = self.network.cells_per_stage
        leaves = jax.tree.map(
            lambda leaf: leaf.reshape(cells, len(EDGES), *leaf.shape[1:]),
            (weights, statistics, [z for _, z in kept if z is not None]),
        )
        own = (NODES * np.arange(cells, dtype=np.int32), leaves)
        (g, parts), _ = lax.scan(cell, (g, taps), own, reverse=True)
        return g, parts

    def _back_reduce(
        self, x: Images, middle: Outputs, g: Outputs, weights: Weights, statistics: Any, taps: Taps
    ) -> tuple[Images, Taps]:
        """Back through a reduction block."""
        a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
        inner, parts = self._pull_rectified(middle, g, b, statistics["conv_b"], taps)
        dx, own = self._pull_rectified(x, inner, a, statistics["conv_a"], taps, stride=2)
        parts = add(parts, own)
        kernel = weights["downsample"]["kernel"]
        pooled = layers.average_pool_2x2(x)
        shortcut, own = layers.pull_convolution(
            pooled, g, kernel, None, taps, gain=self._gain(kernel)
        )
        return dx + layers.pull_average_pool_2x2(shortcut), add(parts, own)


def rectified(g: Array, x: Array) -> Array:
    """Back through the ReLU of x."""
    return jnp.where(x > 0, g, 0)


def at(nodes: Float[Array, "k m h w c"], place: Int[Array, ""]) -> Images:
    """One node; `nodes[place]` would look whether there is such a place."""
    return lax.dynamic_index_in_dim(nodes, place, keepdims=False)


def add_at(nodes: Float[Array, "k m h w c"], place: Int[Array, ""], y: Images) -> Array:
    """The nodes with y added to one of them."""
    return lax.dynamic_update_index_in_dim(nodes, at(nodes, place) + y, place, 0)


def add(parts: Taps, others: Taps) -> Taps:
    """The sum of contributions, kind by kind."""
    return jax.tree.map(jnp.add, parts, others)
