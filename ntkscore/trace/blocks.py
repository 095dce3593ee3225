"""Passes over any number of points: compiled piece by piece, block by block, in bounded memory.

Each block of points goes forward and back once, so that time grows with the number of blocks. What
the kernel is made of is kept for all points, on disk where memory does not hold it, and multiplied
leaf by leaf. Equal layers share one program.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property, partial
from itertools import accumulate
from math import prod
from operator import is_
from typing import Any, NamedTuple, TypeVar
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree, Shaped

from ntkscore.compiler import NETWORK, Jit
from ntkscore.disk import from_disk, keeper
from ntkscore.errors import InputError
from ntkscore.grams import GramByKind, groups_of
from ntkscore.memory import usable_cores
from ntkscore.model import Activations, Logits, Points, Sets, Visit
from ntkscore.threads import in_threads
from ntkscore.trace import normalizations
from ntkscore.trace.coupling import check_coupling
from ntkscore.trace.pairs import CHUNK_BYTES, Groups, Own, Pairs
from ntkscore.trace.passes import Residuals, TracedGradient, TracedPasses
from ntkscore.trace.product_kernels import Factors, concatenate_blocks
from ntkscore.trace.weight_uses import KernelTerm

Item = TypeVar("Item")
Result = TypeVar("Result")
BLOCK = 32
"""Points of a block at most: what stays near a CPU's caches, and enough for an accelerator."""
SMALL = 2**26
"""Bytes of all that a forward pass computes, below which starting a program costs more than it."""
MOST_THREADS = 4
"""Gram matrices that are computed at once on a CPU, where memory allows it."""
PATIENCE = 5.0
"""Seconds between two messages on long work."""
log = logging.getLogger("ntkscore")


Block = list[list[Factors]]
"""The factors of a block of points, for each cotangent and each of the weight uses."""


class Blocks(NamedTuple):
    """The residuals of forward passes over blocks of points.

    Attributes:
        points: of all blocks.
        residuals: of each block; None where the backward pass starts with another forward pass.
    """

    points: Points
    residuals: Sequence[Residuals | None]


