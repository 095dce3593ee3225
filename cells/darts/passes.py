"""DARTS' passes: the ways back, from the residuals of forward passes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from cells.backward import Backward, Visited, filled
from cells.choice import add_at, at, choose
from cells.darts.forward import (
    BOTH,
    STEP,
    CellRules,
    Places,
    Residuals,
    merged,
    read_from,
    reduction_places,
    run,
    split,
    stage_layers,
)
from cells.darts.genotype import NONE, OPERATIONS, SEP_3, SKIP, TARGETS
from cells.darts.network import (
    INPUTS,
    NODES,
    PAIR,
    SEPARABLE,
    SIZES,
    STEM,
    factorized_reduce,
    operate,
    rounds_of,
)
from cells.passes import CellPasses
from cells.rules import Outputs, Weights
from ntkscore.grams import Images
from ntkscore.model import Activations, Logits


class Passes(CellPasses[Residuals]):
    """The passes of one genotype's network."""

    run = staticmethod(run)

    def back(self, back: Backward, residuals: Sequence[Residuals], cotangent: Logits) -> Images:
        """The gradient in the normalised images (`cells.passes.CellPasses`).

        A visitor's outputs are zeros where an operation has fewer convolutions than another.
        """
        every = [each.stages[-1] for each in residuals]
        x = jnp.concatenate([merged(nodes, len(nodes) - NODES) for nodes in every])
        # Cotangents of the outputs of the last cell of a stage, and of the one before it.
        last = back.through(CellRules.head, x, cotangent, back.params["head"])
        previous = jnp.zeros_like(last)
        for stage in reversed(range(3)):
            pull_cell, cells = stage_pullback(back, residuals, stage)
            places = len(residuals[0].stages[stage])
            cotangents = jnp.zeros((places, *split(last).shape[1:]), last.dtype)
            for k, of_output in ((0, last), (1, previous)):
                cotangents = _add_nodes(cotangents, places - NODES - k * STEP, of_output)
            cotangents = back.loop(pull_cell, cotangents, cells)
            entering = merged(cotangents, 0)
            if stage:
                before, nearest = outputs_before(residuals, stage)
                halving = back.layer(f"stage_{stage}", "halving")
                dx = back.through(factorized_reduce, nearest, cotangents[NODES], *halving)
                inputs = pull_reduction(back, residuals, stage, entering)
                first, second = (
                    back.layer(f"reduction_{stage}", f"input_{k}") for k in range(INPUTS)
                )
                previous = back.through(CellRules.preprocess, before, inputs[0], *first)
                last = back.through(CellRules.preprocess, nearest, inputs[1], *second) + dx
        images = jnp.concatenate([each.images for each in residuals])
        g = entering[..., : STEM * back.rules.shape.channels]
        return back.through(CellRules.conv_norm, images, g, *back.layer("stem"))

    def pull_blocks(
        self, back: Backward, residuals: Residuals, signs: Callable[[Array], Array]
    ) -> list[tuple[Float[Array, "_ _ _ _ _"], Float[Array, "_ _ _ _ _"]]]:
        """Pull random signs at the output of every cell to the output of the cell before it."""
        pairs: list[tuple[Array, Array]] = []
        for stage, nodes in enumerate(residuals.stages):
            if stage:
                g = signs(merged(nodes, 0))
                inputs = pull_reduction(back, [residuals], stage, g)
                layer = back.layer(f"reduction_{stage}", "input_1")
                last = outputs_before([residuals], stage)[1]
                dx = back.through(CellRules.preprocess, last, inputs[1], *layer)
                pairs.append((dx[None], g[None]))
            pull_cell, cells = stage_pullback(back, [residuals], stage)
            count = (len(nodes) - NODES) // STEP
            g = signs(jnp.stack([merged(nodes, NODES + INPUTS + STEP * t) for t in range(count)]))

            def to_input(given: Any, nodes: Array = nodes, pull: Any = pull_cell) -> Array:
                t, g, cell = given
                cotangents = _add_nodes(jnp.zeros_like(nodes), STEP * (t + 1), g)
                return merged(pull(back, cotangents, cell), STEP * t)

            pairs.append((lax.map(to_input, (np.arange(count, dtype=np.int32), g, cells)), g))
        return pairs

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


def outputs_before(residuals: Sequence[Residuals], stage: int) -> tuple[Images, Images]:
    """Outputs of the last two cells before a stage, the nearer last."""
    every = [each.stages[stage - 1] for each in residuals]
    previous, last = (
        jnp.concatenate([merged(nodes, len(nodes) - NODES - k * STEP) for nodes in every])
        for k in (1, 0)
    )
    return previous, last


def _add_nodes(cotangents: Places, first: Any, g: Outputs) -> Places:
    """Add the cotangent of four nodes side by side to theirs."""
    now = lax.dynamic_slice_in_dim(cotangents, first, NODES)
    return lax.dynamic_update_slice_in_dim(cotangents, now + split(g), first, 0)


