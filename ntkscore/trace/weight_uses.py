"""Uses of a network's weights, leaf by leaf, and the terms of the kernel that they give."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ntkscore.trace.operations import OPERATIONS, SHAPING, UNCHANGED
from ntkscore.trace.pairs import Pairs
from ntkscore.trace.parameters import kind_or_none
from ntkscore.trace.product_kernels import Factors, gram
from ntkscore.trace.products import Product
from ntkscore.trace.program import Equation, Program, Value
from ntkscore.trace.sites import Site, sites_of
from ntkscore.trace.sketches import sketch

SMALL = 2**14
"""Entries of leaves whose Gram matrices are computed together."""
Box = tuple[tuple[int, int], ...]
"""Limits along each axis."""


class LeafSlice(NamedTuple):
    """A weight that is a leaf, or a part of one, times a number.

    Attributes:
        leaf: number of the leaf, in the order of `jax.tree.leaves`.
        factor: the number that it is multiplied by.
        box: first and last index (exclusive) along each axis of the leaf, between which it lies.
        in_place: whether it is all entries in the box, in the order of the leaf.
    """

    leaf: int
    factor: float
    box: Box
    in_place: bool = True

    def apart_from(self, other: "LeafSlice") -> bool:
        """Whether two parts of a leaf have no entry in common."""
        limits = zip(self.box, other.box, strict=True)
        return any(a[1] <= b[0] or b[1] <= a[0] for a, b in limits)


def leaf_slice_of(program: Program, value: Value) -> LeafSlice | None:
    """The part of a leaf that a weight is; None where it is computed from leaves otherwise."""
    if not jnp.issubdtype(value.dtype, jnp.floating):
        return None
    if value in program.leaves:
        whole = tuple((0, size) for size in value.shape)
        return LeafSlice(program.leaves.index(value), 1.0, whole)
    equation = program.maker(value)
    if equation is None or len(equation.weights) != 1:
        return None
    (before,) = equation.weights
    leaf_slice = leaf_slice_of(program, before)
    if leaf_slice is None:
        return None
    if equation.name in ("slice", "split"):
        if not leaf_slice.in_place:
            return leaf_slice
        steps = {*(equation.options.get("strides") or ())} - {1}
        return leaf_slice._replace(box=_cut(equation, value, leaf_slice.box), in_place=not steps)
    same_size = prod(before.shape) == prod(value.shape)
    unchanged = equation.name in UNCHANGED and len(equation.inputs) == 1
    if unchanged or (equation.name == "broadcast_in_dim" and same_size):
        return leaf_slice._replace(in_place=False)
    if not equation.scales:
        return None
    constants = [each.constant for each in equation.inputs if each.constant is not None]
    number = float(np.asarray(constants[0]).item())  # a number, or an array of one
    factor = leaf_slice.factor * number if equation.name == "mul" else leaf_slice.factor / number
    return leaf_slice._replace(factor=factor) if factor else None


def _cut(equation: Equation, value: Value, box: Box) -> Box:
    """The limits in a leaf of a slice of its part, or of one of the pieces of a split."""
    options = equation.options
    if equation.name == "slice":
        ends = zip(options["start_indices"], options["limit_indices"], strict=True)
        return tuple(
            (first + start, first + stop)
            for (first, _), (start, stop) in zip(box, ends, strict=True)
        )
    axis, place = options["axis"], equation.outputs.index(value)
    start = box[axis][0] + int(sum(options["sizes"][:place]))
    limits = (start, start + int(options["sizes"][place]))
    return (*box[:axis], limits, *box[axis + 1 :])


class WeightUses(NamedTuple):
    """All sites at which some leaves meet the point.

    Their kernel is computed together, because a leaf's gradient is the sum over its uses.

    Attributes:
        leaves: numbers of the leaves, in the order of `jax.tree.leaves`.
        sites: where they meet the point, first to last.
        leaf_slice: the weight, where the sites are products by one weight, which is a part of a
            leaf; None where leaves are used in several ways, or through a function of their own.
    """

    leaves: tuple[int, ...]
    sites: tuple[Site, ...]
    leaf_slice: LeafSlice | None

    def first_entry(self, program: Program, leaf: int) -> int:
        """The place, in a leaf that is flattened, of the first entry that the sites take."""
        weights = {weight for site in self.sites for weight in site.weights}
        slices = [leaf_slice_of(program, weight) for weight in weights]
        starts = [
            tuple(start for start, _ in each.box)
            for each in slices
            if each is not None and each.leaf == leaf
        ]
        shape = program.leaves[leaf].shape
        return int(np.ravel_multi_index(min(starts), shape)) if starts and shape else 0

    @property
    def products(self) -> tuple[Product, ...]:
        """The sites as products, where they are products by one weight."""
        if self.leaf_slice is None:
            return ()
        return tuple(site.product for site in self.sites if site.product is not None)

    def factors(
        self,
        program: Program,
        weights: Sequence[Array],
        derived: Mapping[Value, Array],
        points: Mapping[Value, Array],
        cotangents: Mapping[Value, Array],
    ) -> Factors:
        """The arrays that the leaves' kernel is made of, each with an axis of points.

        They are values of the points and cotangents for products, else the gradients of each leaf.

        Args:
            derived: values that no point takes part in.
            points: values of the points, (m, …).
            cotangents: of the sites' outputs, (m, …).
        """
        if self.leaf_slice is not None:
            # Of networks that compute in fewer bits, the kernel has the weights' own precision.
            dtype = weights[self.leaf_slice.leaf].dtype
            pairs = [(points[s.points[0]], cotangents[s.outputs[0]]) for s in self.sites]
            return [(x.astype(dtype), g.astype(dtype)) for x, g in pairs]
        totals: dict[Value, Array] = {}
        for site in self.sites:
            gradients = site.gradients(derived, points, cotangents)
            for value, gradient in zip(site.weights, gradients, strict=True):
                totals[value] = totals[value] + gradient if value in totals else gradient

        def values_of(leaves: Sequence[Array]) -> list[Array]:
            changed = list(weights)
            for place, leaf in zip(self.leaves, leaves, strict=True):
                changed[place] = leaf
            arrays = program.derive(changed, wanted=totals)
            return [arrays[value] for value in totals]

        _, pullback = jax.vjp(values_of, [weights[place] for place in self.leaves])
        (rows,) = jax.vmap(pullback)(list(totals.values()))
        return [(each,) for each in rows]

    def sketches(
        self, factors: Factors, key: Array, size: int, factored: bool = False
    ) -> dict[int, Float[Array, "m s"]]:
        """Each point's gradients, by leaf, on some random numbers (`ntkscore.trace.sketches`).

        Args:
            factors: of some points.
            key: of the leaves' draws.
            size: how many numbers.
            factored: whether the two sides of products are projected apart.
        """
        if self.leaf_slice is not None:
            few = sketch(self.products, factors, key, size, factored)
            return {self.leaf_slice.leaf: few * self.leaf_slice.factor}
        keys = jax.random.split(key, len(factors))
        few = [sketch((), [row], k, size, False) for row, k in zip(factors, keys, strict=True)]
        return dict(zip(self.leaves, few, strict=True))


class KernelTerm(NamedTuple):
    """A term of the kernel: weights of one kind whose Gram matrix is computed at once.

    Attributes:
        kind: of parameters.
        products: of the weight's uses; none where gradients of leaves are taken.
        factor: of the gradients.
        places: numbers of the `WeightUses`, each with that of a leaf among theirs.
    """

    kind: str
    products: tuple[Product, ...]
    factor: float
    places: tuple[tuple[int, int], ...]

    def factors(self, factors: Sequence[Any]) -> Any:
        """The term's factors, among those of all `WeightUses`."""
        if self.products:
            return factors[self.places[0][0]]
        return [factors[place][leaf] for place, leaf in self.places]

    def gram(self, sets: Sequence[Sequence[Any]], sizes: tuple[int, ...], pairs: Pairs) -> Array:
        """The kernel, from the term's factors (`ntkscore.trace.product_kernels.gram`)."""
        return self.factor**2 * gram(self.products, sizes, pairs, sets)


