"""A network's normalisations, read from its trace; and the network without them or with others."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ntkscore.model import Logits, Points
from ntkscore.trace.inside import ROOTS, SHAPING, channel_axis, hidden
from ntkscore.trace.program import Constant, Instead, Program, Value

EPSILON = 1e-5
"""What is added to a variance, where networks are standardised."""


class Normalization(NamedTuple):
    """A normalisation by a mean and a variance: (z − μ) / √(σ² + ε).

    Attributes:
        root: place of the equation 1/√ or √.
        centring: place of z − μ; None where there is no mean.
    """

    root: int
    centring: int | None


def normalizations(program: Program) -> list[Normalization]:
    """The normalisations: roots of a value plus a small constant that a value is scaled by."""
    return [
        Normalization(place, _centring(program, place))
        for place in sorted(program.live)
        if program.equations[place].name in ROOTS
        and program.equations[place].values
        and _plus_constant(program, place)
    ]


def _plus_constant(program: Program, place: int) -> bool:
    """Whether the root is that of v + ε."""
    (value, *_) = program.equations[place].values
    while (equation := program.maker(value)) is not None and equation.name in SHAPING:
        if not equation.values:
            return False
        value = equation.values[0]
    return equation is not None and equation.name == "add" and len(equation.values) == 1


def _centring(program: Program, root: int) -> int | None:
    """The difference that meets the root's outcome in a product or quotient."""
    pending, seen = [program.equations[root].outputs[0]], set[Value]()
    of_point = program.values[pending[0]].of_point
    while pending:
        value = pending.pop()
        seen.add(value)
        for place in program.users.get(value, []):
            equation = program.equations[place]
            if equation.name not in SHAPING | {"mul", "div"}:
                continue
            for other in equation.values:
                maker = program.maker(other)
                if other in seen or maker is None or maker.name != "sub":
                    continue
                fits = program.values[other].of_point or not of_point
                if fits and not isinstance(maker.inputs[0], Constant):
                    return program.place(other)
            pending += equation.outputs
    return None


def statistics(program: Program) -> frozenset[int]:
    """Places of leaves that the network only normalises by, as by running means and variances.

    A variance is a leaf under a root, to which a small constant is added; a mean is a leaf that is
    subtracted from what this root scales.
    """
    found = set[int]()
    for each in normalizations(program):
        (under, *_) = program.equations[each.root].values
        variance = _leaf_alone(program, under)
        if variance is None or program.values[under].of_point:
            continue
        found.add(variance)
        if each.centring is not None:
            means = (_leaf_alone(program, v) for v in program.equations[each.centring].values)
            found |= {mean for mean in means if mean is not None}
    return frozenset(found)


def _leaf_alone(program: Program, value: Value) -> int | None:
    """The one leaf that a value is, but for its shape and a constant added."""
    while value not in program.leaves:
        equation = program.maker(value)
        if equation is None or equation.name not in SHAPING | {"add"} or len(equation.values) != 1:
            return None
        (value,) = equation.values
    return program.leaves.index(value)


def image_normalizer(program: Program) -> Iterator[tuple[int, int]]:
    """Places of the equations that shift or scale the images by constants; their image's input."""
    for place, equation in program.of_point():
        if equation.name not in ("add", "sub", "mul", "div") or len(equation.inputs) != 2:
            continue
        output = program.values[equation.outputs[0]]
        of_point = [
            k
            for k, each in enumerate(equation.inputs)
            if not isinstance(each, Constant) and program.values[each].of_point
        ]
        shapes = {output.shape, program.values[equation.values[0]].shape}
        if not output.leaves and len(of_point) == 1 and len(shapes) == 1:
            yield place, of_point[0]


def unnormalized(program: Program, leaves: Sequence[Array], points: Points) -> Logits | None:
    """Logits without the images' normaliser and the layers' normalisations.

    Args:
        program: the network.
        leaves: its weights.
        points: where.

    Returns:
        The logits; None where some normalisation may be in a branch that a trace does not follow.
    """
    if hidden(program, ROOTS):
        return None
    instead: dict[int, Callable[..., Any]] = {}
    for each in normalizations(program):
        instead[each.root] = _one
        if each.centring is not None:
            instead[each.centring] = lambda z, mean: [z + jnp.zeros_like(mean)]
    instead |= _without_image_normalizer(program)
    found, logits = program.derive(leaves, instead), program.logits
    assert not isinstance(logits, Constant)
    return jax.vmap(lambda x: program.run(found, x, instead=instead)[logits])(points)


def _one(*given: Array) -> list[Array]:
    return [jnp.ones_like(given[0])]


def _without_image_normalizer(program: Program) -> Instead:
    return {
        place: lambda *given, kept=kept: [given[kept]] for place, kept in image_normalizer(program)
    }


