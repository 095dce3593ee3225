"""Multiply-adds of whole programs."""

from jax.extend.core import Jaxpr, jaxprs_in_params

from ntkscore.trace.operations import multiply_adds
from ntkscore.trace.program import shaped


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
