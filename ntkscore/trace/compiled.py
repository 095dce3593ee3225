"""Compiled passes of networks, found again by later calls that compute the same."""

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from ntkscore.memory import usable_memory
from ntkscore.model import Logits, Model, Passes, Points
from ntkscore.trace.blocks import BlockPasses
from ntkscore.trace.parameters import beside_params
from ntkscore.trace.passes import TracedPasses, passes_of

DEFAULT_MEMORY = 4 * 2**30
"""Bytes, where a device does not say how many it has."""
LEAST_MEMORY = 2**20
"""Bytes that are held at once where a device has hardly any left."""
SHOWN = 3
"""Unused leaves that a warning names."""
log = logging.getLogger("ntkscore")


@lru_cache(maxsize=16)
def _block_passes(
    apply: Callable[..., Logits], tree: Any, leaves: Any, point: Any, memory: int
) -> BlockPasses:
    params = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])
    traced = TracedPasses(Model(apply, params), jax.ShapeDtypeStruct(*point))
    if unused := [jax.tree_util.keystr(path) for path in traced.unused]:
        more = f" and {len(unused) - SHOWN} more leaves" if len(unused) > SHOWN else ""
        names = ", ".join(unused[:SHOWN])
        log.warning("the logits do not depend on params%s%s, which add nothing", names, more)
    if others := beside_params(params):
        log.warning(
            "%s count as weights beside 'params'; close over what is none, or call it batch_stats",
            ", ".join(map(repr, others)),
        )
    return BlockPasses(traced, memory)


def forget_passes() -> None:
    """Let go of the passes of networks, and so of their compiled programs."""
    _block_passes.cache_clear()


def have_values(*trees: PyTree) -> bool:
    """Tell whether all arrays have values, as they do outside of functions that are compiled."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


def passes_in_blocks(model: Model, points: Points, memory: float | None = None) -> Passes:
    """A network's passes, by blocks of points where weights and points have values.

    Compiled once for a model's function and the shapes.

    Args:
        model: the network.
        points: of the shape and dtype of those that it will be given.
        memory: bytes that may be held at once; at most half of the free ones if left out.

    Raises:
        NotAlone: if the network does not take a batch of one point.
    """
    if model.coupled or model.passes is not None or not have_values(model.params, points):
        return passes_of(model, points)
    leaves, tree = jax.tree.flatten(model.params)
    free = usable_memory(jax.local_devices()[0]) or DEFAULT_MEMORY
    # A power of two, so that a little more or less in use compiles nothing anew.
    half = 2 ** int(np.log2(max(free // 2, LEAST_MEMORY)))
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    point = (points.shape[1:], points.dtype)
    return _block_passes(model.apply, tree, shapes, point, half if memory is None else int(memory))
