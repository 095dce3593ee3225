"""A network's forward and backward passes, from the trace of its `apply`.

A zero is added to the output of every equation in which weights meet the point. One backward pass
in these zeros leaves the cotangent of each, from which the kernel, the weights' gradients and the
gradient in the points follow. No equation runs twice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ntkscore.errors import InputError
from ntkscore.grams import GramByKind, groups_of
from ntkscore.model import Activations, Logits, Model, Passes, Points, Sets, Visit
from ntkscore.trace import activations, normalizations
from ntkscore.trace.layouts import fast_gradients
from ntkscore.trace.operations import GATES
from ntkscore.trace.pairs import Groups, Pairs
from ntkscore.trace.parameters import FIXED, beside_params, fixed_leaves
from ntkscore.trace.product_kernels import Factors
from ntkscore.trace.products import Product
from ntkscore.trace.program import Program, Value
from ntkscore.trace.weight_uses import KernelTerm, kernel_terms, kinds_by_use, weight_uses_of


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


class WholePasses(Passes):
    """The passes of a network whose points depend on each other: forward, and the gradient.

    A point's gradient in the weights is not its own there: `ntvp` computes the kernel.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def forward(self, params: PyTree, points: Points, /) -> tuple[Logits, Any]:
        return jax.vjp(lambda points: self.model.apply(params, points), points)

    def gradient(self, params: PyTree, residuals: Any, cotangent: Logits) -> Points:
        return residuals(cotangent)[0]


class Residuals(NamedTuple):
    """The residuals of a forward pass.

    Attributes:
        pullback: from the logits' cotangent, the cotangents of the added zeros, which are those of
            the sites' outputs, by value; and the gradient in the points.
        values: arrays (m, …) at the points that the backward passes read, by value.
        points: the inputs of the pass.
    """

    pullback: Any
    values: dict[Value, Array]
    points: Points


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["kernel", "factors"],
    meta_fields=["products", "factor", "offset"],
)
@dataclass(frozen=True)
class TracedGradient:
    """The gradients of a layer's weights at some points (`ntkscore.model.LayerGradient`).

    Attributes:
        products: the layer's uses, where all are products; else empty.
        factor: the number by which the network multiplies the layer's weights.
        offset: without products, the index of the layer's first weight in its flattened leaf, which
            several layers may share.
        kernel: the layer's weights.
        factors: the arrays that the gradients are made of.
    """

    products: tuple[Product, ...]
    factor: float
    offset: int
    kernel: Array
    factors: Factors

    @property
    def gradients(self) -> Float[Array, "m ..."]:
        if not self.products:
            return self.factors[0][0]
        uses = zip(self.products, self.factors, strict=True)
        first, *others = (product.gradients(*each) for product, each in uses)
        return self.factor * sum(others, first)

    @property
    def first(self) -> Float[Array, " m"]:
        if not self.products:
            return self.gradients.reshape(len(self.gradients), -1)[:, self.offset]
        uses = zip(self.products, self.factors, strict=True)
        # Σ_p x_p g_p, of the first product's first features.
        first, *others = (
            jnp.sum(jax.vmap(p.inputs)(x)[:, 0, :, 0] * jax.vmap(p.outputs)(g)[:, 0, :, 0], 1)
            for p, (x, g) in uses
        )
        return self.factor * sum(others, first)


