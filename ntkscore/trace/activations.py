"""A network's rectifiers, blocks and axes of channels, read from its trace."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, jaxprs_in_params
from jaxtyping import Array, Float

from ntkscore.trace.operations import GATES, POINTWISE, ROOTS, SHAPING
from ntkscore.trace.program import INLINED, Equation, Options, Program, Value
from ntkscore.trace.windows import all_equations

NUMBERWISE = POINTWISE | GATES
"""Operations on each number by itself, the functions with a rule for their derivative among them:
in networks these are activations."""


def rectifiers(program: Program) -> dict[Value, Value]:
    """The inputs of the network's rectifiers with their outputs, first to last.

    They are max(x, 0); and, by the sign of x, products of x and a function of x alone such as GELU
    and SiLU, and choices between functions of x such as leaky ReLU and ELU.
    """
    found: dict[Value, Value] = {}
    for equation in program.point_equations.values():
        value = _rectified(program, equation)
        if value is not None and value.leaves:
            found[value] = equation.outputs[0]
    # Within a gate of x, as in hard swish, a rectifier is no further one.
    inner = {a for a in found for b in found if a != b and _of_alone(program, a, b)}
    return {value: output for value, output in found.items() if value not in inner}


def _rectified(program: Program, equation: Equation) -> Value | None:
    """The value that an equation rectifies; None where it rectifies none."""
    values = equation.values
    if equation.name in ("max", "min") and _zeros(program, equation.inputs):
        (x,) = (each for each in values if not _zeros(program, [each]))
        return None if _under_a_root(program, equation) else x
    if equation.name == "custom_jvp_call":
        names = {each.primitive.name for each in _inner(equation.options)} - INLINED
        rectifies = "max" in names and names <= {"max", "min"}
        return values[0] if rectifies else None
    if equation.name == "select_n" and len(values) > 1:
        x = _compared(program, values[0])
        alone = (_of_alone(program, each, x, learned=True) for each in values[1:] if x)
        return x if x and all(alone) else None
    if equation.name in ("mul", "max", "min", "add", "sub") and len(values) == 2:
        for one, gate in (values, values[::-1]):
            x = _unscaled(program, one)
            if not x.of_point or gate == x or not x.leaves:
                continue
            match equation.name:
                case "mul":
                    found = _of_alone(program, gate, x, GATES) or _compared(program, gate) == x
                case "max" | "min":  # max(x, a·x)
                    found = _unscaled(program, gate, by_leaves=True) == x
                case _:  # (x + |x|) / 2
                    found = _of_absolute(program, gate) == x
            if found:
                return x
    return None


def _of_absolute(program: Program, value: Value) -> Value | None:
    """The value that another is the absolute value of, but for a constant factor."""
    maker = program.maker(_unscaled(program, value))
    if maker is None or maker.name != "abs":
        return None
    return _unscaled(program, maker.values[0])


def _compared(program: Program, value: Value) -> Value | None:
    """The value that another is a comparison with zero of, or the sign of."""
    maker = program.maker(program.before(value, {"convert_element_type", "stop_gradient"}))
    if maker is None or maker.name not in ("ge", "gt", "le", "lt", "sign"):
        return None
    if maker.name != "sign" and not _zeros(program, maker.inputs):
        return None
    return next((each for each in maker.values if not _zeros(program, [each])), None)


def _zeros(program: Program, values: Sequence[Value]) -> bool:
    """Whether a number among some is zero, or an array of zeros."""
    for value in values:
        if value.of_point or value.leaves:
            continue
        value = program.before(value, SHAPING)
        maker = program.maker(value)
        value = maker.inputs[0] if maker is not None and maker.name in SHAPING else value
        array = program.known(value)
        if array is not None and not np.any(np.asarray(array)):
            return True
    return False


def _unscaled(program: Program, value: Value, by_leaves: bool = False) -> Value:
    """A value before it was cast, or multiplied by a constant, or by what weights alone make."""
    while (equation := program.maker(value)) is not None:
        cast = equation.name == "convert_element_type" and len(equation.values) == 1
        learned = by_leaves and equation.name == "mul" and len(equation.points) == 1
        if not (cast or equation.scales or learned):
            break
        (value,) = equation.points or equation.values
    return value


def _of_alone(
    program: Program,
    value: Value,
    x: Value,
    through: Collection[str] = (),
    learned: bool = False,
) -> bool:
    """Whether a value is a function of each number of x alone.

    Args:
        through: operations of which there must be one, if there are any.
        learned: whether weights may take part, as the slope of PReLU does.
    """
    ends, places = program.back(
        [value], lambda value, made: value != x and value.of_point and made.name in NUMBERWISE
    )
    names = {program.equations[place].name for place in places}
    alone = all(end == x or not (end.of_point or (end.leaves and not learned)) for end in ends)
    return alone and (not through or not names.isdisjoint(through))


def _under_a_root(program: Program, equation: Equation) -> bool:
    """Whether the outcome goes to a square root alone, as a variance kept from being negative."""
    users = [program.equations[place] for place in program.users.get(equation.outputs[0], [])]
    return bool(users) and all(
        user.name in ROOTS
        or (
            user.name in SHAPING | {"add"}
            and len(user.values) == 1
            and _under_a_root(program, user)
        )
        for user in users
    )


def blocks(program: Program) -> list[Value]:
    """The outputs of the network's blocks, first to last.

    A block ends where two branches meet that both have weights: where they are added, as at a skip
    connection, or concatenated. A network without such places has none.
    """
    found = []
    for equation in program.point_equations.values():
        branches = {value for value in equation.points if value.leaves}
        if equation.name not in ("add", "add_any", "concatenate") or len(branches) < 2:
            continue
        # Terms of a function of one value, as in GELU, are no branches.
        if len(set[Value]().union(*(_origins(program, value) for value in branches))) > 1:
            found.append(equation.outputs[0])
    return found


def _origins(program: Program, value: Value) -> set[Value]:
    """The values that a value is made of, number by number, by operations without weights."""

    def through(value: Value, made: Equation) -> bool:
        return made.name in NUMBERWISE and len(made.points) == len(made.values)

    return program.back([value], through)[0]


def hidden(program: Program, names: Collection[str]) -> bool:
    """Whether branches or loops, which a trace does not follow, have some operation in them."""
    return any(
        inner.primitive.name in names
        for equation in program.point_equations.values()
        if equation.name in ("cond", "while", "scan")
        for inner in _inner(equation.options)
    )


def _inner(options: Options) -> Iterator[JaxprEqn]:
    """The equations of the functions that an equation holds, and those within them."""
    for jaxpr in jaxprs_in_params(options):
        yield from all_equations(jaxpr)


def channel_axis(program: Program, value: Value) -> int | None:
    """The axis of a value that counts features, as the layer before it has it.

    None where a reshape or a reduction has left no such axis.
    """
    steps: list[tuple[Equation, Value]] = []
    while (equation := program.maker(value)) is not None:
        if equation.name in ("conv_general_dilated", "dot_general"):
            break
        if not equation.points:
            break
        steps.append((equation, value))
        value = max(equation.points, key=lambda each: len(each.shape))
    rank = len(value.shape)
    axis: int | None = rank - 1 if rank else None
    if equation is not None and equation.name == "conv_general_dilated":
        axis = equation.options["dimension_numbers"].out_spec[1]
    elif equation is not None and equation.name == "dot_general":
        left, right = equation.inputs
        if not left.of_point and right.constant is None:
            # The weights stand first, and so do their axes.
            (_, contracted), (_, batch) = equation.options["dimension_numbers"]
            axis = rank - 1 - (len(right.shape) - len(contracted) - len(batch))
    grouped: tuple[tuple[int, ...], int] | None = None
    for equation, output in reversed(steps):
        before, after = value.shape, output.shape
        value = output
        if axis is not None:
            new_axis = _axis_after(equation, axis, before, after)
            # In groups of channels there is no such axis, until the shape is what it was.
            grouped = (before, axis) if new_axis is None and equation.name == "reshape" else None
            axis = new_axis
        elif grouped is not None and equation.name == "reshape" and after == grouped[0]:
            axis = grouped[1]
    return axis


def _axis_after(
    equation: Equation, axis: int, before: tuple[int, ...], after: tuple[int, ...]
) -> int | None:
    """The axis that an operation makes of one; None where it leaves none."""
    options = equation.options
    gone = options.get("axes", options.get("dimensions", ()))
    match equation.name:
        case "transpose":
            return list(options["permutation"]).index(axis)
        case "broadcast_in_dim":
            return options["broadcast_dimensions"][axis]
        case "squeeze" | "reduce_sum" | "reduce_max" | "reduce_min" | "argmax":
            return None if axis in gone else axis - sum(each < axis for each in gone)
        case "gather":
            numbers = options["dimension_numbers"]
            collapsed = numbers.collapsed_slice_dims
            if axis in collapsed:
                return None
            return numbers.offset_dims[axis - sum(each < axis for each in collapsed)]
        case "reshape":
            start = prod(before[:axis])
            same = (
                k
                for k, size in enumerate(after)
                if size == before[axis] and prod(after[:k]) == start
            )
            return next(same, None)
        case _:
            return axis if len(before) == len(after) else None


def channels_last(program: Program, value: Value, array: Array) -> Float[Array, "m ... c"]:
    """A value at the points (m, …) with the channels last, where it has any."""
    axis = channel_axis(program, value)
    return array if axis is None else jnp.moveaxis(array, 1 + axis, -1)


def pullbacks(
    program: Program,
    blocks: Sequence[Value],
    run: Callable[..., Mapping[Value, Array]],
    points: Array,
    key: Array,
) -> list[tuple[Array, Array]]:
    """Gradients at each block's input, of random signs at its output; and the signs.

    A block's input is the output of the one before. Blocks whose pixels are no multiple of the
    next one's are left out.

    Args:
        run: all values at a point, of it and of zeros to add; no gradient goes through a block.
    """
    if len(blocks) < 2:
        return []

    def one(zeros: dict[Value, Array], point: Array) -> list[Array]:
        arrays = run(point, zeros)
        return [arrays[value] for value in blocks]

    zeros = {value: jnp.zeros((len(points), *value.shape), value.dtype) for value in blocks}
    outputs, pullback = jax.vjp(lambda zeros: jax.vmap(one)(zeros, points), zeros)
    keys = jax.random.split(key, len(outputs))
    signs = [
        jax.random.rademacher(each, array.shape, array.dtype)
        for each, array in zip(keys, outputs, strict=True)
    ]
    (gradients,) = pullback(signs)
    pairs = [
        (_images(program, before, gradients[before]), _images(program, after, each))
        for before, after, each in zip(blocks[:-1], blocks[1:], signs[1:], strict=True)
    ]
    return [(left[None], right[None]) for left, right in pairs if fitting(left, right)]


def _images(program: Program, value: Value, array: Array) -> Float[Array, "m h w c"]:
    """A value at the points as images: tokens are one row of pixels, a vector is one pixel."""
    array = channels_last(program, value, array)
    *sides, width = 1, 1, *array.shape[1:-1]
    return array.reshape(len(array), prod(sides), width, array.shape[-1])


def fitting(left: Float[Array, "m h w c"], right: Float[Array, "m h2 w2 d"]) -> bool:
    """Whether the pixels of one are as many as those of the other, or a multiple."""
    sides = zip(left.shape[1:3], right.shape[1:3], strict=True)
    return all(a >= b and a % b == 0 for a, b in sides)
