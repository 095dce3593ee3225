"""The way back through layers with weights, and what is seen on it.

Beside the cotangent of its input, a layer's pullback hands out what a visitor sees there of the
layer's own gradients, so that no layer's per-image gradients outlive the layer.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cells.layers import AnyNorm, InstanceNorm, Norm, convolve, transposed_convolve
from ntkscore.grams import (
    PRECISION,
    ConvolutionGradient,
    Gram,
    Images,
    Taps,
    groups_of,
    kernel_gradients,
    self_product,
)

TINY = 1e-20
"""A scale so small that its square is nothing beside any other."""


class Visitor:
    """Sees every layer with weights on a way back, last to first; this one sees nothing.

    What is seen of a layer is a list of trees of arrays, equally many of equal shapes for each
    convolution with its normalisation.
    """

    def convolution(
        self, x: Images, g: Array, kernel: Array, norm: Norm | None, stride: int, gain: float
    ) -> list[PyTree]:
        """What is seen of a convolution by gain · kernel, and of a normalisation behind it.

        Args:
            x: the convolution's input.
            g: the cotangent of the output of both.
            kernel, norm, stride, gain: of the layer; there may be no normalisation.
        """
        return []

    def normalization(self, standard: Images, g: Images) -> list[PyTree]:
        """What is seen of a normalisation, from what it scales and the output's cotangent."""
        return []

    def dense(
        self, x: Float[Array, "m c"], g: Float[Array, "m o"], kernel: Array, gain: float
    ) -> list[PyTree]:
        """What is seen of a linear layer by gain · kernel and a bias."""
        return []

    def keep(self, kept: Any, seen: Any) -> tuple[Any, Any]:
        """What is carried on from layer to layer, and what is laid beside that of the others."""
        return kept, seen


class Looks(Visitor):
    """What a function sees of the slope of each convolution and linear layer.

    Args:
        look: the function.
    """

    def __init__(self, look: Callable[[ConvolutionGradient], PyTree]) -> None:
        self._look = look

    def convolution(
        self, x: Images, g: Array, kernel: Array, norm: Norm | None, stride: int, gain: float
    ) -> list[PyTree]:
        if norm is not None:
            g = g * norm.factor
        return [self._look(ConvolutionGradient(kernel, x, gain * g, stride))]

    def dense(
        self, x: Float[Array, "m c"], g: Float[Array, "m o"], kernel: Array, gain: float
    ) -> list[PyTree]:
        return self.convolution(
            x[:, None, None], g[:, None, None], kernel[None, None], None, 1, gain
        )


class Contributions(Visitor):
    """The layers' contributions to the Gram matrix of per-image parameter gradients, added up.

    For the cotangent s of a layer's outputs

        ⟨(∂f(x_i)/∂θ)ᵀ s_i, (∂f(x_j)/∂θ)ᵀ s_j⟩,   i, j = 1 … M,

    apart for the three kinds of parameters: `weight` (convolution and linear kernels), `scale` and
    `shift` (of the normalisation; the linear bias is a shift).

    Args:
        taps: zeros of the matrices' shapes, by kind (`ntkscore.grams.Taps`).
    """

    def __init__(self, taps: Taps) -> None:
        self._taps = taps

    def _products(self, **rows: Array) -> dict[str, Gram]:
        zeros = {kind: jnp.zeros_like(tap) for kind, tap in self._taps.items()}
        return zeros | {k: self_product(own, groups_of(self._taps)) for k, own in rows.items()}

    def convolution(
        self, x: Images, g: Array, kernel: Array, norm: Norm | None, stride: int, gain: float
    ) -> list[dict[str, Gram]]:
        factor = jnp.ones((), g.dtype) if norm is None else norm.factor
        # A scale of zero hides its channel; as a tiny one it still leaves its own gradient.
        visible = jnp.where(factor == 0, TINY, factor)
        gradients = kernel_gradients(x, g * (gain * visible), kernel.shape[:2], (stride, stride))
        if norm is None:
            return [self._products(weight=gradients)]
        total = jnp.sum(g, (1, 2))
        # Σ g z over the pixels, from z = kernel ∗ x, without keeping or recomputing z.
        product = jnp.sum(gradients * kernel.transpose(0, 2, 1, 3), (1, 2, 3)) / visible
        scale = (product - total * norm.mean) * norm.inverse
        return [self._products(weight=gradients, scale=scale, shift=total)]

    def normalization(self, standard: Images, g: Images) -> list[dict[str, Gram]]:
        rows = {"scale": jnp.sum(g * standard, (1, 2)), "shift": jnp.sum(g, (1, 2))}
        return [self._products(**rows)]

    def dense(
        self, x: Float[Array, "m c"], g: Float[Array, "m o"], kernel: Array, gain: float
    ) -> list[dict[str, Gram]]:
        parts = self._products(weight=x, shift=g)
        return [parts | {"weight": gain**2 * parts["weight"] * parts["shift"]}]

    def keep(self, kept: Taps, seen: list[Taps]) -> tuple[Taps, list[Taps]]:
        for each in seen:
            kept = jax.tree.map(jnp.add, kept, each)
        return kept, []


def pull_convolution(
    x: Float[Array, "m h w c"],
    g: Float[Array, "m h2 w2 d"],
    kernel: Float[Array, "k k c d"],
    norm: AnyNorm | None,
    visitor: Visitor,
    *,
    stride: int = 1,
    gain: float = 1.0,
    z: Float[Array, "m h2 w2 d"] | None = None,
) -> tuple[Float[Array, "m h w c"], list[PyTree]]:
    """From the cotangent g of the output of a convolution and normalisation to that of x.

    What lies between the convolution and an `InstanceNorm` is z; it is computed where it was not
    kept. By given statistics the way back does without.
    """
    before: list[PyTree] = []
    if isinstance(norm, InstanceNorm):
        z = convolve(x, gain * kernel, stride) if z is None else z
        g, before = pull_normalization(z, g, norm, visitor)
        norm = None
    seen = visitor.convolution(x, g, kernel, norm, stride, gain)
    if norm is not None:
        g = g * norm.factor
    return transposed_convolve(g, gain * kernel, x, stride), before + seen


def pull_normalization(
    x: Images, g: Images, norm: AnyNorm, visitor: Visitor
) -> tuple[Images, list[PyTree]]:
    """From the cotangent g of a normalisation's output to that of x, and what is seen."""
    standard, pull = jax.vjp(norm.standardize, x)
    (dx,) = pull(g * norm.scale)
    return dx, visitor.normalization(standard, g)


def pull_dense(
    x: Float[Array, "m c"],
    g: Float[Array, "m o"],
    kernel: Float[Array, "c o"],
    visitor: Visitor,
    *,
    gain: float = 1.0,
) -> tuple[Float[Array, "m c"], list[PyTree]]:
    """From the cotangent g of `dense`'s output to that of x, and what is seen."""
    dx = jnp.matmul(g, gain * kernel.T, precision=PRECISION)
    return dx, visitor.dense(x, g, kernel, gain)
