"""The choice between operations, where the architecture that decides it is data."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PyTree

SIDE_BY_SIDE = "side by side"
"""Name of the axis along which networks are computed side by side."""


def choose(
    digit: Int[Array, ""], branches: Sequence[Callable[..., PyTree]], *operands: Any
) -> PyTree:
    """What one of several branches puts out.

    For a single network this is `lax.switch`, which runs one branch. Batched, a switch runs all of
    them for everybody; where networks are computed side by side (`jax.vmap` with the axis name
    `SIDE_BY_SIDE`), a branch runs if one of them has its digit, and is left out if none has.

    Args:
        digit: the branch's place.
        branches: functions of the operands, of outputs of equal shapes; the first is one that
            costs nothing, and runs always.
        operands: what they are given.

    Example:
        >>> double, square = lambda x: 2 * x, lambda x: x**2
        >>> pick = lambda digit: choose(digit, [double, square], 3)
        >>> [int(pick(jnp.array(digit))) for digit in (0, 1)]
        [6, 9]
        >>> jax.vmap(pick, axis_name=SIDE_BY_SIDE)(jnp.array([0, 1, 0])).tolist()
        [6, 9, 6]
    """
    try:
        lax.axis_size(SIDE_BY_SIDE)
    except NameError:  # this network is alone
        return lax.switch(digit, branches, *operands)
    chosen = branches[0](*operands)
    for place, branch in enumerate(branches[1:], 1):
        own = digit == place
        # The largest along the axis is one value for all networks, so that this stays a condition.
        anybody = lax.pmax(own.astype(jnp.int32), SIDE_BY_SIDE) > 0

        def put(chosen: PyTree, *operands: Any, own: Array = own, branch: Any = branch) -> PyTree:
            return jax.tree.map(partial(jnp.where, own), branch(*operands), chosen)

        chosen = lax.cond(anybody, put, lambda chosen, *_: chosen, chosen, *operands)
    return chosen
