"""A network's forward and backward passes, from the trace of its `apply`.

A zero is added to the output of every equation in which weights meet the point. One backward pass
in these zeros leaves the cotangent of each, from which the kernel, the weights' gradients and the
gradient in the points follow. No equation runs twice.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ntkscore.errors import InputError
from ntkscore.grams import GramByKind, groups_of
from ntkscore.model import Activations, Logits, Model, Passes, Points, Visit
from ntkscore.trace import activations, normalizations
from ntkscore.trace.logits import fast_gradients
from ntkscore.trace.operations import GATES, OPERATIONS, SHAPING, UNCHANGED
from ntkscore.trace.pairs import Groups
from ntkscore.trace.parameters import FIXED, fixed_leaves, kind_or_none
from ntkscore.trace.product_kernels import Factors
from ntkscore.trace.products import Product
from ntkscore.trace.program import Program, Value
from ntkscore.trace.sites import Site
from ntkscore.trace.weight_uses import kernel_terms, weight_uses_of


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

    A point's gradient in the weights is not its own there, and rectifiers and blocks are of the
    batch.

    Args:
        model: the network.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def forward(self, params: PyTree, points: Points, /) -> tuple[Logits, Any]:
        """Logits of points, and the residuals that the backward pass needs."""
        return jax.vjp(lambda points: self.model.apply(params, points), points)

    def gradient(self, params: PyTree, residuals: Any, cotangent: Logits) -> Points:
        """The gradient in the points, from the cotangent of their logits."""
        return residuals(cotangent)[0]

    def gram_by_kind(
        self, params: PyTree, residuals: Any, cotangent: Logits, start: GramByKind
    ) -> NoReturn:
        """Refuse: `ntvp` computes the kernel."""
        raise NotImplementedError("a network whose points meet each other has no kernel by kind")

    def layers(self, params: PyTree, residuals: Any, cotangent: Logits, visit: Any, /) -> NoReturn:
        """Refuse: there are no gradients of single points."""
        raise NotImplementedError("a network whose points meet each other has no layers")


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
        values, cotangents = self.factors
        if not self.products:
            return values[0]
        uses = zip(self.products, values, cotangents, strict=True)
        first, *others = (product.gradients(x, g) for product, x, g in uses)
        return self.factor * sum(others, first)

    @property
    def first(self) -> Float[Array, " m"]:
        values, cotangents = self.factors
        if not self.products:
            return values[0].reshape(len(values[0]), -1)[:, self.offset]
        uses = zip(self.products, values, cotangents, strict=True)
        # Σ_p x_p g_p, of the first product's first features.
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
        inner: as for `Program`.

    Raises:
        InputError: if the logits do not depend on the point, or the network has no weights.
    """

    def __init__(self, model: Model, point: Any, inner: bool = False) -> None:
        if not jax.tree.leaves(model.params):
            raise InputError(
                "weights to differentiate in", "none", "give them as Model(apply, params)"
            )
        self.fixed = fixed_leaves(model.params)
        given = model.apply, model.params, point
        program = Program(*given, self.fixed, inner)
        if statistics := normalizations.statistics(program):
            self.fixed |= statistics
            program = Program(*given, self.fixed, inner)
        self.program, logits = program, program.logits
        if not isinstance(logits, Value) or not logits.of_point:
            raise InputError(
                "logits that depend on the images",
                "some that are the same for all",
                "use the second argument of apply",
            )
        self.logits, self.dtype = logits, logits.dtype
        self.weight_uses = weight_uses_of(program)
        self.rectifiers, self.blocks = activations.rectifiers(program), activations.blocks(program)
        self._features = self.blocks or [*self.rectifiers.values()]
        sites = [site for each in self.weight_uses for site in each.sites]
        self._outputs = {value for site in sites for value in site.outputs}
        inputs = {value for site in sites for value in site.points}
        self._residuals = sorted(inputs.union(self.rectifiers, self._features))
        self.kinds = [self._kind(leaf) for leaf in range(len(program.leaves))]
        self.terms = kernel_terms(program, self.weight_uses, self.kinds)
        self._convolutions = fast_gradients(program)

    @property
    def unused(self) -> list[tuple]:
        """Paths to weights on which the logits do not depend."""
        used = self.fixed.union(*(each.leaves for each in self.weight_uses))
        return [path for leaf, path in enumerate(self.program.paths) if leaf not in used]

    def _kind(self, leaf: int) -> str:
        """The kind of a leaf: by what is done with it, by its name where it is changed before."""
        program, value = self.program, self.program.leaves[leaf]
        uses = [
            (site, weight)
            for each in self.weight_uses
            if leaf in each.leaves
            for site in each.sites
            for weight in site.weights
            if leaf in weight.leaves
        ]
        kinds = {_kind_by_use(program, site) for site, _ in uses}
        of_use = kinds.pop() if len(kinds) == 1 else None
        if all(program.before(weight, SHAPING | UNCHANGED) == value for _, weight in uses):
            by_name = kind_or_none(program.paths[leaf], value)
            return of_use or by_name or "weight"
        return kind_or_none(program.paths[leaf], value) or of_use or "weight"

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

    def _zeros(self, values: Collection[Value], count: int) -> dict[Value, Array]:
        return {v: jnp.zeros((count, *v.shape), v.dtype) for v in values}

    def forward(self, params: PyTree, points: Points) -> tuple[Logits, Residuals]:
        """Logits of points, and the residuals that the backward passes need."""
        derived = self.program.derive(jax.tree.leaves(params))

        def one(zeros: dict[Value, Array], point: Array) -> tuple[Array, dict[Value, Array]]:
            arrays = self.program.run(derived, point, zeros, self._convolutions)
            return arrays[self.logits], {value: arrays[value] for value in self._residuals}

        zeros = self._zeros(self._outputs, len(points))
        logits, pullback, values = jax.vjp(jax.vmap(one), zeros, points, has_aux=True)
        return logits, Residuals(pullback, values, points)

    def gradient(self, params: PyTree, residuals: Residuals, cotangent: Logits) -> Points:
        """The gradient in the points, from the cotangent of their logits."""
        return residuals.pullback(cotangent)[1]

    def gram_by_kind(
        self, params: PyTree, residuals: Sequence[Residuals], cotangent: Logits, start: GramByKind
    ) -> tuple[Points, GramByKind]:
        """The gradient in the points, and the Gram matrices by kind of parameter."""
        sizes = tuple(len(each.points) for each in residuals)
        cotangents = jnp.split(cotangent, list(accumulate(sizes[:-1])))
        pairs = [self.factors(params, *each) for each in zip(residuals, cotangents, strict=True)]
        total = {kind: jnp.zeros_like(gram) for kind, gram in start.items()}
        for term in self.terms if start else ():
            sets = [[term.factors(factors)] for _, factors in pairs]
            # One after the other, so that no two leaves' gradients are held at once.
            total, sets = lax.optimization_barrier((total, sets))
            total[term.kind] += term.gram(sets, sizes, Groups(groups_of(start)))
        return jnp.concatenate([gradient for gradient, _ in pairs]), total

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
        """Apply a function to each layer's weights' gradients; layers along the first axis."""
        _, factors = self.factors(params, residuals, cotangent)
        return self.visit_layers(params, factors, visit, len(residuals.points))

    def visit_layers(
        self, params: PyTree, factors: Sequence[Factors], visit: Visit, count: int
    ) -> PyTree:
        """Apply a function to each layer's weights' gradients; layers along the first axis.

        Args:
            params: the weights.
            factors: for each of the `weight_uses`.
            visit: the function.
            count: of the points, for a network without layers, of which the arrays have no entries.
        """
        visited = [visit(each) for each in self._weight_gradients(params, factors)]
        if visited:
            return jax.tree.map(lambda *parts: jnp.stack(parts), *visited)
        some = TracedGradient((), 1.0, 0, jnp.zeros(1), ([jnp.zeros((count, 1))], []))
        like = jax.eval_shape(lambda: visit(some))
        return jax.tree.map(lambda a: jnp.zeros((0, *a.shape), a.dtype), like)

    def _weight_gradients(
        self, params: PyTree, factors: Sequence[Factors]
    ) -> Iterator[TracedGradient]:
        """The gradients of each layer's weights, from the factors of the kernel."""
        weights = jax.tree.leaves(params)
        derived = self.program.derive(weights)
        for each, (values, cotangents) in zip(self.weight_uses, factors, strict=True):
            for place, leaf in enumerate(each.leaves):
                if self.kinds[leaf] != "weight":
                    continue
                offset = each.first_entry(self.program, leaf)
                if each.leaf_slice is None:
                    rows = [values[place]], []
                    yield TracedGradient((), 1.0, offset, weights[leaf], rows)
                    continue
                factor, weight = each.leaf_slice.factor, derived[each.sites[0].weights[0]]
                kernel = weight.astype(weights[leaf].dtype) / factor
                yield TracedGradient(each.products, factor, offset, kernel, (values, cotangents))

    def activations(self, params: PyTree, residuals: Residuals) -> Activations | None:
        """The signs of all rectifiers' inputs, and the blocks' outputs; else the rectifiers'.

        None where there are no rectifiers, or some may be in branches that a trace does not follow.
        """
        if not self.rectifiers or activations.hidden(self.program, GATES):
            return None
        return activations.read_off(self.program, self.rectifiers, self._features, residuals.values)

    def rectifier_values(
        self, params: PyTree, residuals: Residuals
    ) -> list[tuple[Array, Array, Array]]:
        """The inputs and outputs of the rectifiers, by a forward pass of their own."""
        leaves = jax.tree.leaves(params)
        return activations.around(self.program, self.rectifiers, leaves, residuals.points)

    def pullbacks(
        self, params: PyTree, residuals: Residuals, key: Array
    ) -> list[tuple[Array, Array]]:
        """Gradients at each block's input, of random signs at its output; and the signs.

        A block's input is the output of the one before. Blocks whose pixels are no multiple of the
        next one's are left out.
        """
        if len(self.blocks) < 2:
            return []
        derived = self.program.derive(jax.tree.leaves(params))

        def one(zeros: dict[Value, Array], point: Array) -> list[Array]:
            arrays = self.program.run(derived, point, zeros, self._convolutions, self.blocks)
            return [arrays[value] for value in self.blocks]

        zeros = self._zeros(self.blocks, len(residuals.points))
        outputs, pullback = jax.vjp(lambda zeros: jax.vmap(one)(zeros, residuals.points), zeros)
        keys = jax.random.split(key, len(outputs))
        signs = [
            jax.random.rademacher(each, array.shape, array.dtype)
            for each, array in zip(keys, outputs, strict=True)
        ]
        (gradients,) = pullback(signs)
        images = [activations.images(self.program, value) for value in self.blocks]
        pairs = [
            (images[k - 1](gradients[self.blocks[k - 1]]), images[k](signs[k]))
            for k in range(1, len(self.blocks))
        ]
        return [(left[None], right[None]) for left, right in pairs if fitting(left, right)]

    def kinds_of(self, params: PyTree) -> list[str]:
        """The kind of each leaf by its name, or by its use; `FIXED` of no parameters."""
        return [FIXED if leaf in self.fixed else kind for leaf, kind in enumerate(self.kinds)]

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


def _kind_by_use(program: Program, site: Site) -> str | None:
    """The kind of the weights of a site; None where the operation does not tell."""
    known = OPERATIONS.get(site.equation.name)
    kind = known.kind if known else None
    if kind == "scale":
        # A product may be written as a multiplication of repeated values, and a sum.
        makers = [program.maker(value) for value in site.points]
        users = [program.equations[place] for place in program.users.get(site.outputs[0], [])]
        repeated = any(maker and maker.name == "broadcast_in_dim" for maker in makers)
        return "weight" if repeated and any(u.name == "reduce_sum" for u in users) else "scale"
    return "weight" if site.product is not None else kind


def fitting(left: Float[Array, "m h w c"], right: Float[Array, "m h2 w2 d"]) -> bool:
    """Whether the pixels of one are as many as those of the other, or a multiple."""
    sides = zip(left.shape[1:3], right.shape[1:3], strict=True)
    return all(a >= b and a % b == 0 for a, b in sides)


def _is_finite(array: Array) -> bool:
    return not jnp.issubdtype(array.dtype, jnp.inexact) or bool(jnp.isfinite(array).all())