def standardized(
    program: Program, leaves: Sequence[Array], points: Points, others: Points
) -> tuple[Points, Points, Float[Array, ""]] | None:
    """Features before the mean over the pixels at two batches, standardised by the first.

    Every normalisation is by the mean and the variance of each channel over the first batch and its
    pixels, whatever it is by in the network.

    Args:
        program: the network.
        leaves: its weights.
        points, others: behind the images' normaliser.

    Returns:
        The features at the two, and Σ ln σ, σ² the mean over the channels of a normalisation's
        variance. None where a normalisation has no mean or may be in a branch that a trace does not
        follow, or where it is not clear which features these are.
    """
    found = normalizations(program)
    features = _before_mean(program, {each.centring for each in found})
    if features is None or hidden(program, ROOTS):
        return None
    needed, places = program.needed([features]), {place for place, _ in program.of_point()}
    roots, layouts = dict(_without_image_normalizer(program)), {}
    for each in found:
        # What the weights are normalised by is a part of them.
        if each.root not in needed or places.isdisjoint(each):
            continue
        layout = None if each.centring is None else _layout(program, each.centring)
        if layout is None:
            return None
        roots[each.root] = _one
        layouts[each.centring] = layout
    known = program.derive(leaves, roots)

    def one(point: Array, other: Array) -> tuple[Array, Array, Array]:
        measured: dict[int, tuple[Array, Array]] = {}

        def normalize(place: int) -> Callable[..., list[Array]]:
            shape, axis = layouts[place]
            pixels = tuple(k for k in range(len(shape)) if k != axis)

            def once(z: Array) -> Array:
                return lax.pmean(jnp.mean(z, pixels, keepdims=True), "points")

            def mean(z: Array) -> Array:
                # And of what that leaves over, so that a constant has no variance.
                return (first := once(z)) + once(z - first)

            def standardize(z: Array, _: Array) -> list[Array]:
                whole = z.reshape(shape)
                if place not in measured:
                    centre = mean(whole)
                    measured[place] = centre, mean(jnp.square(whole - centre))
                centre, variance = measured[place]
                return [((whole - centre) * lax.rsqrt(variance + EPSILON)).reshape(z.shape)]

            return standardize

        instead = roots | {place: normalize(place) for place in layouts}
        here, there = (program.run(known, x, instead=instead)[features] for x in (point, other))
        variances = [jnp.mean(variance) for _, variance in measured.values()]
        # The variance of a constant is 0: it is as good as not normalised.
        logs = [jnp.log(jnp.where(v == 0, 1, v)) for v in variances]
        return here, there, sum(logs, jnp.zeros((), here.dtype)) / 2

    here, there, logs = jax.vmap(one, axis_name="points")(points, others)
    return here, there, logs[0]


def _layout(program: Program, centring: int) -> tuple[tuple[int, ...], int] | None:
    """The shape, and the axis of channels in it, of what a normalisation centres.

    They are those before it was reshaped into groups. None where there are none.
    """
    value: Value | Constant | None = program.equations[centring].inputs[0]
    while value is not None and not isinstance(value, Constant):
        if (axis := channel_axis(program, value)) is not None:
            return program.values[value].shape, axis
        maker = program.maker(value)
        value = maker.inputs[0] if maker is not None and maker.name == "reshape" else None
    return None


def _before_mean(program: Program, centrings: Collection[int | None]) -> Value | None:
    """What the last operation takes that leaves fewer positions, such as a mean over the pixels.

    Of a network without positions it is what the last linear layer takes. None where there are
    several such operations, as the steps of a recurrent network.
    """
    assert not isinstance(program.logits, Constant)
    pending, seen, found = [program.logits], set[Value](), list[Value]()
    last: Value | None = None
    while pending:
        value = pending.pop(0)
        place = program.place(value)
        if value in seen or place is None:
            continue
        seen.add(value)
        equation = program.equations[place]
        if equation.name in ROOTS or equation.name == "conv_general_dilated":
            continue
        taken = [each for each in equation.values if program.values[each].of_point]
        # What a mean is taken from, and not the mean.
        taken = taken[:1] if place in centrings else taken
        if equation.name == "dot_general" and last is None:
            last = taken[0]
        if len(taken) == 1 and _loses_positions(program, taken[0], value):
            found.append(taken[0])
        else:
            pending += taken
    if not found and last is not None and program.values[last].leaves:
        return last
    return found[0] if len(found) == 1 else None


def _loses_positions(program: Program, taken: Value, made: Value) -> bool:
    """Whether a value is made of another, which weights take part in, at fewer positions."""

    def positions(value: Value) -> int | None:
        axis, shape = channel_axis(program, value), program.values[value].shape
        return None if axis is None else math.prod(shape) // shape[axis]

    before, after = positions(taken), positions(made)
    if before is None or after is None or not program.values[taken].leaves:
        return False
    return after < before
