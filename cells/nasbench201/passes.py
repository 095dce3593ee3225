"""NAS-Bench-201's forward and backward passes, as separate functions that share residuals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cells.nasbench201.backward import back, pull_blocks
from cells.nasbench201.cell import KERNEL_SIZES, OPERATIONS
from cells.nasbench201.forward import NODES, SOURCES, Residuals, run
from cells.passes import CellPasses
from cells.rules import Outputs, Weights
from ntkscore.model import Activations


class Passes(CellPasses[Residuals]):
    """The passes of one cell's network."""

    run = staticmethod(run)
    back = staticmethod(back)
    pull_blocks = staticmethod(pull_blocks)

    def pooled(self, rules: Any, params: Weights, statistics: Any, residuals: Residuals) -> Outputs:
        """Outputs of the last ReLUs."""
        norm = rules.norm(params["head"], statistics["head"])
        return jax.nn.relu(norm(residuals.nodes[-1][-1]))

    def activations(self, params: Weights, residuals: Residuals) -> Activations:
        """Inputs of all ReLUs, and outputs of the stem, the cells and the reduction blocks."""
        is_convolution = jnp.zeros(len(OPERATIONS), jnp.int32).at[np.array([*KERNEL_SIZES])].set(1)
        of_cell = (
            jnp.zeros(NODES + 1, jnp.int32).at[SOURCES].add(is_convolution[self._rules.digits])
        )
        counts = jnp.tile(of_cell[:NODES], len(residuals.nodes[0]) // NODES)
        rectified = []
        for stage, nodes in enumerate(residuals.nodes):
            # A stage's last node is the input of a reduction block, or of the head's normalisation.
            after = jnp.full(1, int(stage < 2), jnp.int32)
            rectified.append((jnp.concatenate([counts, after]), nodes))
        once, head = jnp.ones(1, jnp.int32), params["head"]
        norm = self._rules.norm(head, self.statistics["head"])
        rectified += [(once, middle[None]) for middle in residuals.middles]
        rectified.append((once, norm(residuals.nodes[-1][-1])[None]))
        return Activations(rectified, [nodes[::NODES] for nodes in residuals.nodes])
