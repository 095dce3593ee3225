"""NAS-Bench-201's passes: the ways back, from the residuals of forward passes.

Differentiated as a whole, a network is run again for every gradient; here the statistics, the
attack, the kernel and the measures of weight gradients share one forward pass.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from cells.backward import Backward, filled
from cells.choice import add_at, at, choose
from cells.nasbench201.cell import CONV_1X1, KERNEL_SIZES, NONE, OPERATIONS
from cells.nasbench201.forward import (
    NAMES,
    NODES,
    SOURCES,
    TARGETS,
    CellRules,
    Residuals,
    operate,
    run,
)
from cells.passes import CellPasses
from cells.rules import Outputs, Weights
from ntkscore.grams import Images
from ntkscore.model import Activations, Logits


class Passes(CellPasses[Residuals]):
    """The passes of one cell's network."""

    run = staticmethod(run)

    def back(self, back: Backward, residuals: Sequence[Residuals], cotangent: Logits) -> Images:
        """The gradient in the normalised images (`cells.passes.CellPasses`).

        A visitor's outputs are zeros at edges without a convolution.
        """
        last = jnp.concatenate([each.nodes[-1][-1] for each in residuals])
        g = back.through(CellRules.head, last, cotangent, *back.layer("head"))
        for stage in reversed(range(3)):
            pull_cell, cells = cell_pullback(back, residuals, stage)
            g = back.loop(pull_cell, g, cells)
            if stage:
                g = pull_reduction(back, residuals, stage, g)
        images = jnp.concatenate([each.images for each in residuals])
        stem, statistics = back.layer("stem")
        return back.through(CellRules.conv_norm, images, g, stem["conv"], statistics)

    def pull_blocks(
        self, back: Backward, residuals: Residuals, signs: Callable[[Array], Array]
    ) -> list[tuple[Float[Array, "_ _ _ _ _"], Float[Array, "_ _ _ _ _"]]]:
        """Pull random signs at the output of every cell and reduction block to its input."""
        pairs: list[tuple[Array, Array]] = []
        for stage, nodes in enumerate(residuals.nodes):
            if stage:
                g = signs(nodes[:1])
                pairs.append((pull_reduction(back, [residuals], stage, g[0])[None], g))
            pull_cell, cells = cell_pullback(back, [residuals], stage)
            g = signs(nodes[NODES::NODES])
            to_input = lambda given, pull=pull_cell: pull(back, *given)  # noqa: E731
            pairs.append((lax.map(to_input, (g, cells)), g))
        return pairs

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


def cell_pullback(
    back: Backward, residuals: Sequence[Residuals], stage: int
) -> tuple[Callable[[Backward, Images, Any], Images], Any]:
    """The pullback of one cell of a stage from its output to its input, and the cells."""
    name = f"stage_{stage}"
    every = [each.nodes[stage] for each in residuals]
    convolved = [each.convolved[stage] for each in residuals]

    def branch(index: int) -> Any:
        def pull_edge(
            place: Array, g: Array, weights: Weights, statistics: Any, convolved: list[Images]
        ) -> Any:
            if index == NONE:
                return jnp.zeros_like(g), []
            x = jnp.concatenate([at(nodes, place) for nodes in every])
            if not convolved or index not in KERNEL_SIZES:
                return back.pull(partial(operate, index), x, g, weights, statistics)
            # The normalisation is pulled back from the convolution's output, which is known.
            of_conv, z = weights[OPERATIONS[index]], jnp.concatenate(convolved)
            g, of_norm = back.pull(CellRules.normalize, z, g, of_conv, statistics)
            dx, visited = back.pull(CellRules.relu_convolve, x, g, of_conv["kernel"])
            return dx, of_norm + visited

        return pull_edge

    branches = filled([branch(index) for index in range(len(OPERATIONS))], CONV_1X1)

    def pull_cell(back: Backward, g: Images, cell: Any) -> Images:
        first, layers = cell

        def pull_edge(back: Backward, cotangents: Array, edge: Any) -> Array:
            source, target, digit, *layer = edge
            dx, visited = choose(digit, branches, first + source, at(cotangents, target), *layer)
            back.collect(visited)
            return add_at(cotangents, source, dx)

        cotangents = jnp.zeros((NODES + 1, *g.shape), g.dtype).at[NODES].set(g)
        edges = SOURCES, TARGETS, back.rules.digits, *layers
        return back.loop(pull_edge, cotangents, edges)[0]

    cells = len(every[0]) // NODES
    by_edge = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves, 1), *(layers[name] for name in NAMES))
        for layers in back.layer(name)
    )
    convolved = [z.reshape(cells, -1, *z.shape[1:]) for z in convolved if z is not None]
    return pull_cell, (NODES * np.arange(cells, dtype=np.int32), (*by_edge, convolved))


def pull_reduction(
    back: Backward, residuals: Sequence[Residuals], stage: int, g: Outputs
) -> Images:
    """The cotangent of the input of the reduction block before a stage."""
    x = jnp.concatenate([each.nodes[stage - 1][-1] for each in residuals])
    middle = jnp.concatenate([each.middles[stage - 1] for each in residuals])
    weights, stored = back.layer(f"reduction_{stage}")
    a, b = ((weights[name]["conv"], stored[name]) for name in ("conv_a", "conv_b"))
    inner, second = back.pull(CellRules.relu_conv_norm, middle, g, *b)
    dx, first = back.pull(CellRules.relu_conv_norm, x, inner, *a, 2)
    shortcut, third = back.pull(CellRules.shortcut, x, g, weights)
    back.collect(first + second + third)
    return dx + shortcut
