"""A network's normalisations, read from its trace; and the network without them or with others."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from ntkscore.model import Logits, Points
from ntkscore.trace.activations import NUMBERWISE, channel_axis, hidden
from ntkscore.trace.operations import REDUCTIONS, ROOTS, SHAPING
from ntkscore.trace.parameters import names_of
from ntkscore.trace.program import Equation, Instead, Program, Value

EPSILON = 1e-5
"""The summand of a variance, where networks are standardised."""

FRESH = 1e-2
"""How far a variance with its summand may be from 1 and is still that of a new normalisation."""


def normalizations(program: Program) -> dict[int, int | None]:
    """The normalisations (z − μ) / √(σ² + ε): places of 1/√ or √, with those of z − μ.

    They are the roots of a statistic plus a constant; None where there is no mean. A statistic is a
    leaf, or comes from a sum over some axes. A root of a number by itself, as in squareplus,
    belongs to an activation.
    """
    return {
        place: _centring(program, place)
        for place in program.live
        if program.equations[place].name in ROOTS
        and program.equations[place].values
        and _plus_constant(program, place)
        and _of_statistic(program, program.equations[place].values[0])
    }


def _plus_constant(program: Program, place: int) -> bool:
    """Whether the root is that of v + ε."""
    (value, *_) = program.equations[place].values
    equation = program.maker(program.before(value, SHAPING))
    return equation is not None and equation.name == "add" and len(equation.values) == 1


def _of_statistic(program: Program, value: Value) -> bool:
    """Whether a value is computed from leaves, and from sums over axes of the point, alone."""

    def through(value: Value, made: Equation) -> bool:
        return value.of_point and made.name in NUMBERWISE | SHAPING

    ends, _ = program.back([value], through)
    made = {end: program.maker(end) for end in ends if end.of_point}
    return all(maker is not None and maker.name in REDUCTIONS for maker in made.values())


def _centring(program: Program, root: int) -> int | None:
    """The difference that meets the root's outcome in a product or quotient."""
    pending, visited = list(program.equations[root].outputs), set[Value]()
    of_point = pending[0].of_point
    while pending:
        value = pending.pop()
        visited.add(value)
        for place in program.users.get(value, []):
            equation = program.equations[place]
            if equation.name not in SHAPING | {"mul", "div"}:
                continue
            for other in equation.values:
                maker = program.maker(other)
                if other in visited or maker is None or maker.name != "sub":
                    continue
                fits = other.of_point or not of_point
                if fits and maker.inputs[0].constant is None:
                    return program.place(other)
            pending += equation.outputs
    return None


def statistics(program: Program) -> frozenset[int]:
    """Places of leaves named `mean` and `var` that the network only normalises by.

    A variance is a leaf under a root; a mean is a leaf that is subtracted from what this root
    scales. A leaf of another name, or with another use, is a parameter wherever it stands.
    """
    uses: dict[int, set[int]] = {}
    for root, centring in normalizations(program).items():
        if program.equations[root].outputs[0].of_point:
            continue
        for name, place in ("var", root), ("mean", centring):
            if place is None:
                continue
            for value in program.equations[place].values:
                leaf, user = _origin(program, value, place)
                if leaf in program.leaves:
                    index = program.leaves.index(leaf)
                    if names_of(program.paths[index])[-1:] == [name]:
                        uses.setdefault(index, set()).add(user)
    return frozenset(
        leaf for leaf, places in uses.items() if {*program.users[program.leaves[leaf]]} <= places
    )


def are_fresh(program: Program, leaves: Sequence[Array]) -> Bool[Array, ""] | None:
    """Whether normalisations hold the mean 0 and the variance 1 that they are made with.

    None where none holds statistics.
    """
    makers = program.equations
    pairs = [
        (makers[root].values[0], mean)
        for root, centring in normalizations(program).items()
        if centring is not None and not makers[root].outputs[0].of_point
        if makers[centring].points
        for mean in makers[centring].values
        if not mean.of_point
    ]
    if not pairs:
        return None
    wanted = {value for pair in pairs for value in pair}
    derived = program.derive(leaves, wanted=wanted)
    ones = [(jnp.abs(derived[variance] - 1) < FRESH).all() for variance, _ in pairs]
    zeros = [(derived[mean] == 0).all() for _, mean in pairs]
    return jnp.stack(ones + zeros).all()


def _origin(program: Program, value: Value, user: int) -> tuple[Value, int]:
    """What a value is but for its shape and a constant added; and the equation that takes this."""
    while (maker := program.maker(value)) is not None and len(maker.values) == 1:
        if maker.name not in SHAPING | {"add", "max"}:
            break
        user = program.place(value) or 0
        (value,) = maker.values
    return value, user


def _without_image_normalizer(program: Program) -> Instead:
    """Functions that leave the images as they are where constants shift or scale them.

    An array that differs between architectures, such as a mask of colours, is a part of the
    network, and so is a factor with a zero.
    """
    instead: dict[int, Callable[..., Any]] = {}
    for place, equation in program.point_equations.items():
        if equation.name not in ("add", "sub", "mul", "div") or len(equation.inputs) != 2:
            continue
        (output,) = equation.outputs
        of_point = [k for k, each in enumerate(equation.inputs) if each.of_point]
        same_shape = output.shape == equation.values[0].shape
        if output.leaves or len(of_point) != 1 or not same_shape:
            continue
        (constant,) = (each for each in equation.inputs if not each.of_point)
        if _is_fixed(program, constant, factor=equation.name in ("mul", "div")):
            instead[place] = lambda *inputs, image=of_point[0]: [inputs[image]]
    return instead


