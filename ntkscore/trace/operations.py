"""A table of JAX's operations: the facts about each that a trace is read with.

An operation that has no row is run and differentiated as any other: its weights' kernel is made of
JAX's own gradients, and the receptive field behind it is unknown where positions meet it.
"""

from collections.abc import Callable, Mapping, Sequence
from math import nan, prod
from typing import Any, NamedTuple

import numpy as np

from ntkscore.trace import moves, receptive_field
from ntkscore.trace.moves import FieldRule, of_one
from ntkscore.trace.products import Convolution, MatrixProduct, Product
from ntkscore.trace.program import Equation, Value
from ntkscore.trace.view import UNKNOWN, Operand, Options, Shape, Views, compact_view, hull

MultiplyAdds = Callable[[Mapping[str, Any], Sequence[Shape], Shape], float]


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


def _of_matrices(options: Mapping[str, Any], inputs: Sequence[Shape], output: Shape) -> float:
    ((over, _), _) = options["dimension_numbers"]
    return prod(output) * prod(inputs[0][axis] for axis in over)


def _of_convolution(options: Mapping[str, Any], inputs: Sequence[Shape], output: Shape) -> float:
    """A pixel of the padding counts as any other, a zero of a transposed convolution does not."""
    _, (_, channels, *sides), _ = options["dimension_numbers"]
    taps = inputs[1][channels] * prod(inputs[1][axis] for axis in sides)
    return prod(output) * taps // prod(options["lhs_dilation"])


def _of_ragged_matrices(
    options: Mapping[str, Any], inputs: Sequence[Shape], output: Shape
) -> float:
    return prod(output) * inputs[0][-1]


def _alike(operation: Operation, *names: str) -> dict[str, Operation]:
    return dict.fromkeys(names, operation)


OPERATIONS: dict[str, Operation] = {
    # Products.
    "dot_general": Operation(
        product=MatrixProduct.of, multiply_adds=_of_matrices, field=receptive_field.product_view
    ),
    "conv_general_dilated": Operation(
        product=Convolution.of,
        multiply_adds=_of_convolution,
        field=receptive_field.convolution_view,
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
    # Moves of entries.
    "reshape": Operation(unchanged=True, shaping=True, field=of_one(moves.reshape_view)),
    "squeeze": Operation(unchanged=True, shaping=True, field=of_one(moves.squeeze_view)),
    "expand_dims": Operation(unchanged=True, shaping=True),
    "transpose": Operation(unchanged=True, field=of_one(moves.transpose_view)),
    "rev": Operation(unchanged=True, field=of_one(moves.reverse_view)),
    "optimization_barrier": Operation(unchanged=True, field=moves.through_view),
    "broadcast_in_dim": Operation(shaping=True, field=of_one(moves.broadcast_view)),
    "slice": Operation(field=of_one(moves.cut_view)),
    "split": Operation(field=moves.split_view),
    "concatenate": Operation(kind="shift", field=moves.concatenate_view),
    "stack": Operation(field=moves.stack_view),
    "pad": Operation(field=of_one(receptive_field.pad_view)),
    # Over axes, and over windows.
    **_alike(
        Operation(reduction=True, field=of_one(receptive_field.reduce_view)),
        *("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"),
    ),
    **_alike(Operation(field=of_one(receptive_field.reduce_view)), "argmax", "argmin"),
    **_alike(
        Operation(field=of_one(receptive_field.pool_view)),
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


def multiply_adds(
    name: str, options: Mapping[str, Any], inputs: Sequence[Shape], output: Shape
) -> float:
    """Multiply-adds of an equation: of convolutions and products of matrices, 0 of others.

    NaN where the operation hides what it does.

    Args:
        name: of the operation.
        options: such as a convolution's stride.
        inputs, output: shapes.
    """
    known = OPERATIONS.get(name, Operation())
    if known.hidden:
        return nan
    return known.multiply_adds(options, inputs, output) if known.multiply_adds else 0


def views(name: str, options: Options, inputs: Sequence[Operand], shapes: Sequence[Shape]) -> Views:
    """The views of an equation's outputs.

    A view is None where nothing of the point is seen, and nothing is claimed after an operation
    that has no rule.

    Args:
        name, options, inputs: of the equation.
        shapes: of its outputs.
    """
    found = [each.view for each in inputs if each.view is not None]
    if not found or all(0 in shape for shape in shapes):
        return [None] * len(shapes)
    if any(each is UNKNOWN for each in found):
        return [UNKNOWN] * len(shapes)
    known = OPERATIONS.get(name)
    if known is not None and known.pointwise:
        return [hull(found, shapes[0])] * len(shapes)
    if known is not None and known.field is not None:
        return known.field(options, inputs, shapes)
    if any({*each.bounds.shape[2:]} - {1} for each in found):
        return [UNKNOWN] * len(shapes)
    # Whatever it does, all entries see the same; whether they are positions is not known.
    alike = np.minimum.reduce([each.bounds.reshape(*each.bounds.shape[:2]) for each in found])
    none = (frozenset(),) * len(alike)
    return [compact_view(alike.reshape(-1, 2, *[1] * len(shape)), none, shape) for shape in shapes]
