"""Selection of operations and of nodes by an architecture that is data."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ntkscore.grams import Images
from ntkscore.space import SIDE_BY_SIDE

Place = Int[Array, ""] | np.integer
"""A number of an architecture; of numpy, where the architecture is known when it is traced."""


def choose(digit: Place, branches: Sequence[Callable[..., PyTree]], *operands: Any) -> PyTree:
    """Return the output of one of several branches.

    For a single network this is `lax.switch`, which runs one branch. A batched switch runs every
    branch for every network. Where networks are computed side by side (`jax.vmap` with the axis
    name `SIDE_BY_SIDE`), only the branches run whose digit at least one of them has.

    Args:
        digit: the branch's index.
        branches: functions of the operands, with outputs of equal shapes; the first always runs,
            and should cost nothing.
        operands: arguments of the branches.

    Example:
        >>> double, square = lambda x: 2 * x, lambda x: x**2
        >>> pick = lambda digit: choose(digit, [double, square], 3)
        >>> [int(pick(jnp.array(digit))) for digit in (0, 1)]
        [6, 9]
        >>> jax.vmap(pick, axis_name=SIDE_BY_SIDE)(jnp.array([0, 1, 0])).tolist()
        [6, 9, 6]
    """
    if isinstance(digit, np.integer):  # this network is known
        return branches[int(digit)](*operands)
    try:
        lax.axis_size(SIDE_BY_SIDE)
    except NameError:  # this network is alone
        return lax.switch(digit, branches, *operands)
    chosen = branches[0](*operands)
    for place, branch in enumerate(branches[1:], 1):
        selects = digit == place
        # The maximum along the axis is one value for all networks, so `cond` stays a condition.
        needed = lax.pmax(selects.astype(jnp.int32), SIDE_BY_SIDE) > 0

        def run(
            chosen: PyTree, *operands: Any, selects: Array = selects, branch: Any = branch
        ) -> PyTree:
            return jax.tree.map(partial(jnp.where, selects), branch(*operands), chosen)

        chosen = lax.cond(needed, run, lambda chosen, *_: chosen, chosen, *operands)
    return chosen


def scan_edges(
    step: Callable[[Any, Any], tuple[Any, PyTree]], carry: Any, given: Any
) -> tuple[Any, PyTree]:
    """`lax.scan` over a cell's edges, unrolled over known ones, and over a list of nodes.

    Args:
        step, carry: as for `lax.scan`.
        given: as there, or lists with an entry for each edge in place of arrays; the first, of
            NumPy, says that the edges are known.
    """
    entries = lambda pick: jax.tree.map(  # noqa: E731
        pick, given, is_leaf=lambda each: isinstance(each, list)
    )
    if not isinstance(given[0], np.ndarray) and not isinstance(carry, list):
        return lax.scan(step, carry, entries(lambda each: _stack(each)))
    outputs = []
    for e in range(len(given[0])):
        carry, output = step(carry, entries(lambda each, e=e: each[e]))
        outputs.append(output)
    return carry, _stack(outputs)


def _stack(trees: Any) -> Any:
    """A list of trees as one tree of arrays; arrays as they are."""
    if not isinstance(trees, list):
        return trees
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


Nodes = Float[Array, "k m h w c"] | list[Images]
"""Nodes of a cell; in a list, which JAX differentiates faster, their places are known."""


def at(nodes: Float[Array, "k m h w c"], place: Place) -> Images:
    """One node, by its place; `nodes[place]` would also handle places out of range."""
    return lax.dynamic_index_in_dim(nodes, place, keepdims=False)


def add_at(nodes: Nodes, place: Place, y: Images) -> Any:
    """The nodes with y added to one of them."""
    if isinstance(nodes, list):
        return [*nodes[:place], nodes[place] + y, *nodes[place + 1 :]]
    return lax.dynamic_update_index_in_dim(nodes, at(nodes, place) + y, place, 0)