def _is_fixed(program: Program, value: Value, *, factor: bool) -> bool:
    """Whether a number or array is the same for all networks of a trace; a factor has no zero."""
    if (array := program.known(value)) is not None:
        return not factor or bool(np.all(np.asarray(array) != 0))
    places = program.needed([value])
    sources = {value}.union(*(program.equations[place].values for place in places))
    if any(isinstance(program.constants.get(one), Tracer) for one in sources):
        return False
    if not factor or not sources.isdisjoint(program.leaves):
        return True
    with jax.ensure_compile_time_eval():
        unused = [jnp.zeros(())] * len(program.leaves)
        return bool(jnp.all(program.derive(unused, wanted=[value])[value] != 0))


def unnormalized(program: Program, leaves: Sequence[Array], points: Points) -> Logits | None:
    """Logits without the images' normaliser and the layers' normalisations.

    None where some normalisation may be in a branch that a trace does not follow.
    """
    if hidden(program, ROOTS):
        return None
    instead: dict[int, Callable[..., Any]] = {}
    for root, centring in normalizations(program).items():
        instead[root] = _ones
        if centring is not None:
            instead[centring] = lambda z, mean: [z + jnp.zeros_like(mean)]
    instead |= _without_image_normalizer(program)
    derived, logits = program.derive(leaves, instead), program.logits
    return jax.vmap(lambda x: program.run(derived, x, instead=instead)[logits])(points)


def _ones(*inputs: Array) -> list[Array]:
    return [jnp.ones_like(inputs[0])]


def standardized(
    program: Program, leaves: Sequence[Array], points: Points, others: Points, last: bool = True
) -> tuple[Points, Points, Float[Array, ""]] | None:
    """Features before the mean over the pixels at two batches, standardised by the first.

    Every normalisation takes the mean and the variance of each channel over the first batch and its
    pixels, whichever it takes in the network.

    Args:
        points, others: behind the images' normaliser.
        last: whether the mean is in this program; else the features are its output.

    Returns:
        The features at the two, and Σ ln σ, σ² the mean over the channels of a normalisation's
        variance. None where a normalisation has no mean or may be in a branch that a trace does not
        follow, or where it is not clear which features these are.
    """
    found = normalizations(program)
    features: Any = program.logits
    if last:
        features = _before_mean(program, found.values())
    if features is None or hidden(program, ROOTS):
        return None
    needed = program.needed([features])
    roots, layouts = dict(_without_image_normalizer(program)), {}
    for root, centring in found.items():
        # A normalisation of weights is a part of them.
        if root not in needed or program.point_equations.keys().isdisjoint((root, centring)):
            continue
        layout = None if centring is None else _layout(program, centring)
        if layout is None:
            return None
        roots[root] = _ones
        layouts[centring] = layout
    derived = program.derive(leaves, roots)

    def one(point: Array, other: Array) -> tuple[Array, Array, Array]:
        measured: dict[int, tuple[Array, Array]] = {}

        def normalize(place: int) -> Callable[..., list[Array]]:
            shape, axis = layouts[place]
            pixels = tuple(k for k in range(len(shape)) if k != axis)

            def once(z: Array) -> Array:
                return lax.pmean(jnp.mean(z, pixels, keepdims=True), "points")

            def mean(z: Array) -> Array:
                # The mean of the rest is added, so that a constant has no variance.
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
        here, there = (program.run(derived, x, instead=instead)[features] for x in (point, other))
        variances = [jnp.mean(variance) for _, variance in measured.values()]
        # The variance of a constant is 0: it is as good as not normalised.
        logs = [jnp.log(jnp.where(v == 0, 1, v)) for v in variances]
        return here, there, sum(logs, jnp.zeros((), here.dtype)) / 2

    here, there, logs = jax.vmap(one, axis_name="points")(points, others)
    return here, there, logs[0]


def _layout(program: Program, centring: int) -> tuple[tuple[int, ...], int] | None:
    """The shape of the value that a normalisation centres, and the axis of its channels.

    They are those before it was reshaped into groups. None where there are none.
    """
    value: Value | None = program.equations[centring].inputs[0]
    while value is not None and value.constant is None:
        if (axis := channel_axis(program, value)) is not None:
            return value.shape, axis
        maker = program.maker(value)
        value = maker.inputs[0] if maker is not None and maker.name == "reshape" else None
    return None


def _before_mean(program: Program, centrings: Collection[int | None]) -> Value | None:
    """The input of the last operation that leaves fewer positions, such as a mean over the pixels.

    Of a network without positions it is the input of the last linear layer. None where there are
    several such operations, as the steps of a recurrent network.
    """
    pending, visited, found = [program.logits], set[Value](), list[Value]()
    last: Value | None = None
    while pending:
        value = pending.pop(0)
        place = program.place(value)
        if value in visited or place is None:
            continue
        visited.add(value)
        equation = program.equations[place]
        if equation.name in ROOTS or equation.name == "conv_general_dilated":
            continue
        # The value that a mean is subtracted from, and not the mean.
        inputs = equation.points[:1] if place in centrings else equation.points
        if equation.name == "dot_general" and last is None:
            last = inputs[0]
        if len(inputs) == 1 and _loses_positions(program, inputs[0], value):
            found.append(inputs[0])
        else:
            pending += inputs
    if not found and last is not None and last.leaves:
        return last
    return found[0] if len(found) == 1 else None


def _loses_positions(program: Program, source: Value, target: Value) -> bool:
    """Whether a value is made of another, which weights take part in, at fewer positions."""

    def positions(value: Value) -> int | None:
        axis = channel_axis(program, value)
        return None if axis is None else math.prod(value.shape) // value.shape[axis]

    before, after = positions(source), positions(target)
    if before is None or after is None or not source.leaves:
        return False
    return after < before
