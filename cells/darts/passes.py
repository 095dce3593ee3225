"""DARTS' passes: the ways back, from the residuals of forward passes."""

from collections.abc import Callable, Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int, PyTree

from cells.backward import Backward, Pull, Visited, filled, pull_edges
from cells.choice import Place, at, readers
from cells.darts.counts import SEPARABLE, SIZES, STEM
from cells.darts.forward import (
    EDGE_TARGETS,
    STEP,
    Digits,
    Residuals,
    cell_outputs,
    input_of,
    merged,
    reduction_code,
    run,
    split,
    stage_layers,
)
from cells.darts.genotype import NONE, OPERATIONS, SEP_3, SKIP
from cells.darts.network import (
    INPUTS,
    NODES,
    PAIR,
    factorized_reduce,
    operate,
    rounds_of,
    run_round,
)
from cells.passes import CellPasses, Pairs
from cells.rules import Outputs, Rules, Weights
from ntkscore.grams import Images
from ntkscore.model import Activations, Logits


class Passes(CellPasses[Residuals]):
    """The passes of one genotype's network."""

    run = staticmethod(run)

    def back(self, back: Backward, residuals: Sequence[Residuals], cotangent: Logits) -> Images:
        """The gradient in the normalised images."""
        _, x = outputs_of(residuals, 2)
        last = back.through(Rules.dense, x, cotangent, back.params["head"])
        previous = jnp.zeros_like(last)
        for stage in reversed(range(3)):
            pull_cell, cells = cell_pullback(back, residuals, stage)
            carry = previous, last, jnp.zeros_like(split(last)[0])
            previous, last, first = back.loop(pull_cell, carry, cells)
            if stage:
                _, nearest = outputs_of(residuals, stage - 1)
                halving = back.layer(f"stage_{stage}", "halving")
                previous = back.through(factorized_reduce, nearest, first, *halving)
                previous, last = pull_reduction(back, residuals, stage, previous, last)
        images = jnp.concatenate([each.images for each in residuals])
        g = last[..., : len(back.params["stem"]["scale"])]
        return back.through(Rules.conv_norm, images, g, *back.layer("stem"))

    def pull_blocks(
        self, back: Backward, residuals: Residuals, signs: Callable[[Array], Array]
    ) -> Pairs:
        """Pull random signs at the output of every cell to the output of the cell before it."""
        pairs = []
        for stage, nodes in enumerate(residuals.stages):
            if stage:
                g = signs(merged(nodes, 0))
                unread = jnp.zeros_like(merged(residuals.stages[stage - 1], 0))
                _, dx = pull_reduction(back, [residuals], stage, unread, g)
                pairs.append((dx[None], g[None]))
            pull_cell, cells = cell_pullback(back, [residuals], stage)
            g = signs(jnp.stack(cell_outputs(nodes)[1:]))

            def to_input(given: PyTree, pull: PyTree = pull_cell) -> Array:
                g, cell = given
                carry = jnp.zeros_like(g), g, jnp.zeros_like(split(g)[0])
                return pull(back, carry, cell)[1]

            pairs.append((lax.map(to_input, (g, cells)), g))
        return pairs

    def pooled(
        self, rules: Rules, params: Weights, statistics: Weights, residuals: Residuals
    ) -> Outputs:
        """Outputs of the last cell."""
        return outputs_of([residuals], 2)[1]

    def activations(self, params: Weights, residuals: Residuals) -> Activations:
        """Inputs of all ReLUs, and outputs of the stem and of the cells."""
        operations, sources = self.rules.code["normal"].T
        in_cell = readers(operations, sources, SIZES, STEP)
        of_reduction, sources = reduction_code(self.rules.code)
        in_reduction = readers(of_reduction, sources, SIZES, STEP)[INPUTS:]
        strided = [len(OPERATIONS) + each for each in (*SIZES, SKIP)]
        of_inputs = readers(of_reduction, sources, strided, INPUTS)
        rectified, features = [], []
        for stage, nodes in enumerate(residuals.stages):
            outputs = cell_outputs(nodes)
            if stage:
                rectified.append((of_inputs, residuals.inputs[stage - 1]))
                middles = residuals.reduction_middles[stage - 1]
                rectified.append((has_rounds(of_reduction), middles))
            else:
                stem = outputs.pop(0)[..., : STEM * nodes.shape[-1]]
                features.append(stem[None])
            features.append(jnp.stack(outputs))
            cells, middles = len(nodes) // STEP, residuals.middles[stage]
            entering = in_reduction if stage else jnp.zeros_like(in_reduction)
            of_edges = jnp.concatenate([entering, jnp.tile(in_cell, cells)])
            rectified.append((of_edges + preprocessed(stage, len(nodes)), nodes))
            of_middles = jnp.tile(has_rounds(operations), cells)
            rectified.append((of_middles, middles.reshape(-1, *middles.shape[2:])))
        return Activations(rectified, features)


