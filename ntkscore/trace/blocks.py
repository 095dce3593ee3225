"""Passes over any number of points: compiled piece by piece, block by block, in bounded memory.

Each block of points goes forward and back once, so that time grows with the number of blocks. What
the kernel is made of is kept for all points, on disk where memory does not hold it, and multiplied
leaf by leaf. Equal layers share one program.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree, Shaped

from ntkscore.disk import from_disk, keeper
from ntkscore.errors import InputError
from ntkscore.grams import GramByKind, groups_of
from ntkscore.memory import usable_memory
from ntkscore.model import Activations, Logits, Model, Passes, Points, Visit
from ntkscore.trace import normalizations
from ntkscore.trace.parameters import beside_params
from ntkscore.trace.passes import Residuals, TracedGradient, TracedPasses, passes_of
from ntkscore.trace.products import Factors, concatenate_blocks

Item = TypeVar("Item")
Result = TypeVar("Result")
BLOCK = 32
"""Points of a block at most: what stays near a CPU's caches, and enough for an accelerator."""
DEFAULT_MEMORY = 4 * 2**30
"""Bytes, where a device does not say how many it has."""
LEAST_MEMORY = 2**20
"""Bytes that are held at once where a device has hardly any left."""
SMALL = 2**26
"""Bytes of all that a forward pass computes, below which starting a program costs more than it."""
PATIENCE = 5.0
"""Seconds between two messages on long work."""
SHOWN = 3
"""Unused leaves that a warning names."""
log = logging.getLogger("ntkscore")


class Blocks(NamedTuple):
    """The residuals of forward passes over blocks of points.

    Attributes:
        points: of each block, (b, …); the last block repeats its last point.
        residuals: of each block; None where the backward pass starts with another forward pass.
        size: number of points without those repeated.
    """

    points: Sequence[Points]
    residuals: Sequence[Residuals | None]
    size: int