class BlockPasses:
    """A network's passes over points that have values (`ntkscore.model.Passes`).

    Blocks, and then leaves, go to this process's devices in turn. Long work tells the logger
    `ntkscore` how far it is, at the level `INFO`.

    Args:
        traced: the passes to compile.
        memory: bytes that may be held at once.
        alone: whether a point's logits are known to be the same in a batch, at any weights.

    Attributes:
        right: pairs (output, parameters) whose kernel was compared with the plain Jacobian's, and
            is right.
        programs: of whole kernels, by the same pairs.
    """

    def __init__(self, traced: TracedPasses, memory: int, alone: bool = False) -> None:
        self.traced, self.memory, self.alone = traced, memory, alone
        self._forward = Jit(traced.forward, NETWORK)
        self._gradient = self._backward(traced.gradient)
        self._factors = self._backward(traced.factors)
        self._activations = self._backward(traced.activations)
        self._pullbacks = Jit(traced.pullbacks, NETWORK)
        self._rectifier_values = Jit(traced.rectifier_values, NETWORK)
        self.standardized = Jit(traced.standardized, NETWORK)
        self.unnormalized = Jit(traced.unnormalized, NETWORK)
        self.kinds_of, self.logits = traced.kinds_of, traced.logits
        self._fresh = jax.jit(partial(normalizations.are_fresh, traced.program))
        self.right: set[tuple[str, str]] = set()
        self.programs: dict[tuple[str, str], Any] = {}
        self.devices = jax.local_devices()
        self._seen: list[ref[Array]] = []  # weights at which points were seen to be alone

    def are_fresh(self, params: PyTree) -> bool | None:
        """Tell whether normalisations hold the mean 0 and the variance 1 of new ones, if any do."""
        fresh = self._fresh(jax.tree.leaves(params))
        return None if fresh is None else bool(fresh)

    def at(self, place: int, arrays: PyTree) -> PyTree:
        """Arrays on one of the devices, which are taken in turn."""
        if len(self.devices) == 1:
            return arrays
        return jax.device_put(arrays, self.devices[place % len(self.devices)])

    def _shared(self, params: PyTree, blocks: Sequence[tuple], what: str) -> Iterator[tuple]:
        """The weights and each block's arrays, on the devices in turn; told as `_told` does."""
        weights = [self.at(k, params) for k in range(min(len(self.devices), len(blocks)))]
        for place, block in enumerate(_told(blocks, len(blocks), what)):
            yield weights[place % len(weights)], *self.at(place, block)

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

    def check_alone(self, params: PyTree, *given: Array) -> None:
        """Refuse points that depend on each other (`check_coupling`), once for these weights."""
        leaves, seen = jax.tree.leaves(params), [each() for each in self._seen]
        known = len(seen) == len(leaves) and all(map(is_, seen, leaves))
        if not (self.alone or known) and check_coupling(self.traced.apply, params, *given):
            self._seen = [*map(ref, leaves)]

    def _backward(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Compile a backward pass of a block; without residuals the block goes forward again."""

        def run(
            params: PyTree, points: Points, residuals: Residuals | None, *cotangent: Logits
        ) -> Result:
            if residuals is None:
                _, residuals = self.traced.forward(params, points)
            return function(params, residuals, *cotangent)

        return Jit(run, NETWORK)

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
        if blocks == 1:
            return [jnp.asarray(points)]
        filled = jnp.concatenate([points, jnp.repeat(points[-1:], missing, 0)])
        return list(filled.reshape(blocks, size, *points.shape[1:]))

    def forward(self, params: PyTree, points: Points) -> tuple[Logits, Blocks | Residuals]:
        if isinstance(points, Tracer):  # inside of a loop, which is compiled as a whole
            return self.traced.forward(params, points)
        keep = len(points) * self.bytes_each <= self.memory // 4
        logits, residuals = [], []
        for block in self._shared(params, [(x,) for x in self.split(points)], "blocks forward"):
            block_logits, block_residuals = self._forward(*block)
            logits.append(self.at(0, block_logits))
            residuals.append(block_residuals if keep else None)
        together = jnp.concatenate(logits)[: len(points)]
        self.check(params, points, together)
        self.check_alone(params, together, points)
        return together, Blocks(points, residuals)

    def _per_block(self, params: PyTree, residuals: Blocks, cotangent: Logits) -> Iterator[tuple]:
        """The weights, points, residuals and cotangents of blocks; zeros for points added."""
        points = self.split(residuals.points)
        missing = len(points) * len(points[0]) - len(residuals.points)
        filled = jnp.pad(cotangent, ((0, missing), (0, 0)))
        cotangents = filled.reshape(len(points), -1, cotangent.shape[1])
        blocks = list(zip(points, residuals.residuals, cotangents, strict=True))
        return self._shared(params, blocks, "blocks back")

    def gradient(self, params: PyTree, residuals: Blocks | Residuals, cotangent: Logits) -> Points:
        if isinstance(residuals, Residuals):
            return self.traced.gradient(params, residuals, cotangent)
        blocks = self._per_block(params, residuals, cotangent)
        found = [self.at(0, self._gradient(*block)) for block in blocks]
        return jnp.concatenate(found)[: len(residuals.points)]

    def gram_by_kind(
        self, params: PyTree, residuals: Sequence[Blocks], cotangent: Logits, start: GramByKind
    ) -> tuple[Points, GramByKind]:
        sizes = [len(each.points) for each in residuals]
        cotangents = jnp.split(cotangent, list(accumulate(sizes[:-1])))
        sets = list(zip(residuals, cotangents, strict=True))
        if not start:
            return jnp.concatenate([self.gradient(params, *each) for each in sets]), {}
        gradients: list[Array] = []

        def back(residuals: Blocks, cotangent: Logits) -> Iterator[Block]:
            found = []
            for block in self._per_block(params, residuals, cotangent):
                gradient, factors = self._factors(*block)
                found.append(self.at(0, gradient))
                yield [factors]
            gradients.append(jnp.concatenate(found)[: len(residuals.points)])

        pairs = Groups(groups_of(start))
        found = self._gram([back(*each) for each in sets], sizes, self.traced.terms, pairs)
        return jnp.concatenate(gradients), {**start, **found}

    def forward_and_back(
        self,
        params: PyTree,
        points: Points,
        cotangents: Callable[[Logits, Any], Sequence[Logits]],
        labels: Any,
    ) -> Iterator[Block]:
        """Factors of the kernel, block by block: of each a list, by the cotangents.

        Args:
            points: any number.
            cotangents: of the logits, from them and the labels.
        """
        blocks = list(zip(self.split(points), self.split(labels), strict=True))
        for weights, block, classes in self._shared(params, blocks, "blocks forward and back"):
            logits, residuals = self._forward(weights, block)
            back = partial(self._factors, weights, block, residuals)
            factors = [back(each)[1] for each in cotangents(logits, classes)]
            # Reading the logits waits for them, so the backward passes are under way by then.
            self.check(weights, block, logits)
            self.check_alone(params, logits, points)
            yield factors

    def kernel(
        self,
        params: PyTree,
        sets: Sets,
        cotangents: Callable[[Logits, Array], Sequence[Logits]],
        names: Sequence[str | None],
        pairs: Pairs,
    ) -> dict[str, Array]:
        """The kernel by the names of its leaves, as that of `TracedPasses`.

        Nothing is held but its factors; of each row with itself, those of one block.
        """
        terms, sizes = self.traced.terms_of(names), [len(points) for points, _ in sets]
        blocks = [self.forward_and_back(params, x, cotangents, y) for x, y in sets]
        if not isinstance(pairs, Own):
            return self._gram(blocks, sizes, terms, pairs)
        parts = [
            self._by_kind([[each]], [count_of(each)], terms, pairs)
            for of_set in blocks
            for (each,) in of_set
        ]
        return jax.tree.map(lambda *own: jnp.concatenate(own)[: sizes[0]], *parts)

    def _gram(
        self,
        sets: Sequence[Iterator[Block]],
        sizes: Sequence[int],
        terms: Sequence[KernelTerm],
        pairs: Pairs,
    ) -> dict[str, Array]:
        """The kernel by the terms' kinds, for which nothing is held but its factors.

        Args:
            sets: the blocks of sets of points.
            sizes: how many points each has.
            terms: of the kernel.
            pairs: of rows; the rows are set after set, and in a set cotangent after cotangent.
        """
        with keeper(self.memory // 2, sum(sizes)) as keep:
            factors: list[list[Any]] = []
            rows: list[int] = []
            for blocks, size in zip(sets, sizes, strict=True):
                of_blocks = [keep(each, count_of(each)) for each in blocks]
                factors += map(list, zip(*of_blocks, strict=True))
                rows += [size] * (len(factors) - len(rows))
            return self._by_kind(factors, rows, terms, pairs)

    def _by_kind(
        self,
        factors: Sequence[Sequence[Any]],
        sizes: Sequence[int],
        terms: Sequence[KernelTerm],
        pairs: Pairs,
    ) -> dict[str, Array]:
        """The kernel by the terms' kinds, from the factors of blocks of sets of points."""
        total: dict[str, Array] = {}

        def gram(placed: tuple[int, KernelTerm]) -> Array:
            place, term = placed
            sets = from_disk([[term.factors(block) for block in blocks] for blocks in factors])
            return term.gram(self.at(place, sets), tuple(sizes), pairs)

        with closing(in_threads(gram, enumerate(terms), self._at_once(factors))) as grams:
            for term, each in zip(terms, _told(grams, len(terms), "layers"), strict=True):
                total[term.kind] = total.get(term.kind, 0) + self.at(0, each)
        return jax.block_until_ready(total)

    def _at_once(self, factors: PyTree) -> int:
        """How many Gram matrices are computed at once, each with copies of its factors."""
        if self.devices[0].platform != "cpu":
            return max(2, len(self.devices))
        if any(map(callable, jax.tree.leaves(factors))):
            return 2  # One reads from disk while the other computes.
        return max(1, min(usable_cores(), MOST_THREADS, self.memory // (2 * CHUNK_BYTES)))

    def layers(self, params: PyTree, residuals: Blocks, cotangent: Logits, visit: Visit) -> PyTree:
        blocks, size = self._per_block(params, residuals, cotangent), len(residuals.points)
        found = [self.at(0, self._factors(*block)[1]) for block in blocks]
        factors = [concatenate_blocks([uses], [size]) for uses in zip(*found, strict=True)]
        return self.traced.visit_layers(params, factors, partial(_visited, visit), size)

    def pullbacks(self, params: PyTree, residuals: Blocks, key: Array) -> list[tuple[Array, Array]]:
        return self._pullbacks(params, Residuals(None, {}, residuals.points), key)

    def rectifier_values(
        self, params: PyTree, residuals: Blocks
    ) -> list[tuple[Array, Array, Array]]:
        return self._rectifier_values(params, Residuals(None, {}, residuals.points))

    def activations(self, params: PyTree, residuals: Blocks | Residuals) -> Activations | None:
        if isinstance(residuals, Residuals):
            return self.traced.activations(params, residuals)
        pairs = list(zip(self.split(residuals.points), residuals.residuals, strict=True))
        blocks = self._shared(params, pairs, "blocks")
        found, size = (
            [self.at(0, self._activations(*each)) for each in blocks],
            len(residuals.points),
        )

        def whole(first: Array, *others: Array) -> Array:
            # How many rectifiers take an array is the same in all blocks.
            return first if first.ndim == 1 else jnp.concatenate([first, *others], 1)[:, :size]

        return None if found[0] is None else jax.tree.map(whole, *found)


def count_of(factors: PyTree) -> int:
    """How many points some factors are of."""
    return len(jax.tree.leaves(factors)[0])


def _told(items: Iterable[Item], count: int, what: str) -> Iterator[Item]:
    """Items one by one, with a message now and then of how many of all are done."""
    last = time.monotonic()
    for done, item in enumerate(items):
        yield item
        if time.monotonic() - last > PATIENCE:
            last = time.monotonic()
            log.info("%d of %d %s", done + 1, count, what)


@partial(jax.jit, static_argnums=0)
def _visited(visit: Visit, layer: TracedGradient) -> PyTree:
    return visit(layer)
