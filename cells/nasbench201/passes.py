"""NAS-Bench-201's passes: the ways back, from the residuals of forward passes.

Differentiated as a whole, a network is run again for every gradient; here the statistics, the
attack, the kernel and the measures of weight gradients share one forward pass.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from cells.backward import Backward, Pull, Visited, filled, pull_edges
from cells.choice import at, readers
from cells.nasbench201.cell import CONV_1X1, KERNEL_SIZES, NONE, OPERATIONS, SOURCES, TARGETS
from cells.nasbench201.network import NAMES, NODES, Residuals, operate, run, shortcut
from cells.passes import CellPasses, Pairs
from cells.rules import Outputs, Rules, Weights
from ntkscore.grams import Images
from ntkscore.model import Activations, Logits


class Passes(CellPasses[Residuals]):
    """The passes of one cell's network."""

    run = staticmethod(run)

    def back(self, back: Backward, residuals: Sequence[Residuals], cotangent: Logits) -> Images:
        """The gradient in the normalised images."""
        last = jnp.concatenate([each.nodes[-1][-1] for each in residuals])
        g = back.through(Rules.norm_relu_dense, last, cotangent, *back.layer("head"))
        for stage in reversed(range(3)):
            pull_cell, cells = cell_pullback(back, residuals, stage)
            g = back.loop(pull_cell, g, cells)
            if stage:
                g = pull_reduction(back, residuals, stage, g)
        images = jnp.concatenate([each.images for each in residuals])
        stem, statistics = back.layer("stem")
        return back.through(Rules.conv_norm, images, g, stem["conv"], statistics)

    def pull_blocks(
        self, back: Backward, residuals: Residuals, signs: Callable[[Array], Array]
    ) -> Pairs:
        """Pull random signs at the output of every cell and reduction block to its input."""
        pairs = []
        for stage, nodes in enumerate(residuals.nodes):
            if stage:
                g = signs(nodes[:1])
                pairs.append((pull_reduction(back, [residuals], stage, g[0])[None], g))
            pull_cell, cells = cell_pullback(back, [residuals], stage)
            g = signs(nodes[NODES::NODES])
            to_input = lambda given, pull=pull_cell: pull(back, *given)  # noqa: E731
            pairs.append((lax.map(to_input, (g, cells)), g))
        return pairs

    def pooled(
        self, rules: Rules, params: Weights, statistics: Weights, residuals: Residuals
    ) -> Outputs:
        """Outputs of the last ReLUs."""
        last = residuals.nodes[-1][-1]
        return jax.nn.relu(rules.normalize(last, params["head"], statistics["head"])[0])

    def activations(self, params: Weights, residuals: Residuals) -> Activations:
        """Inputs of all ReLUs, and outputs of the stem, the cells and the reduction blocks."""
        of_cell = readers(self.rules.code, SOURCES, KERNEL_SIZES, NODES)
        rectified = []
        for stage, nodes in enumerate(residuals.nodes):
            # A stage's last node is the input of a reduction block, or of the head's normalisation.
            counts, after = jnp.tile(of_cell, len(nodes) // NODES), jnp.int32([stage < 2])
            rectified.append((jnp.concatenate([counts, after]), nodes))
        once, (weights, stored) = jnp.ones(1, jnp.int32), (params["head"], self.statistics["head"])
        rectified += [(once, middle[None]) for middle in residuals.middles]
        z, _ = self.rules.normalize(residuals.nodes[-1][-1], weights, stored)
        rectified.append((once, z[None]))
        return Activations(rectified, [nodes[::NODES] for nodes in residuals.nodes])


def cell_pullback(
    back: Backward, residuals: Sequence[Residuals], stage: int
) -> tuple[Callable[[Backward, Images, PyTree], Images], PyTree]:
    """The pullback of one cell of a stage from its output to its input, and the cells."""
    name = f"stage_{stage}"
    every = [each.nodes[stage] for each in residuals]
    convolved = [z for each in residuals if (z := each.convolved[stage]) is not None]

    def branch(index: int) -> Pull:
        def pull(
            place: Array, g: Array, weights: Weights, statistics: Weights, convolved: list[Images]
        ) -> tuple[Array, Visited]:
            if index == NONE:
                return jnp.zeros_like(g), []
            x = jnp.concatenate([at(nodes, place) for nodes in every])
            if not convolved or index not in KERNEL_SIZES:
                return back.pull(partial(operate, index), x, g, weights, statistics)
            # The normalisation is pulled back from the convolution's output, which is known.
            of_conv, z = weights[OPERATIONS[index]], jnp.concatenate(convolved)
            g, of_norm = back.pull(Rules.normalize, z, g, of_conv, statistics)
            relu_convolve = lambda rules, x, k: rules.convolve(jax.nn.relu(x), k)  # noqa: E731
            dx, visited = back.pull(relu_convolve, x, g, of_conv["kernel"])
            return dx, of_norm + visited

        return pull

    branches = filled([branch(index) for index in range(len(OPERATIONS))], CONV_1X1)

    def pull_cell(back: Backward, g: Images, cell: PyTree) -> Images:
        first, layers = cell
        cotangents = jnp.zeros((NODES + 1, *g.shape), g.dtype).at[NODES].set(g)
        edges = back.rules.code, SOURCES, TARGETS, *layers
        return pull_edges(back, branches, cotangents, first, edges)[0]

    cells = len(every[0]) // NODES
    by_edge = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves, 1), *(layers[name] for name in NAMES))
        for layers in back.layer(name)
    )
    convolved = [z.reshape(cells, -1, *z.shape[1:]) for z in convolved]
    return pull_cell, (NODES * np.arange(cells, dtype=np.int32), (*by_edge, convolved))


def pull_reduction(
    back: Backward, residuals: Sequence[Residuals], stage: int, g: Outputs
) -> Images:
    """The cotangent of the input of the reduction block before a stage."""
    x = jnp.concatenate([each.nodes[stage - 1][-1] for each in residuals])
    middle = jnp.concatenate([each.middles[stage - 1] for each in residuals])
    weights, stored = back.layer(f"reduction_{stage}")
    a, b = ((weights[name]["conv"], stored[name]) for name in ("conv_a", "conv_b"))
    inner, second = back.pull(Rules.relu_conv_norm, middle, g, *b)
    dx, first = back.pull(Rules.relu_conv_norm, x, inner, *a, 2)
    through_shortcut, third = back.pull(shortcut, x, g, weights)
    back.collect(first + second + third)
    return dx + through_shortcut
