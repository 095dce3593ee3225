"""A network's forward and backward passes, from the trace of its `apply`.

A zero is added to the output of every equation in which weights meet the point. One backward pass
in these zeros leaves the cotangent of each, from which the kernel, the weights' gradients and the
gradient in the points follow. No equation runs twice.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ntkscore.errors import InputError
from ntkscore.grams import Taps, groups_of
from ntkscore.model import Activations, Logits, Model, Passes, Points
from ntkscore.trace import inside, normalizations
from ntkscore.trace.contributions import Contribution, contributions_of, shares_of
from ntkscore.trace.parameters import fixed_leaves, kind_or_none
from ntkscore.trace.products import Factors
from ntkscore.trace.program import Constant, Program, Value
from ntkscore.trace.sites import Product
from ntkscore.trace.whole import WholePasses


def passes_of(model: Model, points: Points) -> Passes:
    """A network's passes: its own where it has them, else those that its trace gives.

    Args:
        model: the network.
        points: of the shape and dtype of those that it will be given.
    """
    if model.passes is not None:
        return model.passes
    if model.coupled:
        return WholePasses(model)
    return TracedPasses(model, jax.ShapeDtypeStruct(points.shape[1:], points.dtype))


class Kept(NamedTuple):
    """What a forward pass leaves for the way back.

    Attributes:
        pullback: from the logits' cotangent to those of the zeros, by value, and of the points.
        values: of the points (m, …), by value.
        points: that went forward.
    """

    pullback: Any
    values: dict[Value, Array]
    points: Points


class WeightGradient(NamedTuple):
    """The gradients of a layer's weights at some points (`ntkscore.model.LayerGradient`).

    Attributes:
        products: the layer's uses, where it is one of products alone.
        factor: what the layer's kernel is multiplied by in them.
        place: of the layer's gradients among the factors, where there are no products.
        offset: of the layer's first weight in these gradients.
        kernel: the layer's weights.
        factors: what its gradients are made of.
    """

    products: tuple[Product, ...]
    factor: float
    place: int
    offset: int
    kernel: Array
    factors: Factors

    @property
    def gradients(self) -> Float[Array, "m ..."]:
        values, cotangents = self.factors
        if not self.products:
            return values[self.place]
        uses = zip(self.products, values, cotangents, strict=True)
        first, *others = (product.gradients(x, g) for product, x, g in uses)
        return self.factor * sum(others, first)

    @property
    def first(self) -> Float[Array, " m"]:
        values, cotangents = self.factors
        if not self.products:
            return values[self.place].reshape(len(values[self.place]), -1)[:, self.offset]
        uses = zip(self.products, values, cotangents, strict=True)
        first, *others = (
            jnp.sum(jax.vmap(p.inputs)(x)[:, 0, :, 0] * jax.vmap(p.outputs)(g)[:, 0, :, 0], 1)
            for p, x, g in uses
        )
        return self.factor * sum(others, first)


class TracedPasses:
    """The passes of any network whose points do not meet each other.

    Args:
        model: the network.
        point: of the shape and dtype of one point.

    Raises:
        InputError: if the logits do not depend on the point, or the network has no weights.
    """

    def __init__(self, model: Model, point: Any) -> None:
        if not jax.tree.leaves(model.params):
            raise InputError(
                "expected weights to differentiate in, got none; give them as Model(apply, params)"
            )
        self.fixed = fixed_leaves(model.params)
        program = Program(model.apply, model.params, point, self.fixed)
        if statistics := normalizations.statistics(program):
            self.fixed |= statistics
            program = Program(model.apply, model.params, point, self.fixed)
        self.program, logits = program, program.logits
        if isinstance(logits, Constant) or not program.values[logits].of_point:
            raise InputError(
                "expected logits that depend on the images, got some that are the same for all; "
                "use the second argument of apply"
            )
        self._logits: Value = logits
        self.contributions = contributions_of(program)
        self.sites = {site.place: site for each in self.contributions for site in each.sites}
        self.rectifiers, self.blocks = inside.rectifiers(program), inside.blocks(program)
        self.kinds = [self._kind(leaf) for leaf in range(len(program.leaves))]
        self.shares = shares_of(program, self.contributions, self.kinds)

    @property
    def unused(self) -> list[tuple]:
        """Paths to weights on which the logits do not depend."""
        used = self.fixed.union(*(each.leaves for each in self.contributions))
        return [path for leaf, path in enumerate(self.program.paths) if leaf not in used]

    def _kind(self, leaf: int) -> str:
        """The kind of a leaf: by its name, or by what is done with it."""
        program = self.program
        if named := kind_or_none(program.paths[leaf], program.values[program.leaves[leaf]]):
            return named
        own = [site for each in self.contributions if leaf in each.leaves for site in each.sites]
        used = {site.equation.name for site in own if self._takes(site.weights, leaf)}
        if used and used <= {"add", "sub", "concatenate", "stack"}:
            return "shift"
        return "scale" if used and used <= {"mul", "div"} else "weight"

    def _takes(self, weights: Sequence[Value], leaf: int) -> bool:
        return any(leaf in self.program.values[value].leaves for value in weights)

    def origin(self, params: PyTree, point: Array) -> str:
        """Where a value that is not finite first comes about at a point, in some words."""
        program = self.program
        named = dict(zip(program.leaves, program.paths, strict=True))
        known = program.run(program.derive(jax.tree.leaves(params)), point)
        for value, array in known.items():  # in the order in which they were computed
            equation = program.maker(value)
            if equation is None or _is_finite(array):
                continue
            if not program.values[value].of_point:
                return f"the operation {equation.name} on weights"
            taken = [jax.tree_util.keystr(named[v]) for v in equation.values if v in named]
            among = f" with {', '.join(taken)}" if taken else ""
            return f"the operation {equation.name} of shape {array.shape}{among}"
        return "none of its operations alone"

    def _zeros(self, values: Collection[Value], count: int) -> dict[Value, Array]:
        kinds = {value: self.program.values[value] for value in values}
        return {v: jnp.zeros((count, *kind.shape), kind.dtype) for v, kind in kinds.items()}

    @property
    def _features(self) -> list[Value]:
        return self.blocks or [*self.rectifiers.values()]

    @cached_property
    def _wanted(self) -> list[Value]:
        """The values that later passes ask for."""
        of_sites = {value for site in self.sites.values() for value in site.points}
        return sorted(of_sites | {*self.rectifiers} | {*self._features})

    def forward(self, params: PyTree, points: Points) -> tuple[Logits, Kept]:
        """Logits of points, and what the way back needs."""
        found = self.program.derive(jax.tree.leaves(params))

        def one(zeros: dict[Value, Array], point: Array) -> tuple[Array, dict[Value, Array]]:
            known = self.program.run(found, point, zeros)
            return known[self._logits], {value: known[value] for value in self._wanted}

        outputs = {value for site in self.sites.values() for value in site.outputs}
        zeros = self._zeros(outputs, len(points))
        logits, pullback, values = jax.vjp(jax.vmap(one), zeros, points, has_aux=True)
        return logits, Kept(pullback, values, points)

    def gradient(self, params: PyTree, kept: Kept, cotangent: Logits) -> Points:
        """The gradient in the points, from the cotangent of their logits."""
        return kept.pullback(cotangent)[1]

    def parts(
        self, params: PyTree, kept: Sequence[Kept], cotangent: Logits, taps: Taps
    ) -> tuple[Points, Taps]:
        """The gradient in the points, and contributions to Gram matrices (`Taps`)."""
        sizes = tuple(len(each.points) for each in kept)
        pairs = [
            self.factors(params, each, cotangent[sum(sizes[:place]) : sum(sizes[: place + 1])])
            for place, each in enumerate(kept)
        ]
        total = {kind: jnp.zeros_like(tap) for kind, tap in taps.items()}
        for share in self.shares if taps else ():
            sets = [[share.factors(factors)] for _, factors in pairs]
            # One after the other, so that no two leaves' gradients are held at once.
            total, sets = lax.optimization_barrier((total, sets))
            total[share.kind] += share.gram(sets, sizes, groups_of(taps))
        return jnp.concatenate([gradient for gradient, _ in pairs]), total

    def factors(
        self, params: PyTree, kept: Kept, cotangent: Logits
    ) -> tuple[Points, list[Factors]]:
        """The gradient in the points; and what each contribution to the kernel is made of."""
        zeros, gradient = kept.pullback(cotangent)
        weights = jax.tree.leaves(params)
        context = self.program, weights, self.program.derive(weights)
        return gradient, [
            each.factors(*context, *self._own(each, zeros, kept.values))
            for each in self.contributions
        ]

    def _own(
        self, contribution: Contribution, zeros: Mapping[Value, Array], values: Mapping[Value, Any]
    ) -> tuple[dict[Value, Array], dict[Value, Array]]:
        """What a contribution is made of: values of the points, and cotangents."""
        sites = contribution.sites
        points = {value: values[value] for site in sites for value in site.points}
        return points, {value: zeros[value] for site in sites for value in site.outputs}

    def layers(
        self,
        params: PyTree,
        kept: Kept,
        cotangent: Logits,
        look: Callable[[WeightGradient], PyTree],
    ) -> PyTree:
        """What a function sees of each layer's weights' gradients, layers along the first axis."""
        _, factors = self.factors(params, kept, cotangent)
        seen = [look(each) for each in self.weight_gradients(params, factors)]
        if not seen:
            return self.no_layers(look, len(kept.points))
        return jax.tree.map(lambda *parts: jnp.stack(parts), *seen)

    def no_layers(self, look: Callable[[WeightGradient], PyTree], count: int) -> PyTree:
        """What a function sees of no layer at all: arrays without entries."""
        some = WeightGradient((), 1.0, 0, 0, jnp.zeros(1), ([jnp.zeros((count, 1))], []))
        like = jax.eval_shape(lambda: look(some))
        return jax.tree.map(lambda a: jnp.zeros((0, *a.shape), a.dtype), like)

    def weight_gradients(
        self, params: PyTree, factors: Sequence[Factors]
    ) -> Iterator[WeightGradient]:
        """The gradients of each layer's weights, from what the contributions are made of."""
        weights = jax.tree.leaves(params)
        found = self.program.derive(weights)
        for each, own in zip(self.contributions, factors, strict=True):
            for place, leaf in enumerate(each.leaves):
                if self.kinds[leaf] != "weight":
                    continue
                factor, kernel = 1.0, weights[leaf]
                if each.part is not None:
                    factor = each.part.factor
                    value = found[each.sites[0].weights[0]]
                    kernel = value.astype(kernel.dtype) / factor
                offset = each.first_entry(self.program, leaf)
                yield WeightGradient(each.products, factor, place, offset, kernel, own)

    def activations(self, params: PyTree, kept: Kept) -> Activations | None:
        """The signs of all rectifiers' inputs, and what the blocks hand on; else the rectifiers.

        None where there are no rectifiers, or some may be in branches that a trace does not follow.
        """
        if not self.rectifiers or inside.hidden(self.program, inside.GATES):
            return None
        once = jnp.ones(1, jnp.int32)
        on = lambda array: jnp.where(array > 0, 1, -1).astype(jnp.int8)  # noqa: E731
        rectified = [(once, on(kept.values[value])[None]) for value in self.rectifiers]
        features = [
            inside.channels_last(self.program, value)(kept.values[value])[None]
            for value in self._features
        ]
        return Activations(rectified, features)

    def pullbacks(self, params: PyTree, kept: Kept, key: Array) -> list[tuple[Array, Array]]:
        """Random signs at each block's output, pulled to its input: gradients there, and signs.

        A block's input is the output of the one before.

        Blocks whose pixels are no multiple of the next one's are left out.
        """
        if len(self.blocks) < 2:
            return []
        found = self.program.derive(jax.tree.leaves(params))

        def one(zeros: dict[Value, Array], point: Array) -> list[Array]:
            known = self.program.run(found, point, zeros, cut=self.blocks)
            return [known[value] for value in self.blocks]

        zeros = self._zeros(self.blocks, len(kept.points))
        handed_on, pullback = jax.vjp(lambda zeros: jax.vmap(one)(zeros, kept.points), zeros)
        keys = jax.random.split(key, len(handed_on))
        signs = [
            jax.random.rademacher(own, array.shape, array.dtype)
            for own, array in zip(keys, handed_on, strict=True)
        ]
        (gradients,) = pullback(signs)
        images = [inside.images(self.program, value) for value in self.blocks]
        pairs = [
            (images[k - 1](gradients[self.blocks[k - 1]]), images[k](signs[k]))
            for k in range(1, len(self.blocks))
        ]
        return [(left[None], right[None]) for left, right in pairs if _fitting(left, right)]

    def unnormalized(self, params: PyTree, points: Points) -> Logits | None:
        """Logits without the images' normaliser and the layers' normalisations.

        None where some may be in branches that a trace does not follow.
        """
        return normalizations.unnormalized(self.program, jax.tree.leaves(params), points)

    def standardized(
        self, params: PyTree, points: Points, others: Points
    ) -> tuple[Points, Points, Array] | None:
        """Features before the mean over the pixels at two batches, standardised by the first.

        None where it is not known which these are (`ntkscore.trace.normalizations`).
        """
        leaves = jax.tree.leaves(params)
        return normalizations.standardized(self.program, leaves, points, others)


def _fitting(left: Float[Array, "m h w c"], right: Float[Array, "m h2 w2 d"]) -> bool:
    """Whether the pixels of one are as many as those of the other, or a multiple."""
    sides = zip(left.shape[1:3], right.shape[1:3], strict=True)
    return all(a >= b and a % b == 0 for a, b in sides)


def _is_finite(array: Array) -> bool:
    return not jnp.issubdtype(array.dtype, jnp.inexact) or bool(jnp.isfinite(array).all())
