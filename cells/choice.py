"""A cell's graph run by an architecture that is data: choice of operations and of nodes."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ntkscore.grams import Images
from ntkscore.space import SIDE_BY_SIDE

Place = Int[Array, ""] | np.integer
"""A number of an architecture; of numpy, where the architecture is known when it is traced."""


def choose(digit: Place, branches: Sequence[Callable[..., PyTree]], *operands: PyTree) -> PyTree:
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

        select = partial(jax.tree.map, partial(jnp.where, selects))
        run = lambda chosen, *operands, b=branch, s=select: s(b(*operands), chosen)  # noqa: E731
        chosen = lax.cond(needed, run, lambda chosen, *_: chosen, chosen, *operands)
    return chosen


Nodes = Float[Array, "k m h w c"] | list[Images]
"""Nodes of a cell; in a list, which JAX differentiates faster, their places are known."""


def at(nodes: Float[Array, "k m h w c"], place: Place) -> Images:
    """One node, by its place; `nodes[place]` would also handle places out of range."""
    return lax.dynamic_index_in_dim(nodes, place, keepdims=False)


def add_at(nodes: Nodes, place: Place, y: Images) -> PyTree:
    """The nodes with y added to one of them."""
    if isinstance(nodes, list):
        return [*nodes[:place], nodes[place] + y, *nodes[place + 1 :]]
    return lax.dynamic_update_index_in_dim(nodes, at(nodes, place) + y, place, 0)


def reading(operate: Callable[..., PyTree], others: Array | None = None) -> Callable[..., PyTree]:
    """An operation on images as a branch, which reads its node by itself, so that none is copied.

    Args:
        operate: a function of the images and a layer.
        others: nodes to read instead of the cell's own.
    """

    def branch(nodes: Array, place: Place | None, *layer: PyTree) -> PyTree:
        nodes = nodes if others is None else others
        return operate(nodes if place is None else at(nodes, place), *layer)

    return branch


def run_edges(
    branches: Sequence[Callable[..., PyTree]], nodes: Nodes, first: Place | int, edges: PyTree
) -> tuple[PyTree, PyTree]:
    """Nodes with the outputs of a cell's edges added, and what else the operations return.

    Args:
        branches: the operations, functions of (nodes, place, *layer), as `reading` makes them.
        nodes: those of the cell, or of several.
        first: the place of the cell's first node.
        edges: operations, sources, targets and layers, arrays with an entry for each edge, or lists
            of trees. Over known operations, of NumPy, and over a list of nodes the loop is
            unrolled, else it is a scan.
    """

    def edge(nodes: Nodes, given: PyTree) -> tuple[PyTree, PyTree]:
        digit, source, target, *layer = given
        place = first + source
        read = (nodes[place], None) if isinstance(nodes, list) else (nodes, place)
        y, *outputs = choose(digit, branches, *read, *layer)
        return add_at(nodes, first + target, y), tuple(outputs)

    stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)  # noqa: E731
    if not isinstance(edges[0], np.ndarray) and not isinstance(nodes, list):
        arrays = [stack(each) if isinstance(each, list) else each for each in edges]
        return lax.scan(edge, nodes, arrays)
    outputs = []
    for e in range(len(edges[0])):
        of_edge = [
            each[e] if isinstance(each, list) else jax.tree.map(lambda leaf, e=e: leaf[e], each)
            for each in edges
        ]
        nodes, output = edge(nodes, of_edge)
        outputs.append(output)
    return nodes, stack(outputs)


def readers(
    operations: Array | np.ndarray,
    sources: Array | np.ndarray,
    rectifying: Collection[int],
    nodes: int,
) -> Int[Array, " k"]:
    """How many of a cell's edges read each of its nodes through a ReLU.

    Args:
        operations, sources: of the edges.
        rectifying: the operations that begin with a ReLU.
        nodes: their number.

    Example:
        >>> readers(jnp.array([1, 3, 3]), jnp.array([0, 0, 1]), {3}, 2).tolist()
        [1, 1]
    """
    rectifies = jnp.isin(operations, jnp.array([*rectifying], operations.dtype))
    return jnp.zeros(nodes, jnp.int32).at[sources].add(rectifies.astype(jnp.int32))
