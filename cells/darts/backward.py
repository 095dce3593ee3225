"""DARTS' backward passes, from the residuals of forward passes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

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
    split,
    stage_layers,
)
from cells.darts.genotype import OPERATIONS, SEP_3, TARGETS
from cells.darts.network import (
    INPUTS,
    NODES,
    STEM,
    back_factorized_reduce,
    back_operation,
)
from cells.rules import Outputs, Visited, Weights, back_conv_norm, back_relu_conv_norm
from cells.visitors import Visitor
from ntkscore.grams import PRECISION, Images

Pulled = tuple[Any, PyTree]
"""Cotangents, and the visitor's total."""


def back(
    rules: CellRules,
    params: Weights,
    stored: Any,
    residuals: Sequence[Residuals],
    cotangent: Float[Array, "m o"],
    visitor: Visitor,
    total: PyTree = (),
) -> tuple[Images, PyTree, Visited]:
    """The gradient in the normalised images, and a visitor's outputs at every layer.

    Args:
        rules, params, stored: as in the forward passes.
        residuals: of forward passes over sets of images.
        cotangent: of the logits of all of them, set after set.
        visitor: visits each layer's gradients.
        total: the visitor's sum over the layers, at the start.

    Returns:
        The gradient; the visitor's total; and its other outputs, layers along the first axis of
        each. They are zeros where an operation has fewer convolutions than another.
    """
    everything: Visited = []

    def collect(visited: Visited) -> None:
        nonlocal total
        total, outputs = visitor.collect(total, visited)
        everything.extend(jax.tree.map(lambda leaf: leaf[None], outputs))

    head = params["head"]
    kernel, gain = head["kernel"], rules.gain(head["kernel"])
    features = jnp.concatenate([each.features for each in residuals])
    height, width = residuals[0].stages[-1].shape[2:4]
    g = jnp.matmul(cotangent, gain * kernel.T, precision=PRECISION)[:, None, None]
    last = jnp.broadcast_to(g / (height * width), (len(g), height, width, g.shape[-1]))
    collect(visitor.dense(features, cotangent, kernel, gain))
    # Cotangents of the outputs of the last cell of a stage, and of the one before it.
    previous = jnp.zeros_like(last)
    for stage in reversed(range(3)):
        name, cell = f"stage_{stage}", f"reduction_{stage}"
        pull, cells = stage_pullback(rules, params, stored, residuals, stage, visitor)
        places = len(residuals[0].stages[stage])
        cotangents = jnp.zeros((places, *split(last).shape[1:]), last.dtype)
        for k, of_output in ((0, last), (1, previous)):
            cotangents = _add_nodes(cotangents, places - NODES - k * STEP, of_output)
        (cotangents, total), outputs = lax.scan(pull, (cotangents, total), cells, reverse=True)
        # Of a stage's cells, and of the edges of each or one input.
        everything.extend(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), outputs))
        entering = merged(cotangents, 0)
        if not stage:
            break
        outputs_before = residuals_before(residuals, stage)
        layer = params[name]["halving"], stored[name]["halving"], visitor
        dx_downsampled, visited = back_factorized_reduce(
            rules, outputs_before[1], cotangents[NODES], *layer
        )
        collect(visited)
        (inputs, total), outputs = pull_reduction(
            rules, params, stored, residuals, stage, visitor, split(entering), total
        )
        everything.extend(outputs)
        cotangent_before = []
        for k, x in enumerate(outputs_before):
            layer = params[cell][f"input_{k}"], stored[cell][f"input_{k}"], visitor
            dx, visited = back_relu_conv_norm(rules, x, inputs[k], *layer)
            collect(visited)
            cotangent_before.append(dx)
        previous, last = cotangent_before[0], cotangent_before[1] + dx_downsampled
    images = jnp.concatenate([each.images for each in residuals])
    g = entering[..., : STEM * rules.shape.channels]
    g, visited = back_conv_norm(rules, images, g, params["stem"], stored["stem"], visitor)
    collect(visited)
    return g, total, everything


def residuals_before(residuals: Sequence[Residuals], stage: int) -> tuple[Images, Images]:
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


def zeros_of(function: Callable[..., PyTree], *arguments: Any) -> PyTree:
    """Zeros of the shapes of a function's outputs; nothing is computed."""
    return jax.tree.map(jnp.zeros_like, jax.eval_shape(function, *arguments))


def filled(rules: CellRules, index: int, stride: int, visitor: Visitor) -> Callable[..., Any]:
    """`back_operation` with zeros for the layers that it has fewer than a separable convolution."""
    pull, most = (back_operation(rules, k, stride, visitor) for k in (index, SEP_3))

    def pull_filled(*given: Any) -> Any:
        dx, visited = pull(*given)
        _, zeros = zeros_of(most, *given)
        return dx, visited + zeros[len(visited) :]

    return pull_filled


