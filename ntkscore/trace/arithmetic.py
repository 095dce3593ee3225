"""Multiply-adds of equations and of whole programs."""

from collections.abc import Mapping, Sequence
from math import nan, prod
from typing import Any

from jax.extend.core import Jaxpr, jaxprs_in_params

HIDDEN = {"pallas_call", "custom_call", "ffi_call", "pure_callback", "io_callback"} | {
    "custom_linear_solve"
}
"""Operations whose inside a trace does not show."""

Shape = tuple[int, ...]


def multiply_adds(
    name: str, options: Mapping[str, Any], inputs: Sequence[Shape], output: Shape
) -> float:
    """Multiply-adds of an equation: of convolutions and products of matrices, 0 of others.

    A pixel of the padding counts as any other; zeros between the entries of a transposed
    convolution do not. NaN where the operation hides what it does.

    Args:
        name: of the operation.
        options: such as a convolution's stride.
        inputs, output: shapes.
    """
    if name == "dot_general":
        ((over, _), _) = options["dimension_numbers"]
        return prod(output) * prod(inputs[0][axis] for axis in over)
    if name == "conv_general_dilated":
        _, (_, channels, *sides), _ = options["dimension_numbers"]
        taps = inputs[1][channels] * prod(inputs[1][axis] for axis in sides)
        return prod(output) * taps // prod(options["lhs_dilation"])
    if name == "ragged_dot_general":
        return prod(output) * inputs[0][-1]
    return nan if name in HIDDEN else 0


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
            inputs = [each.aval.shape for each in equation.invars]  # pyright: ignore
            total += multiply_adds(name, options, inputs, equation.outvars[0].aval.shape)  # pyright: ignore
    return total