def kernel_terms(
    program: Program, weight_uses: Sequence[WeightUses], kinds: Sequence[str | None]
) -> list[KernelTerm]:
    """All weights: those of products and large leaves alone, small leaves together by kind.

    Args:
        kinds: of all leaves, or any other names that tell them apart; None of those left out.
    """
    terms, small = [], dict[str, list[tuple[int, int]]]()
    for place, each in enumerate(weight_uses):
        if each.leaf_slice is not None:
            kind, factor = kinds[each.leaf_slice.leaf], each.leaf_slice.factor
            if kind is not None:
                terms.append(KernelTerm(kind, each.products, factor, ((place, 0),)))
            continue
        for index, leaf in enumerate(each.leaves):
            kind = kinds[leaf]
            if kind is None:
                continue
            if prod(program.leaves[leaf].shape) > SMALL:
                terms.append(KernelTerm(kind, (), 1.0, ((place, index),)))
            else:
                small.setdefault(kind, []).append((place, index))
    together = [KernelTerm(kind, (), 1.0, tuple(places)) for kind, places in small.items()]
    return terms + together


def weight_uses_of(program: Program) -> list[WeightUses]:
    """All leaves that the logits depend on, those together that are used together."""
    used: dict[Value, list[Site]] = {}
    for site in sites_of(program):
        for weight in site.weights:
            used.setdefault(weight, []).append(site)
    slices = {weight: leaf_slice_of(program, weight) for weight in used}
    places = {weight: {site.place for site in sites} for weight, sites in used.items()}

    def together(a: Value, b: Value) -> bool:
        if not places[a].isdisjoint(places[b]):
            return True
        if a.leaves.isdisjoint(b.leaves):
            return False
        one, other = slices[a], slices[b]
        return one is None or other is None or not one.apart_from(other)

    groups: list[list[Value]] = []
    for weight in used:
        linked = [group for group in groups if any(together(weight, each) for each in group)]
        groups = [group for group in groups if group not in linked]
        groups.append([*(each for group in linked for each in group), weight])
    return [_weight_uses(group, used, slices) for group in groups]