def stage_pullback(
    rules: CellRules,
    params: Weights,
    stored: Any,
    residuals: Sequence[Residuals],
    stage: int,
    visitor: Visitor,
) -> tuple[Callable[[Pulled, Any], tuple[Pulled, Visited]], Any]:
    """The pullback of one normal cell of a stage, and what to scan it over, last cell first.

    Args:
        rules, params, stored, residuals, visitor: as for `back`.
        stage: its number.

    Returns:
        A function of ((cotangents of all places, total), cell) that adds the cotangents of the
        cell's inputs to those of the cells before it; and the cells.
    """
    nodes = [each.stages[stage] for each in residuals]
    skip = stage > 0
    branches = [filled(rules, index, 1, visitor) for index in range(len(OPERATIONS))]

    def of_edge(carry: Pulled, given: Any, first: Array) -> tuple[Pulled, Visited]:
        cotangents, total = carry
        (index, source), target, middles, *layer = given
        x = jnp.concatenate([at(each, first + source) for each in nodes])
        g, middle = at(cotangents, first + target), jnp.concatenate(middles)
        dx, visited = choose(index, branches, x, middle, g, *layer)
        total, visited = visitor.collect(total, visited)
        return (add_at(cotangents, first + source, dx), total), visited

    def of_input(k: int, t: Array, layer: Any, cotangents: Array) -> tuple[Array, Visited]:
        x = jnp.concatenate([merged(each, read_from(t, k)) for each in nodes])
        g = at(cotangents, NODES + STEP * t + k)
        dx, visited = back_relu_conv_norm(rules, x, g, *layer, visitor)
        return _add_nodes(cotangents, read_from(t, k), dx), visited

    def pull(carry: Pulled, given: Any) -> tuple[Pulled, Visited]:
        (t, of_inputs, of_edges), middles = given
        edges = rules.code["normal"], np.array(TARGETS, np.int32), middles, *of_edges
        step = lambda carry, edge: of_edge(carry, edge, NODES + STEP * t)  # noqa: E731
        carry, everything = lax.scan(step, carry, edges, reverse=True)
        for k, layer in of_inputs.items():
            cotangents, total = carry
            compute = partial(of_input, k, t, layer)
            if skip and k == 0:
                none = lambda c, compute=compute: (c, zeros_of(compute, c)[1])  # noqa: E731
                cotangents, visited = lax.cond(t == 0, none, compute, cotangents)
            else:
                cotangents, visited = compute(cotangents)
            total, visited = visitor.collect(total, visited)
            carry = cotangents, total
            everything = everything + jax.tree.map(lambda leaf: leaf[None], visited)
        return carry, everything

    name = f"stage_{stage}"
    middles = [each.middles[stage] for each in residuals]
    return pull, (stage_layers(params[name], stored[name]), middles)


def pull_reduction(
    rules: CellRules,
    params: Weights,
    stored: Any,
    residuals: Sequence[Residuals],
    stage: int,
    visitor: Visitor,
    cotangents: Places,
    total: PyTree = (),
) -> tuple[Pulled, Visited]:
    """The cotangents of a reduction cell's two inputs from those of its four nodes.

    Args:
        rules, params, stored, residuals, visitor, total: as for `back`.
        stage: the one that begins with the cell.
        cotangents: of the nodes, (4, m, h, w, c).
    """
    inputs = [each.inputs[stage - 1] for each in residuals]
    nodes = [each.stages[stage][:NODES] for each in residuals]

    def branch(place: int) -> Any:
        stride, index = divmod(place, len(OPERATIONS))
        pull = filled(rules, index, stride + 1, visitor)
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

    branches = [branch(place) for place in range(BOTH)]

    def edge(carry: Pulled, given: Any) -> tuple[Pulled, Visited]:
        both, total = carry
        place, source, target, middles, *layer = given
        g, middle = at(both[1], target - INPUTS), jnp.concatenate(middles)
        both, visited = choose(place, branches, both, source, middle, g, *layer)
        total, visited = visitor.collect(total, visited)
        return (both, total), visited

    cell = f"reduction_{stage}"
    places, sources = reduction_places(rules.code)
    middles = [each.reduction_middles[stage - 1] for each in residuals]
    layers = params[cell]["edges"], stored[cell]["edges"]
    edges = places, sources, np.array(TARGETS, np.int32), middles, *layers
    shape = (INPUTS, cotangents.shape[1], *inputs[0].shape[2:])
    start = (jnp.zeros(shape, cotangents.dtype), cotangents), total
    ((of_inputs, _), total), outputs = lax.scan(edge, start, edges, reverse=True)
    return (of_inputs, total), outputs


def pull_blocks(
    rules: CellRules, params: Weights, stored: Any, residuals: Residuals, key: PRNGKeyArray
) -> list[tuple[Float[Array, "_ _ _ _ _"], Float[Array, "_ _ _ _ _"]]]:
    """Pull random signs at the output of every cell to the output of the cell before it.

    Returns:
        Gradients there and the signs, cells of one shape together.
    """
    pairs: list[tuple[Array, Array]] = []
    visitor = Visitor()

    def signs(like: Array) -> Array:
        return jax.random.rademacher(jax.random.fold_in(key, len(pairs)), like.shape, like.dtype)

    for stage, nodes in enumerate(residuals.stages):
        if stage:
            cell = f"reduction_{stage}"
            g = signs(merged(nodes, 0))
            (inputs, _), _ = pull_reduction(
                rules, params, stored, [residuals], stage, visitor, split(g)
            )
            layer = params[cell]["input_1"], stored[cell]["input_1"], visitor
            last = residuals_before([residuals], stage)[1]
            dx, _ = back_relu_conv_norm(rules, last, inputs[1], *layer)
            pairs.append((dx[None], g[None]))
        pull, cells = stage_pullback(rules, params, stored, [residuals], stage, visitor)
        count = (len(nodes) - NODES) // STEP
        g = signs(jnp.stack([merged(nodes, NODES + INPUTS + STEP * t) for t in range(count)]))

        def to_input(given: Any, nodes: Array = nodes, pull: Any = pull) -> Array:
            t, g, cell = given
            cotangents = _add_nodes(jnp.zeros_like(nodes), STEP * (t + 1), g)
            (cotangents, _), _ = pull((cotangents, ()), cell)
            return merged(cotangents, STEP * t)

        pairs.append((lax.map(to_input, (np.arange(count, dtype=np.int32), g, cells)), g))
    return pairs