class BlockPasses:
    """A network's passes over points that have values (`ntkscore.model.Passes`).

    Blocks, and then leaves, go to this process's devices in turn. Long work tells the logger
    `ntkscore` how far it is, at the level `INFO`.

    Args:
        traced: the passes to compile.
        memory: bytes that may be held at once.

    Attributes:
        right: pairs (output, parameters) whose kernel was compared with the plain Jacobian's, and
            is right.
        programs: of whole kernels, by the same pairs.
    """

    def __init__(self, traced: TracedPasses, memory: int) -> None:
        self.traced, self.memory = traced, memory
        self._forward = jax.jit(traced.forward)
        self._gradient = self._backward(traced.gradient)
        self._factors = self._backward(traced.factors)
        self._activations = self._backward(traced.activations)
        self._pullbacks = jax.jit(traced.pullbacks)
        self.standardized = jax.jit(traced.standardized)
        self.unnormalized = jax.jit(traced.unnormalized)
        self.kinds_of = traced.kinds_of
        self._fresh = jax.jit(partial(normalizations.are_fresh, traced.program))
        self.right: set[tuple[str, str]] = set()
        self.programs: dict[tuple[str, str], Any] = {}
        self.devices = jax.local_devices()

    def are_fresh(self, params: PyTree) -> bool | None:
        """Tell whether normalisations hold the mean 0 and the variance 1 of new ones, if any do."""
        fresh = self._fresh(jax.tree.leaves(params))
        return None if fresh is None else bool(fresh)

    def _at(self, place: int, arrays: PyTree) -> PyTree:
        """Arrays on one of the devices, which are taken in turn."""
        if len(self.devices) == 1:
            return arrays
        return jax.device_put(arrays, self.devices[place % len(self.devices)])

    def _shared(self, params: PyTree, blocks: Sequence[tuple], what: str) -> Iterator[tuple]:
        """The weights and each block's arrays, on the devices in turn; told as `_told` does."""
        weights = [self._at(k, params) for k in range(min(len(self.devices), len(blocks)))]
        for place, block in enumerate(_told(blocks, what)):
            yield weights[place % len(weights)], *self._at(place, block)

    def are_small(self, points: Points) -> bool:
        """Tell whether one program may compute the kernel of these points as a whole."""
        few = len(self.devices) == 1 and len(points) <= BLOCK
        return few and len(points) * self.bytes_each <= min(SMALL, self.memory // 4)

    def check(self, params: PyTree, points: Points, logits: Logits) -> None:
        """Refuse logits that are not finite, and say where that comes from."""
        wrong = np.flatnonzero(~np.isfinite(logits).all(1))
        if wrong.size:
            origin = self.traced.origin(params, points[wrong[0]])
            raise InputError(
                "finite logits",
                np.asarray(logits)[wrong[0]].tolist(),
                f"what is not finite first comes from {origin}: mend the network there, or "
                "its weights",
            )

    def _backward(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Compile a backward pass of a block; without residuals the block goes forward again."""

        def run(
            params: PyTree, points: Points, residuals: Residuals | None, *cotangent: Logits
        ) -> Result:
            if residuals is None:
                _, residuals = self.traced.forward(params, points)
            return function(params, residuals, *cotangent)

        return jax.jit(run)

    @cached_property
    def bytes_each(self) -> int:
        """Bytes of all that a forward pass computes at a point; its residuals are fewer."""
        equations = self.traced.program.point_equations.values()
        values = [value for equation in equations for value in equation.outputs]
        return sum(prod(value.shape) * value.dtype.itemsize for value in values)

    def split(self, points: Shaped[Array, "m ..."]) -> list[Shaped[Array, "b ..."]]:
        """Blocks of points, or of labels, of one size; the last is filled up with its last one."""
        limit = max(1, min(BLOCK, self.memory // (4 * self.bytes_each)))
        blocks = -(-len(points) // limit)
        size = -(-len(points) // blocks)
        missing = blocks * size - len(points)
        filled = jnp.concatenate([points, jnp.repeat(points[-1:], missing, 0)])
        return list(filled.reshape(blocks, size, *points.shape[1:]))

    def forward(self, params: PyTree, points: Points) -> tuple[Logits, Blocks | Residuals]:
        """Logits of points, and the residuals that the backward passes need."""
        if isinstance(points, Tracer):  # inside of a loop, which is compiled as a whole
            return self.traced.forward(params, points)
        keep = len(points) * self.bytes_each <= self.memory // 4
        blocks, logits, residuals = self.split(points), [], []
        for block in self._shared(params, [(block,) for block in blocks], "blocks forward"):
            block_logits, block_residuals = self._forward(*block)
            logits.append(self._at(0, block_logits))
            residuals.append(block_residuals if keep else None)
        size = len(points)
        together = jnp.concatenate(logits)[:size]
        self.check(params, points, together)
        return together, Blocks(blocks, residuals, size)

    def _per_block(self, params: PyTree, residuals: Blocks, cotangent: Logits) -> Iterator[tuple]:
        """The weights, points, residuals and cotangents of blocks; zeros for points added."""
        missing = len(residuals.points) * len(residuals.points[0]) - residuals.size
        filled = jnp.pad(cotangent, ((0, missing), (0, 0)))
        cotangents = filled.reshape(len(residuals.points), -1, cotangent.shape[1])
        blocks = list(zip(residuals.points, residuals.residuals, cotangents, strict=True))
        return self._shared(params, blocks, "blocks back")

    def gradient(self, params: PyTree, residuals: Blocks | Residuals, cotangent: Logits) -> Points:
        """The gradient in the points, from the cotangent of their logits."""
        if isinstance(residuals, Residuals):
            return self.traced.gradient(params, residuals, cotangent)
        blocks = self._per_block(params, residuals, cotangent)
        found = [self._at(0, self._gradient(*block)) for block in blocks]
        return jnp.concatenate(found)[: residuals.size]

    def gram_by_kind(
        self, params: PyTree, residuals: Sequence[Blocks], cotangent: Logits, start: GramByKind
    ) -> tuple[Points, GramByKind]:
        """The gradient in the points, and the Gram matrices by kind of parameter."""
        sizes = [each.size for each in residuals]
        cotangents = jnp.split(cotangent, list(accumulate(sizes[:-1])))
        sets = list(zip(residuals, cotangents, strict=True))
        if not start:
            return jnp.concatenate([self.gradient(params, *each) for each in sets]), {}
        results = (
            (self._factors(*block) for block in self._per_block(params, *each)) for each in sets
        )
        return self._gram_by_kind(results, sizes, start)

    def forward_and_back(
        self,
        params: PyTree,
        points: Points,
        cotangent: Callable[[Logits, Any], Logits],
        labels: Any,
    ) -> Iterator[tuple[Points, list[Factors]]]:
        """Gradients in the points and factors of the kernel, block by block.

        Args:
            params: the weights.
            points: any number.
            cotangent: of the logits, from them and the labels.
            labels: of the points.
        """
        blocks = list(zip(self.split(points), self.split(labels), strict=True))
        for weights, block, classes in self._shared(params, blocks, "blocks forward and back"):
            logits, residuals = self._forward(weights, block)
            result = self._factors(weights, block, residuals, cotangent(logits, classes))
            # Reading the logits waits for them, so the backward pass is under way by then.
            self.check(weights, block, logits)
            yield result

    def kernel(
        self, blocks: Iterator[tuple[Points, list[Factors]]], start: GramByKind
    ) -> GramByKind:
        """The Gram matrices by kind, for which nothing is held but their factors.

        Args:
            blocks: as from `forward_and_back`.
            start: zero matrices by kind, of one group of points.
        """
        (size,) = {gram.shape[-1] for gram in start.values()}
        return self._gram_by_kind([blocks], [size], start)[1]

    def projected(
        self,
        blocks: Iterator[tuple[Points, list[Factors]]],
        kinds: Collection[str],
        size: int,
        key: Array,
    ) -> Float[Array, "m s"]:
        """Each point's gradients in the weights, projected on some numbers; nothing else is held.

        Args:
            blocks: as from `forward_and_back`; the last rows are those of points that fill it up.
            kinds: of the weights that count.
            size: how many numbers.
            key: of the projection (`ntkscore.trace.products.projection`).
        """
        found = []
        for gradient, factors in blocks:
            total = jnp.zeros((len(gradient), size), self.traced.dtype)
            for place, (uses, each) in enumerate(
                zip(self.traced.weight_uses, factors, strict=True)
            ):
                leaves = uses.projected(each, jax.random.fold_in(key, place), size)
                for leaf, rows in leaves.items():
                    if self.traced.kinds[leaf] in kinds:
                        total += rows
            found.append(self._at(0, jax.block_until_ready(total)))
        return jnp.concatenate(found)

    def _gram_by_kind(
        self, sets: Any, sizes: Sequence[int], start: GramByKind
    ) -> tuple[Any, dict[str, Array]]:
        """Gram matrices by kind, from the factors of blocks of sets of points."""
        gradients: list[Array] = []
        with keeper(self.memory // 2, sum(sizes)) as keep:
            factors: list[list[Any]] = []
            for blocks, size in zip(sets, sizes, strict=True):
                pairs = [(gradient, keep(each, len(gradient))) for gradient, each in blocks]
                gradient = jnp.concatenate([self._at(0, gradient) for gradient, _ in pairs])
                gradients.append(gradient[:size])
                factors.append([each for _, each in pairs])
            total = {kind: jnp.zeros_like(gram) for kind, gram in start.items()}
            before = None
            for place, term in enumerate(_told(self.traced.terms, "layers")):
                shared = from_disk(
                    [[term.factors(block) for block in blocks] for blocks in factors]
                )
                gram = term.gram(self._at(place, shared), tuple(sizes), groups_of(start))
                total[term.kind] += self._at(0, gram)
                # One is on its way while the next one starts.
                jax.block_until_ready(before)
                before = gram
            jax.block_until_ready(total)
        return jnp.concatenate(gradients), total

    def layers(self, params: PyTree, residuals: Blocks, cotangent: Logits, visit: Visit) -> PyTree:
        """Apply a function to each layer's weights' gradients; layers along the first axis."""
        blocks = [
            self._at(0, self._factors(*block)[1])
            for block in self._per_block(params, residuals, cotangent)
        ]
        factors = [
            concatenate_blocks([[block[place] for block in blocks]], [residuals.size])
            for place in range(len(self.traced.weight_uses))
        ]
        return self.traced.visit_layers(params, factors, partial(_visited, visit), residuals.size)

    def pullbacks(self, params: PyTree, residuals: Blocks, key: Array) -> list[tuple[Array, Array]]:
        """Gradients at each block's input, of random signs at its output; and the signs."""
        points = jnp.concatenate(list(residuals.points))[: residuals.size]
        return self._pullbacks(params, Residuals(None, {}, points), key)

    def activations(self, params: PyTree, residuals: Blocks | Residuals) -> Activations | None:
        """The inputs of all rectifiers, and the outputs of the blocks."""
        if isinstance(residuals, Residuals):
            return self.traced.activations(params, residuals)
        pairs = list(zip(residuals.points, residuals.residuals, strict=True))
        found = [
            self._at(0, self._activations(*block))
            for block in self._shared(params, pairs, "blocks")
        ]
        if found[0] is None:
            return None
        return jax.tree.map(
            # How many rectifiers take an array is the same in all blocks.
            lambda *parts: (
                parts[0] if parts[0].ndim == 1 else jnp.concatenate(parts, 1)[:, : residuals.size]
            ),
            *found,
        )


def _told(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Items one by one, with a message now and then of how many are done."""
    last = time.monotonic()
    for done, item in enumerate(items):
        yield item
        if time.monotonic() - last > PATIENCE:
            last = time.monotonic()
            log.info("%d of %d %s", done + 1, len(items), what)


@partial(jax.jit, static_argnums=0)
def _visited(visit: Visit, layer: TracedGradient) -> PyTree:
    return visit(layer)


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
