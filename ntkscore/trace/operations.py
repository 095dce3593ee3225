"""A table of JAX's operations: the facts about each that a trace is read with.

An operation that has no row is run and differentiated as any other: its weights' kernel is made of
JAX's own gradients, and the receptive field behind it is unknown where positions meet it.
"""

from collections.abc import Callable, Sequence
from math import nan, prod
from typing import NamedTuple

import numpy as np
from jax.extend.core import Jaxpr, jaxprs_in_params

from ntkscore.trace import receptive_field
from ntkscore.trace.products import Convolution, MatrixProduct, Product
from ntkscore.trace.program import Equation, Options, Value, shaped
from ntkscore.trace.receptive_field import FieldRule, Shape, View, hull, moving, of_each, views

MultiplyAdds = Callable[[Options, Sequence[Shape], Shape], float]


class Operation(NamedTuple):
    """What is known of an operation.

    Attributes:
        pointwise: whether it works on each number by itself, or on those in the same place.
        unchanged: whether it moves entries and changes none but in sign, so that the Gram matrix of
            a weight behind it is the weight's own.
        shaping: whether it gives a value another shape or dtype, and no entry another value.
        gate: whether it may be what bends an activation.
        root: whether normalisations divide by it, or multiply.
        reduction: whether it sums over axes, or takes a maximum.
        hidden: whether a trace does not show its inside.
        kind: of the parameters that meet the point in it, `scale` or `shift`; None where the
            operation does not tell.
        product: the product that it is, from its equation, the point's value and the weight; None
            where there is none.
        multiply_adds: of it, from its options, its inputs' shapes and its output's; None for none.
        field: views of its outputs (`ntkscore.trace.receptive_field`).
    """

    pointwise: bool = False
    unchanged: bool = False
    shaping: bool = False
    gate: bool = False
    root: bool = False
    reduction: bool = False
    hidden: bool = False
    kind: str | None = None
    product: Callable[[Equation, Value, Value], Product | None] | None = None
    multiply_adds: MultiplyAdds | None = None
    field: FieldRule | None = None


def _of_matrices(options: Options, inputs: Sequence[Shape], output: Shape) -> float:
    ((over, _), _) = options["dimension_numbers"]
    return prod(output) * prod(inputs[0][axis] for axis in over)


def _of_convolution(options: Options, inputs: Sequence[Shape], output: Shape) -> float:
    """A pixel of the padding counts as any other, a zero of a transposed convolution does not."""
    _, (_, channels, *sides), _ = options["dimension_numbers"]
    taps = inputs[1][channels] * prod(inputs[1][axis] for axis in sides)
    return prod(output) * taps // prod(options["lhs_dilation"])


def _of_ragged_matrices(options: Options, inputs: Sequence[Shape], output: Shape) -> float:
    return prod(output) * inputs[0][-1]


def _reshaped(options: Options, shape: Shape, array: np.ndarray) -> np.ndarray:
    order = options["dimensions"]
    return (array if order is None else array.transpose(order)).reshape(shape)


def _broadcast(options: Options, shape: Shape, array: np.ndarray) -> np.ndarray:
    new = [axis for axis in range(len(shape)) if axis not in options["broadcast_dimensions"]]
    return np.broadcast_to(np.expand_dims(array, new), shape)


def _sliced(options: Options, shape: Shape, array: np.ndarray) -> np.ndarray:
    strides = options["strides"] or [1] * len(shape)
    ends = options["start_indices"], options["limit_indices"], strides
    return array[tuple(map(slice, *ends))]


def _alike(operation: Operation, *names: str) -> dict[str, Operation]:
    return dict.fromkeys(names, operation)


