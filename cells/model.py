"""A network at some weights: the one value that attacks, kernels and losses are given."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Float

from cells.grams import Taps
from cells.lazy import Array, PyTree

Points = Float[Array, "m ..."]
Logits = Float[Array, "m o"]


class Model(NamedTuple):
    """A network at some weights.

    Anybody can make one: two functions and a pytree, of any library or none.

    Attributes:
        apply: logits (m, o) of (params, points (m, …)), differentiable in both.
        params: the weights, any pytree of arrays.
        tapped: logits of (params, points, taps) where every layer reports its contribution to a
            Gram matrix (`cells.layers`), which is what the fastest kernel needs; or None.
        coupled: whether a point's logits depend on the other points of its batch.

    Example:
        >>> import jax.numpy as jnp
        >>> linear = Model(lambda w, x: x @ w, jnp.ones((3, 2)))
        >>> linear.apply(linear.params, jnp.ones((1, 3)))
        Array([[3., 3.]], dtype=float32)
    """

    apply: Callable[[Any, Points], Logits]
    params: PyTree
    tapped: Callable[[Any, Points, Taps | None], Logits] | None = None
    coupled: bool = False

    def logits(self, points: Points) -> Logits:
        """Logits of points, by the cheapest way to the gradient in the points."""
        if self.tapped is None:
            return self.apply(self.params, points)
        return self.tapped(self.params, points, {})
