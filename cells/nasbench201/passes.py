"""NAS-Bench-201's forward and backward passes, as separate functions that share residuals."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cells import layers
from cells.nasbench201.backward import back, pull_blocks
from cells.nasbench201.cell import IMAGE_CHANNELS, KERNEL_SIZES, OPERATIONS
from cells.nasbench201.forward import NODES, SOURCES, CellRules, Residuals, run
from cells.nasbench201.network import Network
from cells.rules import Outputs, Weights
from cells.visitors import Contributions, Visitor, WeightGradients
from ntkscore.grams import Images, Taps
from ntkscore.model import Activations, LayerGradient


class Passes:
    """The passes of one cell's network.

    Args:
        network: the network's settings.
        params: its parameters, as the flax network has them.
        statistics: stored statistics of its normalisations, likewise.
        digits: the cell.
        images: if given, the statistics are measured on them instead, layer by layer, and a later
            forward pass over these same images reuses that one.
    """

    def __init__(
        self,
        network: Network,
        params: Weights,
        statistics: Weights,
        digits: Int[Array, "6"],
        images: Images | None = None,
    ) -> None:
        self._rules = CellRules.of(network, digits)
        self.statistics: Any = statistics
        self._first: Any = None
        if images is not None:
            measuring = replace(self._rules, measure=True)
            logits, kept, self.statistics = run(measuring, params, statistics, images)
            self._first = params, images, logits, kept

    def forward(self, params: Weights, images: Images) -> tuple[Float[Array, "m o"], Residuals]:
        """Logits of images, pixels in [0, 1], and what the backward pass needs."""
        if self._first is not None and self._first[0] is params and self._first[1] is images:
            return self._first[2:]
        logits, kept, _ = run(self._rules, params, self.statistics, images)
        return logits, kept

    def gradient(self, params: Weights, kept: Residuals, cotangent: Float[Array, "m o"]) -> Images:
        """The gradient in the images, from the cotangent of their logits."""
        return self.parts(params, [kept], cotangent, {})[0]

    def parts(
        self, params: Weights, kept: Sequence[Residuals], cotangent: Float[Array, "m o"], taps: Taps
    ) -> tuple[Images, Taps]:
        """The gradient in the images, and contributions to Gram matrices (`ntkscore.grams.Taps`).

        Args:
            params: as in the forward passes.
            kept: residuals of forward passes over sets of images.
            cotangent: of the logits of all of them, set after set.
            taps: zeros of the matrices' shapes.
        """
        visitor = Contributions(taps) if taps else Visitor()
        g, parts, _ = back(self._rules, params, self.statistics, kept, cotangent, visitor, taps)
        return g / jnp.asarray(self._rules.std, g.dtype), parts

    def layers(
        self,
        params: Weights,
        kept: Residuals,
        cotangent: Float[Array, "m o"],
        visit: Callable[[LayerGradient], PyTree],
    ) -> PyTree:
        """Apply a function to each layer's weight gradients; layers along the first axis."""
        visitor = WeightGradients(visit)
        _, _, visited = back(self._rules, params, self.statistics, [kept], cotangent, visitor)
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *(tree for (tree,) in visited))

    def pullbacks(
        self, params: Weights, kept: Residuals, key: PRNGKeyArray
    ) -> list[tuple[Float[Array, "_ _ _ _ _"], Float[Array, "_ _ _ _ _"]]]:
        """Pull random signs at each block's output to its input: gradients there, and signs."""
        return pull_blocks(self._rules, params, self.statistics, kept, key)

    def unnormalized(self, params: Weights, points: Images) -> Float[Array, "m o"]:
        """Logits without the images' normaliser and the layers' normalisations."""
        rules = replace(
            self._rules, mean=(0.0,) * IMAGE_CHANNELS, std=(1.0,) * IMAGE_CHANNELS, bn="init"
        )
        # Mean 0, and a variance that ε completes to 1, leave the images as they are.
        neutral = {"mean": 0.0, "var": 1 - layers.EPSILON}
        statistics = jax.tree_util.tree_map_with_path(
            lambda path, leaf: jnp.full_like(leaf, neutral[path[-1].key]), self.statistics
        )
        return run(rules, params, statistics, points)[0]

    def standardized(
        self, params: Weights, points: Images, others: Images
    ) -> tuple[Outputs, Outputs, Float[Array, ""]]:
        """Features before the mean over the pixels at two batches, standardised by the first.

        Args:
            params: as in the forward passes.
            points, others: images after the normaliser.

        Returns:
            Outputs of the last ReLUs at the two batches, and Σ ln σ over the normalisations of the
            cell, where σ² is the mean over the channels of a normalisation's variance.
        """
        rules = replace(self._rules, bn="calibrated", init_name="torch")
        mean, std = rules.normalizer(points.dtype)
        unused = jax.tree.map(jnp.ones_like, self.statistics)
        measuring = replace(rules, measure=True)
        _, first, measured = run(measuring, params, unused, points * std + mean)
        _, second, _ = run(rules, params, measured, others * std + mean)
        norm = rules.norm(params["head"], measured["head"])
        here, there = (jax.nn.relu(norm(each.nodes[-1][-1])) for each in (first, second))
        variances = [
            jnp.mean(leaf, -1)
            for path, leaf in jax.tree_util.tree_leaves_with_path(measured)
            if path[-1].key == "var"  # 1, whose logarithm is 0, where the cell has no convolution
        ]
        # The output of a convolution of an empty node is constant, so it is left out.
        logs = [jnp.sum(jnp.log(jnp.where(v == 0, 1, v))) for v in variances]
        return here, there, jnp.asarray(sum(logs)) / 2

    def activations(self, params: Weights, kept: Residuals) -> Activations:
        """Inputs of all ReLUs, and outputs of the stem, the cells and the reduction blocks."""
        is_convolution = jnp.zeros(len(OPERATIONS), jnp.int32).at[np.array([*KERNEL_SIZES])].set(1)
        of_cell = (
            jnp.zeros(NODES + 1, jnp.int32).at[SOURCES].add(is_convolution[self._rules.digits])
        )
        counts = jnp.tile(of_cell[:NODES], self._rules.cells_per_stage)
        rectified = []
        for stage, nodes in enumerate(kept.nodes):
            # A stage's last node is the input of a reduction block, or of the head's normalisation.
            after = jnp.full(1, int(stage < 2), jnp.int32)
            rectified.append((jnp.concatenate([counts, after]), nodes))
        once, head = jnp.ones(1, jnp.int32), params["head"]
        norm = self._rules.norm(head, self.statistics["head"])
        rectified += [(once, middle[None]) for middle in kept.middles]
        rectified.append((once, norm(kept.nodes[-1][-1])[None]))
        return Activations(rectified, [nodes[::NODES] for nodes in kept.nodes])
