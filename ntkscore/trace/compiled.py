"""Compiled passes of networks and of their pieces, and their logits for the loop of an attack.

Whatever computes the same finds them again.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from ntkscore.grams import GramByKind
from ntkscore.memory import usable_memory
from ntkscore.model import Activations, Logits, Model, Passes, Points, Visit, have_values
from ntkscore.trace.activations import fitting
from ntkscore.trace.blocks import BlockPasses, Blocks
from ntkscore.trace.coupling import NotAlone
from ntkscore.trace.layouts import fast_gradients
from ntkscore.trace.passes import TracedPasses
from ntkscore.trace.program import Program

DEFAULT_MEMORY = 4 * 2**30
"""Bytes, where a device does not say how many it has."""
LEAST_MEMORY = 2**20
"""Bytes that are held at once where a device has hardly any left."""
PIECES = 256
"""Pieces of networks whose programs are kept."""
SHOWN = 3
"""Unused leaves that a warning names."""
log = logging.getLogger("ntkscore")
Form = tuple[Any, Any]
"""The structure of a network's weights, and the shapes and dtypes of its leaves."""


@lru_cache(maxsize=16)
def _block_passes(apply: Callable[..., Logits], form: Form, point: Any, memory: int) -> BlockPasses:
    model = Model(apply, of_form(form))
    traced = TracedPasses(model, jax.ShapeDtypeStruct(*point))
    if unused := [jax.tree_util.keystr(path) for path in traced.unused]:
        more = f" and {len(unused) - SHOWN} more leaves" if len(unused) > SHOWN else ""
        names = ", ".join(unused[:SHOWN])
        log.warning("the logits do not depend on params%s%s, which add nothing", names, more)
    if traced.beside:
        log.warning(
            "%s count as weights beside 'params'; close over what is none, or call it batch_stats",
            ", ".join(map(repr, traced.beside)),
        )
    return BlockPasses(traced, memory)


def forget_passes() -> None:
    """Let go of the passes of networks, and so of their compiled programs."""
    for kept in (_block_passes, _piece, _logits_of):
        kept.cache_clear()


def in_pieces(passes: Passes | None) -> bool:
    """Tell whether passes are compiled piece by piece, and are no part of one program."""
    return isinstance(passes, BlockPasses | Chain)


def one_by_one(passes: Passes, function: Callable[[Array], PyTree], array: Array) -> PyTree:
    """Map a function of passes over an array; its results along a new first axis.

    Passes that are compiled piece by piece run in a loop of Python's, others in a compiled one.
    """
    if not in_pieces(passes):
        return lax.map(function, array)
    return jax.tree.map(lambda *a: jnp.stack(a), *map(function, array))


def with_passes(
    model: Model, points: Points, memory: float | None = None, known: bool = True
) -> Model:
    """A network with its passes, by blocks of points where these have values; a coupled has none.

    Blocks are compiled once for a model's function and the shapes.

    Args:
        model: the network.
        points: of the shape and dtype of those that it will be given.
        memory: bytes that may be held at once; at most half of the free ones if left out.
        known: whether weights and points have values, outside of functions that are compiled.

    Raises:
        NotAlone: if the network does not take a batch of one point.
    """
    if isinstance(model.passes, Chain):
        return model._replace(passes=replace(model.passes, memory=memory))
    if model.coupled or model.passes is not None:
        return model
    form, point = form_of(model.params), (points.shape[1:], points.dtype)
    if known:
        passes = _block_passes(model.apply, form, point, _bytes_held(memory))
        return model._replace(passes=passes)
    # What a function captures inside of another program is not to be remembered.
    passes = _block_passes.__wrapped__(model.apply, form, point, _bytes_held(memory))
    return model._replace(passes=passes.traced)


def form_of(params: PyTree) -> Form:
    """The form of a network's weights."""
    leaves, tree = jax.tree.flatten(params)
    return tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def of_form(form: Form) -> PyTree:
    """Weights of a form, without values."""
    tree, leaves = form
    return jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])