class TracedPasses:
    """The passes of any network whose points do not meet each other (`ntkscore.model.Passes`).

    Args:
        model: the network.
        point: of the shape and dtype of one point.
        first, last: whether the network begins and ends here, as all do but pieces of one.

    Raises:
        InputError: if the logits do not depend on the point, or the network has no weights.
    """

    def __init__(self, model: Model, point: Any, first: bool = True, last: bool = True) -> None:
        if not jax.tree.leaves(model.params):
            raise InputError(
                "weights to differentiate in", "none", "give them as Model(apply, params)"
            )
        self.fixed, self.beside = fixed_leaves(model.params), beside_params(model.params)
        self.apply, self._last = model.apply, last
        given = model.apply, model.params, point
        program = Program(*given, self.fixed, not first)
        if statistics := normalizations.statistics(program):
            self.fixed |= statistics
            program = Program(*given, self.fixed, not first)
        self.program, logits = program, program.logits
        if not logits.of_point:
            raise InputError(
                "logits that depend on the images",
                "some that are the same for all",
                "use the second argument of apply",
            )
        self.logits = logits
        self.weight_uses = weight_uses_of(program)
        self.rectifiers, self.blocks = activations.rectifiers(program), activations.blocks(program)
        self._features = self.blocks or [*self.rectifiers.values()]
        sites = [site for each in self.weight_uses for site in each.sites]
        self._outputs = {value for site in sites for value in site.outputs}
        inputs = {value for site in sites for value in site.points}
        self._residuals = sorted(inputs.union(self.rectifiers, self._features))
        self.kinds = kinds_by_use(program, self.weight_uses)
        self.terms = self.terms_of(self.kinds)
        self._convolutions = fast_gradients(program)

    @property
    def unused(self) -> list[tuple]:
        """Paths to weights on which the logits do not depend."""
        used = self.fixed.union(*(each.leaves for each in self.weight_uses))
        return [path for leaf, path in enumerate(self.program.paths) if leaf not in used]

    def origin(self, params: PyTree, point: Array) -> str:
        """The operation that first computes a value that is not finite at a point, in words."""
        program = self.program
        named = dict(zip(program.leaves, program.paths, strict=True))
        arrays = program.run(program.derive(jax.tree.leaves(params)), point)
        for value, array in arrays.items():  # in the order in which they were computed
            equation = program.maker(value)
            if equation is None or _is_finite(array):
                continue
            if not value.of_point:
                return f"the operation {equation.name} on weights"
            weights = [jax.tree_util.keystr(named[v]) for v in equation.values if v in named]
            among = f" with {', '.join(weights)}" if weights else ""
            return f"the operation {equation.name} of shape {array.shape}{among}"
        return "none of its operations alone"

    def forward(self, params: PyTree, points: Points) -> tuple[Logits, Residuals]:
        derived = self.program.derive(jax.tree.leaves(params))

        def one(zeros: dict[Value, Array], point: Array) -> tuple[Array, dict[Value, Array]]:
            arrays = self.program.run(derived, point, zeros, self._convolutions)
            return arrays[self.logits], {value: arrays[value] for value in self._residuals}

        zeros = {v: jnp.zeros((len(points), *v.shape), v.dtype) for v in self._outputs}
        logits, pullback, values = jax.vjp(jax.vmap(one), zeros, points, has_aux=True)
        return logits, Residuals(pullback, values, points)

    def gradient(self, params: PyTree, residuals: Residuals, cotangent: Logits) -> Points:
        return residuals.pullback(cotangent)[1]

    def gram_by_kind(
        self, params: PyTree, residuals: Sequence[Residuals], cotangent: Logits, start: GramByKind
    ) -> tuple[Points, GramByKind]:
        sizes = [len(each.points) for each in residuals]
        cotangents = jnp.split(cotangent, list(accumulate(sizes[:-1])))
        pairs = [self.factors(params, *each) for each in zip(residuals, cotangents, strict=True)]
        gradients, factors = zip(*pairs, strict=True)
        terms, groups = (self.terms, Groups(groups_of(start))) if start else ((), Groups())
        return jnp.concatenate(gradients), {**start, **_gram(terms, factors, sizes, groups)}

    def kernel(
        self,
        params: PyTree,
        sets: Sets,
        cotangents: Callable[[Logits, Array], Sequence[Logits]],
        names: Sequence[str | None],
        pairs: Pairs,
    ) -> dict[str, Array]:
        """The kernel by the names of its leaves.

        Args:
            cotangents: of the logits, from them and the labels.
            names: of the leaves, of which those of one name are added; None of those left out.
            pairs: of rows; the rows are set after set, and in a set cotangent after cotangent.
        """
        factors, sizes = list[list[Factors]](), list[int]()
        for points, labels in sets:
            logits, residuals = self.forward(params, points)
            for each in cotangents(logits, labels):
                factors.append(self.factors(params, residuals, each)[1])
                sizes.append(len(points))
        return _gram(self.terms_of(names), factors, sizes, pairs)

    def terms_of(self, names: Sequence[str | None]) -> list[KernelTerm]:
        """The terms of the kernel by the names of its leaves."""
        return kernel_terms(self.program, self.weight_uses, names)

    def factors(
        self, params: PyTree, residuals: Residuals, cotangent: Logits
    ) -> tuple[Points, list[Factors]]:
        """The gradient in the points; and factors of the kernel, for each of the `weight_uses`."""
        zeros, gradient = residuals.pullback(cotangent)
        weights = jax.tree.leaves(params)
        arrays = weights, self.program.derive(weights), residuals.values, zeros
        return gradient, [each.factors(self.program, *arrays) for each in self.weight_uses]

    def layers(
        self, params: PyTree, residuals: Residuals, cotangent: Logits, visit: Visit
    ) -> PyTree:
        _, factors = self.factors(params, residuals, cotangent)
        return self.visit_layers(params, factors, visit, len(residuals.points))

    def visit_layers(
        self, params: PyTree, factors: Sequence[Factors], visit: Visit, count: int
    ) -> PyTree:
        """Apply a function to each layer's weights' gradients; layers along the first axis.

        Args:
            factors: for each of the `weight_uses`.
            count: of the points, for a network without layers, of which the arrays have no entries.
        """
        visited = [visit(each) for each in self._weight_gradients(params, factors)]
        if visited:
            return jax.tree.map(lambda *parts: jnp.stack(parts), *visited)
        some = TracedGradient((), 1.0, 0, jnp.zeros(1), [(jnp.zeros((count, 1)),)])
        like = jax.eval_shape(lambda: visit(some))
        return jax.tree.map(lambda a: jnp.zeros((0, *a.shape), a.dtype), like)

    def _weight_gradients(
        self, params: PyTree, factors: Sequence[Factors]
    ) -> Iterator[TracedGradient]:
        """The gradients of each layer's weights, from the factors of the kernel."""
        weights = jax.tree.leaves(params)
        derived = self.program.derive(weights)
        for each, own in zip(self.weight_uses, factors, strict=True):
            for place, leaf in enumerate(each.leaves):
                if self.kinds[leaf] != "weight":
                    continue
                offset = each.first_entry(self.program, leaf)
                if each.leaf_slice is None:
                    yield TracedGradient((), 1.0, offset, weights[leaf], [own[place]])
                    continue
                factor, weight = each.leaf_slice.factor, derived[each.sites[0].weights[0]]
                kernel = weight.astype(weights[leaf].dtype) / factor
                yield TracedGradient(each.products, factor, offset, kernel, own)

    def activations(self, params: PyTree, residuals: Residuals) -> Activations | None:
        """The signs of all rectifiers' inputs, and the blocks' outputs; else the rectifiers'.

        None also where some may be in branches that a trace does not follow.
        """
        if not self.rectifiers or activations.hidden(self.program, GATES):
            return None
        sign = lambda array: jnp.where(array > 0, 1, -1).astype(jnp.int8)  # noqa: E731
        last, values = partial(activations.channels_last, self.program), residuals.values
        return Activations(
            [(jnp.ones(1, jnp.int32), sign(values[value])[None]) for value in self.rectifiers],
            [last(value, values[value])[None] for value in self._features],
        )

    def rectifier_values(
        self, params: PyTree, residuals: Residuals
    ) -> list[tuple[Array, Array, Array]]:
        """Values at rectifiers; none where some may be in branches that no trace follows."""
        if activations.hidden(self.program, GATES):
            return []
        derived, pairs = self.program.derive(jax.tree.leaves(params)), self.rectifiers.items()

        def one(point: Array) -> list[tuple[Array, Array]]:
            arrays = self.program.run(derived, point)
            return [(arrays[before], arrays[after]) for before, after in pairs]

        last = lambda v, array: activations.channels_last(self.program, v, array)[None]  # noqa: E731
        found = zip(pairs, jax.vmap(one)(residuals.points), strict=True)
        once = jnp.ones(1, jnp.int32)
        return [(once, last(x, before), last(y, after)) for (x, y), (before, after) in found]

    def pullbacks(
        self, params: PyTree, residuals: Residuals, key: Array
    ) -> list[tuple[Array, Array]]:
        derived, points = self.program.derive(jax.tree.leaves(params)), residuals.points
        run = partial(self.program.run, derived, instead=self._convolutions, stop_at=self.blocks)
        return activations.pullbacks(self.program, self.blocks, run, points, key)

    def kinds_of(self, params: PyTree) -> list[str]:
        """The kind of each leaf by its name, or by its use; `FIXED` of no parameters."""
        return [FIXED if leaf in self.fixed else kind for leaf, kind in enumerate(self.kinds)]

    def unnormalized(self, params: PyTree, points: Points) -> Logits | None:
        return normalizations.unnormalized(self.program, jax.tree.leaves(params), points)

    def standardized(
        self, params: PyTree, points: Points, others: Points
    ) -> tuple[Points, Points, Array] | None:
        leaves = jax.tree.leaves(params)
        return normalizations.standardized(self.program, leaves, points, others, self._last)


def _gram(
    terms: Sequence[KernelTerm],
    factors: Sequence[Sequence[Factors]],
    sizes: Sequence[int],
    pairs: Pairs,
) -> dict[str, Array]:
    """The kernel by the terms' kinds, from the factors of sets of points of these sizes."""
    total: dict[str, Array] = {}
    for term in terms:
        sets = [[term.factors(each)] for each in factors]
        # One after the other, so that no two leaves' gradients are held at once.
        total, sets = lax.optimization_barrier((total, sets))
        gram = term.gram(sets, tuple(sizes), pairs)
        total[term.kind] = total[term.kind] + gram if term.kind in total else gram
    return total


def _is_finite(array: Array) -> bool:
    return not jnp.issubdtype(array.dtype, jnp.inexact) or bool(jnp.isfinite(array).all())
