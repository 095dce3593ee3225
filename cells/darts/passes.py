"""DARTS' forward and backward passes, as separate functions that share residuals."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cells import layers
from cells.darts.backward import back, pull_blocks
from cells.darts.forward import STEP, CellRules, Residuals, merged, run
from cells.darts.genotype import OPERATIONS, SKIP
from cells.darts.network import INPUTS, NODES, SEPARABLE, STEM, WITH_WEIGHTS
from cells.rules import Outputs, Weights
from cells.visitors import Contributions, Visitor, WeightGradients
from ntkscore.grams import Images, Taps
from ntkscore.model import Activations, LayerGradient


class Passes:
    """The passes of one genotype's network.

    Args:
        rules: of its layers.
        params: its parameters.
        statistics: stored statistics of its normalisations.
        images: if given, the statistics are measured on them instead, layer by layer, and a later
            forward pass over these same images reuses that one.
    """

    def __init__(
        self, rules: CellRules, params: Weights, statistics: Weights, images: Images | None = None
    ) -> None:
        self._rules = rules
        self.statistics: Any = statistics
        self._first: Any = None
        if images is not None:
            measuring = replace(rules, measure=True)
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
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *visited)

    def pullbacks(
        self, params: Weights, kept: Residuals, key: PRNGKeyArray
    ) -> list[tuple[Float[Array, "_ _ _ _ _"], Float[Array, "_ _ _ _ _"]]]:
        """Pull random signs at each cell's output to its nearer input: gradients and signs."""
        return pull_blocks(self._rules, params, self.statistics, kept, key)

    def unnormalized(self, params: Weights, points: Images) -> Float[Array, "m o"]:
        """Logits without the images' normaliser and the layers' normalisations."""
        colours = len(self._rules.mean)
        rules = replace(self._rules, mean=(0.0,) * colours, std=(1.0,) * colours, bn="init")
        return run(rules, params, layers.neutral(self.statistics), points)[0]

    def standardized(
        self, params: Weights, points: Images, others: Images
    ) -> tuple[Outputs, Outputs, Float[Array, ""]]:
        """Features before the mean over the pixels at two batches.

        Args:
            params: as in the forward passes.
            points, others: images after the normaliser.

        Returns:
            The last cell's outputs at the two batches, normalised by statistics of the first, and
            Σ ln σ over the normalisations, σ² the mean over the channels of one's variance.
        """
        rules = replace(self._rules, bn="calibrated", init_name="torch")
        mean, std = rules.normalizer(points.dtype)
        unused = jax.tree.map(jnp.ones_like, self.statistics)
        measuring = replace(rules, measure=True)
        _, first, measured = run(measuring, params, unused, points * std + mean)
        _, second, _ = run(rules, params, measured, others * std + mean)
        here, there = (
            merged(each.stages[-1], len(each.stages[-1]) - NODES) for each in (first, second)
        )
        return here, there, layers.log_deviations(measured)

    def activations(self, params: Weights, kept: Residuals) -> Activations:
        """Inputs of all ReLUs, and outputs of the stem and of the cells."""
        code = self._rules.code
        reads = jnp.zeros(len(OPERATIONS), jnp.int32).at[np.array(WITH_WEIGHTS)].set(1)
        twice = jnp.zeros(len(OPERATIONS), jnp.int32).at[np.array(SEPARABLE)].set(1)
        rectified, features = [], []
        for stage, nodes in enumerate(kept.stages):
            cells = (len(nodes) - NODES) // STEP
            counts = _read_by(code["normal"], reads)
            # Groups of four nodes: a stage's input, and the outputs of its cells.
            groups = np.full(cells + 1, 2)
            groups[0] += stage == 0
            if stage == 2:  # Nothing follows the last two cells but the head.
                groups[-2:] -= (1, 2)
            entering = jnp.zeros(NODES, jnp.int32)
            if stage:
                strided = reads.at[SKIP].set(1)
                of_inputs = _read_by(code["reduce"], strided)[:INPUTS]
                entering += _read_by(code["reduce"], reads)[INPUTS:]
                rectified.append((of_inputs, kept.inputs[stage - 1]))
                rectified.append((twice[code["reduce"][:, 0]], kept.halves[stage - 1]))
            entering += int(groups[0])
            if not stage:
                entering = entering.at[STEM:].set(0)
            others = jnp.tile(counts, cells).reshape(cells, STEP)
            others = others.at[:, INPUTS:].add(groups[1:, None].astype(np.int32))
            rectified.append((jnp.concatenate([entering, others.ravel()]), nodes))
            middles = kept.middles[stage]
            of_edges = jnp.tile(twice[code["normal"][:, 0]], cells)
            rectified.append((of_edges, middles.reshape(-1, *middles.shape[2:])))
            outputs = [merged(nodes, t * STEP) for t in range(int(stage == 0), cells + 1)]
            if not stage:
                features.append(merged(nodes, 0)[None, ..., : STEM * nodes.shape[-1]])
            features.append(jnp.stack(outputs))
        return Activations(rectified, features)


def _read_by(edges: Int[Array, "8 2"], reads: Int[Array, " q"]) -> Int[Array, "6"]:
    """How many ReLUs of a cell's edges take each of its inputs and nodes."""
    counts = jnp.zeros(STEP, jnp.int32)
    return counts.at[edges[:, 1]].add(reads[edges[:, 0]])
