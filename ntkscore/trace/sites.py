"""Sites, where weights and the point meet.

A site is an equation with inputs of both kinds. Of one that is no product
(`ntkscore.trace.products`) the gradient is JAX's own, of that equation alone.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact

from ntkscore.trace.operations import OPERATIONS
from ntkscore.trace.products import Product
from ntkscore.trace.program import Equation, Program, Value, value_of


class Site(NamedTuple):
    """An equation in which weights meet the point.

    Attributes:
        place: of the equation in the program.
        equation: the equation itself.
        weights: its inputs that come from weights alone.
        points: its inputs that come from the point.
        outputs: its outputs that have a gradient.
        product: the site as a product; None where it is none.
    """

    place: int
    equation: Equation
    weights: tuple[Value, ...]
    points: tuple[Value, ...]
    outputs: tuple[Value, ...]
    product: Product | None

    def gradients(
        self,
        derived: Mapping[Value, Array],
        points: Mapping[Value, Array],
        cotangents: Mapping[Value, Array],
    ) -> list[Inexact[Array, "m ..."]]:
        """Each point's gradients of the site's weights.

        Args:
            derived: values that no point takes part in.
            points: values of the points (m, …), the site's own among them.
            cotangents: of the site's outputs (m, …), by value.
        """
        if self.product is not None:
            (output,) = self.outputs
            return [self.product.gradients(points[self.points[0]], cotangents[output])]

        def one(inputs: list[Array], cotangents: list[Array]) -> list[Array]:
            known = {**derived, **dict(zip(self.points, inputs, strict=True))}

            def compute(weights: list[Array]) -> list[Array]:
                arrays = {**known, **dict(zip(self.weights, weights, strict=True))}
                inputs = (value_of(arrays, each) for each in self.equation.inputs)
                outputs = zip(self.equation.outputs, self.equation.function(*inputs), strict=True)
                return [array for value, array in outputs if value in self.outputs]

            _, pullback = jax.vjp(compute, [derived[each] for each in self.weights])
            return pullback(cotangents)[0]

        inputs = [points[each] for each in self.points]
        return jax.vmap(one)(inputs, [cotangents[each] for each in self.outputs])


def sites_of(program: Program) -> Iterator[Site]:
    """The equations in which weights meet the point, first to last."""
    for place, equation in program.point_equations.items():
        points = tuple(dict.fromkeys(equation.points))
        weights = tuple(
            v
            for v in dict.fromkeys(equation.weights)
            if not v.of_point and jnp.issubdtype(v.dtype, jnp.inexact)
        )
        if weights:
            product = _product(equation, weights, points)
            outputs = tuple(v for v in equation.outputs if jnp.issubdtype(v.dtype, jnp.inexact))
            yield Site(place, equation, weights, points, outputs, product)


def _product(
    equation: Equation, weights: tuple[Value, ...], points: tuple[Value, ...]
) -> Product | None:
    known = OPERATIONS.get(equation.name)
    if known is None or known.product is None or not len(weights) == len(points) == 1:
        return None
    if not all(
        jnp.issubdtype(v.dtype, jnp.floating) for v in (*equation.values, *equation.outputs)
    ):
        return None  # of complex numbers, whose products are not these
    return known.product(equation, *points, *weights)