def pull_operation(
    back: Backward, index: int, stride: int
) -> Callable[..., tuple[Images, Visited]]:
    """The pullback of an edge's operation, of (x, middle, g, weights, statistics)."""

    def pull_edge(x: Images, middle: Outputs, g: Outputs, weights: Weights, stored: Any) -> Any:
        if index == NONE:
            return jnp.zeros_like(x), []
        if index not in SEPARABLE:
            return back.pull(partial(operate, index, stride), x, g, weights, stored)
        visited: Visited = []
        rounds = zip(PAIR, rounds_of(index, stride), (x, middle), strict=True)
        for name, each, z in reversed([*rounds]):
            g, more = back.pull(each.forward, z, g, weights[OPERATIONS[index]][name], stored[name])
            visited += more
        return g, visited

    return pull_edge


def stage_pullback(
    back: Backward, residuals: Sequence[Residuals], stage: int
) -> tuple[Callable[[Backward, Places, Any], Places], Any]:
    """The pullback of one normal cell of a stage, and the cells.

    It adds the cotangents of a cell's inputs to those of the cells before it.
    """
    every = [each.stages[stage] for each in residuals]
    pulls = [pull_operation(back, index, 1) for index in range(len(OPERATIONS))]
    branches = filled(pulls, SEP_3)

    def of_input(k: int, t: Array, layer: Any, cotangents: Array) -> tuple[Array, Visited]:
        x = jnp.concatenate([merged(nodes, read_from(t, k)) for nodes in every])
        g = at(cotangents, NODES + STEP * t + k)
        dx, visited = back.pull(CellRules.preprocess, x, g, *layer)
        return _add_nodes(cotangents, read_from(t, k), dx), visited

    def pull_cell(back: Backward, cotangents: Places, given: Any) -> Places:
        (t, of_inputs, of_edges), middles = given
        first = NODES + STEP * t

        def pull_edge(back: Backward, cotangents: Places, edge: Any) -> Places:
            (index, source), target, middles, *layer = edge
            x = jnp.concatenate([at(nodes, first + source) for nodes in every])
            g, middle = at(cotangents, first + target), jnp.concatenate(middles)
            dx, visited = choose(index, branches, x, middle, g, *layer)
            back.collect(visited)
            return add_at(cotangents, first + source, dx)

        edges = back.rules.code["normal"], np.array(TARGETS, np.int32), middles, *of_edges
        cotangents = back.loop(pull_edge, cotangents, edges)
        for k, layer in of_inputs.items():
            compute = partial(of_input, k, t, layer)
            if stage and k == 0:  # The first cell's comes from elsewhere.
                none, some = filled([lambda cotangents: (cotangents, []), compute], 1)
                cotangents, visited = lax.cond(t == 0, none, some, cotangents)
            else:
                cotangents, visited = compute(cotangents)
            back.collect(visited)
        return cotangents

    middles = [each.middles[stage] for each in residuals]
    return pull_cell, (stage_layers(*back.layer(f"stage_{stage}")), middles)


def pull_reduction(
    back: Backward, residuals: Sequence[Residuals], stage: int, g: Outputs
) -> Places:
    """The cotangents of the two inputs of the reduction cell before a stage, from its output's."""
    inputs = [each.inputs[stage - 1] for each in residuals]
    nodes = [each.stages[stage][:NODES] for each in residuals]

    def branch(place: int) -> Any:
        stride, index = divmod(place, len(OPERATIONS))
        pull = pull_operation(back, index, stride + 1)
        sets, beyond = (inputs, 0) if stride else (nodes, INPUTS)

        def add(
            both: tuple[Array, Array], source: Array, middle: Array, g: Array, *layer: Any
        ) -> Any:
            x = jnp.concatenate([at(each, source - beyond) for each in sets])
            dx, visited = pull(x, middle, g, *layer)
            of_inputs, of_nodes = both
            if stride:
                return (add_at(of_inputs, source, dx), of_nodes), visited
            return (of_inputs, add_at(of_nodes, source - INPUTS, dx)), visited

        return add

    branches = filled([branch(place) for place in range(BOTH)], SEP_3)

    def pull_edge(back: Backward, both: tuple[Array, Array], given: Any) -> tuple[Array, Array]:
        place, source, target, middles, *layer = given
        g, middle = at(both[1], target - INPUTS), jnp.concatenate(middles)
        both, visited = choose(place, branches, both, source, middle, g, *layer)
        back.collect(visited)
        return both

    places, sources = reduction_places(back.rules.code)
    middles = [each.reduction_middles[stage - 1] for each in residuals]
    layers = back.layer(f"reduction_{stage}", "edges")
    edges = places, sources, np.array(TARGETS, np.int32), middles, *layers
    start = jnp.zeros((INPUTS, len(g), *inputs[0].shape[2:]), g.dtype), split(g)
    return back.loop(pull_edge, start, edges)[0]


def _read_by(edges: Int[Array, "8 2"], reads: Int[Array, " q"]) -> Int[Array, "6"]:
    """How many ReLUs of a cell's edges take each of its inputs and nodes."""
    counts = jnp.zeros(STEP, jnp.int32)
    return counts.at[edges[:, 1]].add(reads[edges[:, 0]])
