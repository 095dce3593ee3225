"""A network's logits, with gradients that CPUs compute fast in the loop of an attack."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
from jaxtyping import PyTree

from ntkscore.model import Logits, Model, Points
from ntkscore.trace.compiled import Form, form_of, of_form
from ntkscore.trace.layouts import fast_gradients
from ntkscore.trace.program import Program, Value


def logits_of(model: Model, point: Any) -> Callable[[PyTree, Points], Logits]:
    """A network's `apply`, with convolutions that CPUs compute fast where an attack is a loop.

    The same object for what computes the same, so that its programs are found again.

    Args:
        model: the network.
        point: of the shape and dtype of one point.
    """
    if model.passes is not None or model.coupled:
        return model.apply
    return _logits_of(model.apply, form_of(model.params), point.shape, point.dtype)


@lru_cache(maxsize=16)
def _logits_of(
    apply: Callable[..., Logits], form: Form, shape: tuple[int, ...], dtype: Any
) -> Callable[[PyTree, Points], Logits]:
    program = Program(apply, of_form(form), jax.ShapeDtypeStruct(shape, dtype))
    fast, last = fast_gradients(program), program.logits
    if not fast or not isinstance(last, Value):
        return apply

    def logits(params: PyTree, points: Points) -> Logits:
        derived = program.derive(jax.tree.leaves(params))
        run = partial(program.run, derived, instead=fast)
        return jax.vmap(lambda point: run(point)[last])(points)

    return logits