def _bytes_held(memory: float | None) -> int:
    """Bytes that may be held at once."""
    if memory is not None:
        return int(memory)
    free = usable_memory(jax.local_devices()[0]) or DEFAULT_MEMORY
    # A power of two, so that a little more or less in use compiles nothing anew.
    return 2 ** int(np.log2(max(free // 2, LEAST_MEMORY)))


def logits_of(model: Model, point: Any) -> Callable[[PyTree, Points], Logits]:
    """A network's `apply`, with convolutions that CPUs compute fast where an attack is a loop.

    The same object for what computes the same, so that its programs are found again.

    Args:
        model: the network.
        point: of the shape and dtype of one point.
    """
    return _logits_of(model.apply, form_of(model.params), point.shape, point.dtype)


@lru_cache(maxsize=16)
def _logits_of(
    apply: Callable[..., Logits], form: Form, shape: tuple[int, ...], dtype: Any
) -> Callable[[PyTree, Points], Logits]:
    try:
        program = Program(apply, of_form(form), jax.ShapeDtypeStruct(shape, dtype))
    except NotAlone:  # it has passes of its own, and takes several points only
        return apply
    fast, last = fast_gradients(program), program.logits
    if not fast or not last.of_point:
        return apply

    def logits(params: PyTree, points: Points) -> Logits:
        derived = program.derive(jax.tree.leaves(params))
        run = partial(program.run, derived, instead=fast)
        return jax.vmap(lambda point: run(point)[last])(points)

    return logits


@lru_cache(maxsize=PIECES)
def _piece(
    function: Callable[[PyTree, Points], Array],
    ends: tuple[bool, bool],
    form: Form,
    point: Any,
    memory: int,
) -> tuple[BlockPasses, Any]:
    """The passes of a piece, whose logits are all numbers of its output; that of one point."""
    params = of_form(form)
    one = jax.eval_shape(function, params, jax.ShapeDtypeStruct((1, *point[0]), point[1]))
    flat = lambda params, points: _flat(function(params, points))  # noqa: E731
    traced = TracedPasses(Model(flat, params), jax.ShapeDtypeStruct(*point), *ends)
    return BlockPasses(traced, memory, alone=True), (one.shape[1:], one.dtype)


Kept = Sequence[tuple[BlockPasses | TracedPasses, PyTree, Any]]
"""The passes of each piece, compiled or traced, its weights, and what its forward pass leaves."""


@dataclass(frozen=True, eq=False)
class Chain(Passes):
    """The passes of a network that is a chain of pieces, each compiled once for its sizes.

    Networks whose pieces have equal sizes share programs. The pieces between the first and the last
    are the network's blocks, from images to images (m, h, w, c), without branches or loops; the
    last one takes the mean over the pixels.

    Attributes:
        pieces: from the network's params the pieces, first to last: functions of (weights, points),
            which are equal where they compute the same, and the weights of each.
        memory: bytes that may be held at once; at most half of the free ones if left out.
    """

    pieces: Callable[[PyTree], Sequence[tuple[Callable[[PyTree, Points], Array], PyTree]]]
    memory: float | None = None

    def _steps(self, params: PyTree, points: Points) -> Iterator[tuple[BlockPasses, PyTree]]:
        """The compiled pieces and their weights."""
        pieces, memory = list(self.pieces(params)), _bytes_held(self.memory)
        at = points.shape[1:], points.dtype
        for place, (function, weights) in enumerate(pieces):
            ends = place == 0, place == len(pieces) - 1
            passes, at = _piece(function, ends, form_of(weights), at, memory)
            yield passes, weights

    def forward(self, params: PyTree, points: Points, /) -> tuple[Logits, Kept]:
        steps, x, done = list(self._steps(params, points)), points, []
        each = sum(passes.bytes_each for passes, _ in steps)
        keep = len(points) * each <= steps[0][0].memory // 4
        for compiled, weights in steps:
            passes = compiled if have_values(weights, x) else compiled.traced
            x, kept = passes.forward(weights, _shaped(compiled, x))
            if isinstance(kept, Blocks) and not keep:
                kept = kept._replace(residuals=[None] * len(kept.residuals))
            done.append((passes, weights, kept))
        return x, done

    def gram_by_kind(
        self, params: PyTree, residuals: Sequence[Kept], cotangent: Logits, start: GramByKind
    ) -> tuple[Points, GramByKind]:
        total = start
        for steps in zip(*map(reversed, residuals), strict=True):
            (passes, weights, _), kept = steps[0], [kept for _, _, kept in steps]
            cotangent, grams = passes.gram_by_kind(weights, kept, _flat(cotangent), start)
            total = jax.tree.map(jnp.add, total, grams)
        return cotangent, total

    def layers(self, params: PyTree, residuals: Kept, cotangent: Logits, visit: Visit, /) -> PyTree:
        found = []
        for passes, weights, kept in reversed(residuals):
            given = weights, kept, _flat(cotangent)
            found.append(passes.layers(*given, visit))
            cotangent = passes.gradient(*given)
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *reversed(found))

    def activations(self, params: PyTree, residuals: Kept) -> Activations | None:
        found = [passes.activations(weights, kept) for passes, weights, kept in residuals]
        rectified = [pair for each in found if each for pair in each.rectified]
        features = [kept.points[None] for _, _, kept in residuals[2:]]
        return Activations(rectified, features) if rectified else None

    def rectifier_values(self, params: PyTree, residuals: Kept) -> list[tuple[Array, Array, Array]]:
        found = [passes.rectifier_values(weights, kept) for passes, weights, kept in residuals]
        return [each for of_piece in found for each in of_piece]

    def pullbacks(self, params: PyTree, residuals: Kept, key: Array) -> list[tuple[Array, Array]]:
        keys, pairs = jax.random.split(key, len(residuals) - 2), list[tuple[Array, Array]]()
        blocks, after = residuals[2:-1], [kept.points for _, _, kept in residuals[3:]]
        for each, (passes, weights, kept), like in zip(keys[1:], blocks, after, strict=True):
            signs = jax.random.rademacher(each, like.shape, like.dtype)
            pairs.append((passes.gradient(weights, kept, _flat(signs)), signs))
        return [(left[None], right[None]) for left, right in pairs if fitting(left, right)]

    def unnormalized(self, params: PyTree, points: Points) -> Logits | None:
        x: Any = points
        for passes, weights in self._steps(params, points):
            x = passes.unnormalized(weights, _shaped(passes, x))
            if x is None:
                return None
        return x

    def standardized(
        self, params: PyTree, points: Points, others: Points
    ) -> tuple[Points, Points, Array] | None:
        logs = jnp.zeros((), points.dtype)
        for passes, weights in self._steps(params, points):
            found = passes.standardized(weights, _shaped(passes, points), _shaped(passes, others))
            if found is None:
                return None
            points, others, own = found
            logs += own
        return points, others, logs


def _flat(cotangent: Array) -> Logits:
    return cotangent.reshape(len(cotangent), -1)


def _shaped(passes: BlockPasses, x: Array) -> Points:
    """Points of a piece, from all numbers that the one before put out."""
    return x.reshape(len(x), *passes.traced.program.point.shape)