def _weight_uses(
    weights: list[Value],
    used: Mapping[Value, list[Site]],
    slices: Mapping[Value, LeafSlice | None],
) -> WeightUses:
    leaves = sorted(frozenset[int]().union(*(each.leaves for each in weights)))
    by_place = {site.place: site for weight in weights for site in used[weight]}
    sites = tuple(by_place[place] for place in sorted(by_place))
    alike = {site.product and site.product.order for site in sites}
    simple = len(weights) == len(alike) == 1 and None not in alike
    return WeightUses(tuple(leaves), sites, slices[weights[0]] if simple else None)


def kinds_by_use(program: Program, weight_uses: Sequence[WeightUses]) -> list[str]:
    """The kind of each leaf: by what is done with it, by its name where it is changed before."""

    def kind(leaf: int) -> str:
        value = program.leaves[leaf]
        uses = [
            (site, weight)
            for each in weight_uses
            if leaf in each.leaves
            for site in each.sites
            for weight in site.weights
            if leaf in weight.leaves
        ]
        kinds = {_kind_at(program, site) for site, _ in uses}
        of_use = kinds.pop() if len(kinds) == 1 else None
        by_name = kind_or_none(program.paths[leaf], value)
        if all(program.before(weight, SHAPING | UNCHANGED) == value for _, weight in uses):
            return of_use or by_name or "weight"
        return by_name or of_use or "weight"

    return [kind(leaf) for leaf in range(len(program.leaves))]


def _kind_at(program: Program, site: Site) -> str | None:
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