def preprocessed(stage: int, places: int) -> Int[np.ndarray, " k"]:
    """How many of the convolutions before cells read each node of a stage through a ReLU."""
    counts = np.zeros(places, np.int32)
    reads = [STEP * max(t - 1 + k, 0) for t in range(places // STEP) for k in range(INPUTS)]
    if stage:  # The first cell's first input comes from elsewhere.
        del reads[0]
    if stage < 2:  # A reduction cell and the halving behind it.
        reads += [places - NODES - STEP, places - NODES, places - NODES]
    for place in reads:
        counts[place : place + NODES] += 1
    if stage == 0:  # The stem has fewer channels.
        counts[STEM:NODES] = 0
    return counts


def has_rounds(operations: Digits) -> Digits:
    """One for each operation of two rounds, and zero for the others."""
    separable = jnp.array([*SEPARABLE], operations.dtype)
    return jnp.isin(operations % len(OPERATIONS), separable).astype(jnp.int32)


def outputs_of(residuals: Sequence[Residuals], stage: int) -> list[Outputs]:
    """Outputs of the last two cells of a stage at all images, the nearer last."""
    pairs = [cell_outputs(each.stages[stage], 2) for each in residuals]
    return [jnp.concatenate(each) for each in zip(*pairs, strict=True)]


def pullbacks(
    back: Backward, read: Callable[[Place], Images], stride: int, pad: Callable[[Images], PyTree]
) -> list[Pull]:
    """The pullbacks of the operations of a stride, of (place, g, middles, weights, statistics).

    Args:
        back: the backward pass.
        read: the node that an operation reads, at all images, by its place.
        stride: in pixels.
        pad: makes of a cotangent of one node what the cotangents of all are.
    """

    def of_operation(index: int) -> Pull:
        def pull(
            place: Array, g: Outputs, middles: list[Array], weights: Weights, stored: Weights
        ) -> tuple[PyTree, Visited]:
            x = read(place)
            if index == NONE:
                return pad(jnp.zeros_like(x)), []
            if index not in SEPARABLE:
                operation = partial(operate, index, stride)
                dx, visited = back.pull(operation, x, g, weights, stored)
                return pad(dx), visited
            visited: Visited = []
            inputs = x, jnp.concatenate(middles)
            rounds = zip(PAIR, inputs, rounds_of(index, stride), strict=True)
            for name, z, steps in reversed([*rounds]):
                layer = weights[OPERATIONS[index]][name], stored[name]
                g, more = back.pull(run_round, z, g, *layer, *steps)
                visited += more
            return pad(g), visited

        return pull

    return [of_operation(index) for index in range(len(OPERATIONS))]


def cell_pullback(
    back: Backward, residuals: Sequence[Residuals], stage: int
) -> tuple[Callable[[Backward, PyTree, PyTree], PyTree], PyTree]:
    """The pullback of one normal cell of a stage, and the cells.

    From the cotangents of the cell's output, last, and of the one's before it, it makes those of
    the outputs of the two cells before it, the nearer last, and of its first input.
    """
    every = [each.stages[stage] for each in residuals]
    read = lambda place: jnp.concatenate([at(nodes, place) for nodes in every])  # noqa: E731
    branches = filled(pullbacks(back, read, 1, lambda dx: dx), SEP_3)

    def pull_cell(back: Backward, carry: PyTree, given: PyTree) -> PyTree:
        (t, of_inputs, of_edges), middles = given
        previous, last, _ = carry
        cotangents = jnp.concatenate([jnp.zeros_like(split(last)[:INPUTS]), split(last)])
        edges = *back.rules.code["normal"].T, EDGE_TARGETS, middles, *of_edges
        cotangents = pull_edges(back, branches, cotangents, NODES + STEP * t, edges)

        def of_input(k: int, g: Array) -> tuple[Array, Visited]:
            x = jnp.concatenate([input_of(nodes, t, k) for nodes in every])
            return back.pull(Rules.relu_conv_norm, x, g, *of_inputs[k])

        of_first = jnp.zeros_like(last)
        if 0 in of_inputs:
            compute = partial(of_input, 0)
            if stage:  # The first cell's comes from elsewhere.
                none, compute = filled([lambda _: (of_first, []), compute], 1)
                of_first, visited = lax.cond(t == 0, none, compute, cotangents[0])
            else:
                of_first, visited = compute(cotangents[0])
            back.collect(visited)
        if not stage:  # The stem is both inputs of the first cell.
            previous = previous + jnp.where(t == 0, of_first, 0)
        of_second, visited = of_input(1, cotangents[1])
        back.collect(visited)
        return of_first, previous + of_second, cotangents[0]

    middles = [each.middles[stage] for each in residuals]
    return pull_cell, (stage_layers(*back.layer(f"stage_{stage}")), middles)


def pull_reduction(
    back: Backward, residuals: Sequence[Residuals], stage: int, previous: Array, last: Array
) -> tuple[Array, Array]:
    """The cotangents of the two outputs before the reduction cell that begins a stage.

    Without this cell, that of the nearer one is `previous`; that of the cell's output is `last`.
    """
    small = jnp.concatenate([jnp.zeros_like(split(last)[:INPUTS]), split(last)])
    big = jnp.zeros((INPUTS, len(last), *residuals[0].inputs[stage - 1].shape[2:]), last.dtype)

    def input_at(place: Place) -> Images:
        return jnp.concatenate([at(each.inputs[stage - 1], place) for each in residuals])

    def node_at(place: Place) -> Images:
        return jnp.concatenate([at(each.stages[stage], place - INPUTS) for each in residuals])

    own = pullbacks(back, node_at, 1, lambda dx: (jnp.zeros_like(big[0]), dx))
    strided = pullbacks(back, input_at, 2, lambda dx: (dx, jnp.zeros_like(small[0])))
    branches = filled([*own, *strided], SEP_3)
    middles = [each.reduction_middles[stage - 1] for each in residuals]
    name = f"reduction_{stage}"
    code, layers = reduction_code(back.rules.code), back.layer(name, "edges")
    edges = *code, EDGE_TARGETS, middles, *layers
    inputs, _ = pull_edges(back, branches, (big, small), 0, edges)
    pulled = [
        back.through(Rules.relu_conv_norm, x, g, *back.layer(name, f"input_{k}"))
        for k, (x, g) in enumerate(zip(outputs_of(residuals, stage - 1), inputs, strict=True))
    ]
    return pulled[0], pulled[1] + previous
