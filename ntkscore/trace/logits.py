"""A network's logits, with gradients that CPUs compute fast in the loop of an attack."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jaxtyping import Array, PyTree

from ntkscore.model import Logits, Model, Points
from ntkscore.trace.layouts import FastConvolution
from ntkscore.trace.program import Program, Value


def fast_gradients(program: Program) -> dict[int, Callable[..., list[Array]]]:
    """Convolutions of the points whose gradients CPUs compute fast, by place."""
    return {
        place: each.function.with_gradient(each.points[0].shape)
        for place, each in program.point_equations.items()
        if isinstance(each.function, FastConvolution) and each.points == [each.inputs[0]]
    }


def logits_of(model: Model, point: Any) -> Callable[[PyTree, Points], Logits]:
    """A network's `apply`, with convolutions that CPUs compute fast where an attack is a loop.

    Args:
        model: the network.
        point: of the shape and dtype of one point.
    """
    if model.passes is not None or model.coupled:
        return model.apply
    program = Program(model.apply, model.params, point)
    fast, last = fast_gradients(program), program.logits
    if not fast or not isinstance(last, Value):
        return model.apply

    def logits(params: PyTree, points: Points) -> Logits:
        derived = program.derive(jax.tree.leaves(params))
        run = partial(program.run, derived, instead=fast)
        return jax.vmap(lambda point: run(point)[last])(points)

    return logits
