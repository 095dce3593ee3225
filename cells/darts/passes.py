"""DARTS' forward and backward passes, as separate functions that share residuals."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from cells.darts.backward import back, pull_blocks
from cells.darts.forward import STEP, Residuals, merged, run
from cells.darts.genotype import OPERATIONS, SKIP
from cells.darts.network import INPUTS, NODES, SEPARABLE, SIZES, STEM
from cells.passes import CellPasses
from cells.rules import Outputs, Weights
from ntkscore.model import Activations


class Passes(CellPasses[Residuals]):
    """The passes of one genotype's network."""

    run = staticmethod(run)
    back = staticmethod(back)
    pull_blocks = staticmethod(pull_blocks)

    def pooled(self, rules: Any, params: Weights, statistics: Any, residuals: Residuals) -> Outputs:
        """Outputs of the last cell."""
        return merged(residuals.stages[-1], len(residuals.stages[-1]) - NODES)

    def activations(self, params: Weights, residuals: Residuals) -> Activations:
        """Inputs of all ReLUs, and outputs of the stem and of the cells."""
        code = self._rules.code
        reads = jnp.zeros(len(OPERATIONS), jnp.int32).at[np.array([*SIZES])].set(1)
        twice = jnp.zeros(len(OPERATIONS), jnp.int32).at[np.array([*SEPARABLE])].set(1)
        rectified, features = [], []
        for stage, nodes in enumerate(residuals.stages):
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
                rectified.append((of_inputs, residuals.inputs[stage - 1]))
                middles = residuals.reduction_middles[stage - 1]
                rectified.append((twice[code["reduce"][:, 0]], middles))
            entering += int(groups[0])
            if not stage:
                entering = entering.at[STEM:].set(0)
            others = jnp.tile(counts, cells).reshape(cells, STEP)
            others = others.at[:, INPUTS:].add(groups[1:, None].astype(np.int32))
            rectified.append((jnp.concatenate([entering, others.ravel()]), nodes))
            middles = residuals.middles[stage]
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