OPERATIONS: dict[str, Operation] = {
    # Products.
    "dot_general": Operation(
        product=MatrixProduct.of, multiply_adds=_of_matrices, field=receptive_field.multiplied
    ),
    "conv_general_dilated": Operation(
        product=Convolution.of,
        multiply_adds=_of_convolution,
        field=receptive_field.convolved,
    ),
    "ragged_dot_general": Operation(multiply_adds=_of_ragged_matrices),
    # On numbers in the same place.
    **_alike(Operation(pointwise=True, kind="shift"), "add", "sub"),
    **_alike(Operation(pointwise=True, kind="scale"), "mul", "div"),
    **_alike(Operation(pointwise=True, gate=True), "max", "min", "select_n", "clamp"),
    **_alike(Operation(pointwise=True, gate=True), "exp", "expm1", "tanh", "logistic"),
    **_alike(Operation(pointwise=True, gate=True), "erf", "erfc"),
    **_alike(Operation(pointwise=True, root=True), "sqrt", "rsqrt", "pow"),
    **_alike(Operation(pointwise=True, unchanged=True), "neg", "copy", "copy_p"),
    "convert_element_type": Operation(pointwise=True, unchanged=True, shaping=True),
    **_alike(
        Operation(pointwise=True),
        *("abs", "acos", "acosh", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh"),
        *("bessel_i0e", "bessel_i1e", "cbrt", "ceil", "clz", "conj", "cos", "cosh", "digamma"),
        *("eq", "erf_inv", "exp2", "floor", "ge", "gt", "igamma", "igammac", "imag"),
        *("integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "lt", "ne", "nextafter"),
        *("not", "or", "population_count", "real", "reduce_precision", "rem", "round"),
        *("shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh"),
        *("square", "stop_gradient", "tan", "xor"),
    ),
    # Functions with a rule of their own for the derivative, such as `jax.nn.relu`.
    "custom_jvp_call": Operation(gate=True),
    # What decides on a value, and the value (`counts`).
    "cond": Operation(field=hull),
    "while": Operation(field=receptive_field.repeated),
    # Moves of entries.
    "reshape": Operation(unchanged=True, shaping=True, field=moving(_reshaped)),
    **_alike(
        Operation(unchanged=True, shaping=True, field=moving(lambda o, shape, a: a.reshape(shape))),
        *("squeeze", "expand_dims"),
    ),
    "transpose": Operation(
        unchanged=True, field=moving(lambda o, shape, a: a.transpose(o["permutation"]))
    ),
    "rev": Operation(unchanged=True, field=moving(lambda o, shape, a: np.flip(a, o["dimensions"]))),
    "optimization_barrier": Operation(unchanged=True, field=moving(lambda o, shape, *a: a)),
    "broadcast_in_dim": Operation(shaping=True, field=moving(_broadcast)),
    "slice": Operation(field=moving(_sliced)),
    "split": Operation(
        field=moving(lambda o, shape, a: np.split(a, np.cumsum(o["sizes"][:-1]), o["axis"]))
    ),
    "concatenate": Operation(
        kind="shift", field=moving(lambda o, shape, *a: np.concatenate(a, o["dimension"]))
    ),
    "stack": Operation(field=moving(lambda o, shape, *a: np.stack(a, o["axis"]))),
    "pad": Operation(field=of_each(receptive_field.padded)),
    # Over axes, and over windows.
    **_alike(
        Operation(reduction=True, field=of_each(receptive_field.reduced)),
        *("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"),
    ),
    **_alike(Operation(field=of_each(receptive_field.reduced)), "argmax", "argmin"),
    **_alike(
        Operation(field=of_each(receptive_field.pooled)),
        *("reduce_window_sum", "reduce_window_max", "reduce_window_min"),
    ),
    # Calls of what is no JAX.
    **_alike(
        Operation(hidden=True),
        *("pallas_call", "custom_call", "ffi_call", "pure_callback", "io_callback"),
        "custom_linear_solve",
    ),
}
"""What is known of each operation; those of `program.INLINED` stand in no program."""


def _named(fact: str) -> frozenset[str]:
    return frozenset(name for name, known in OPERATIONS.items() if getattr(known, fact))


POINTWISE, UNCHANGED, SHAPING = map(_named, ("pointwise", "unchanged", "shaping"))
GATES, ROOTS, REDUCTIONS = map(_named, ("gate", "root", "reduction"))
PRODUCTS = _named("multiply_adds")


def multiply_adds(name: str, options: Options, inputs: Sequence[Shape], output: Shape) -> float:
    """Multiply-adds of an equation: of convolutions and products of matrices, 0 of others.

    NaN where the operation hides what it does.
    """
    known = OPERATIONS.get(name, Operation())
    if known.hidden:
        return nan
    return known.multiply_adds(options, inputs, output) if known.multiply_adds else 0


def program_multiply_adds(jaxpr: Jaxpr) -> float:
    """Multiply-adds of a whole program on one device.

    Of branches the one with the most counts. A loop counts as often as it runs, and once where only
    the numbers decide how often.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> double = jax.jit(lambda a: jax.lax.map(lambda row: a @ row, a))
        >>> program_multiply_adds(double.trace(jnp.ones((3, 3))).jaxpr.jaxpr)
        27
    """
    total: float = 0
    for equation in jaxpr.eqns:
        name, options = equation.primitive.name, equation.params
        if name == "cond":
            total += max(program_multiply_adds(branch.jaxpr) for branch in options["branches"])
        elif inner := list(jaxprs_in_params(options)):
            # A reduction's own function is no product.
            times = options["length"] if name == "scan" else 1
            total += times * sum(map(program_multiply_adds, inner))
        else:
            inputs = [shaped(each).shape for each in equation.invars]
            total += multiply_adds(name, options, inputs, shaped(equation.outvars[0]).shape)
    return total


def views_after(equation: Equation, seen: Sequence[View | None]) -> Sequence[View | None]:
    """The views of an equation's outputs, from those of its inputs (`receptive_field.views`)."""
    known = OPERATIONS.get(equation.name, Operation())
    return views(equation, seen, known.field or (hull if known.pointwise else None))
