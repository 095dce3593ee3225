"""Visitors of a backward pass: functions of each layer's input and output cotangent.

A layer's gradients are visited while its backward pass runs, so that no layer's per-image gradients
outlive the layer.
"""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cells.layers import Norm, depthwise_gradients, windows
from ntkscore.grams import (
    ConvolutionGradient,
    Gram,
    GramByKind,
    Images,
    groups_of,
    kernel_gradients,
    self_product,
)
from ntkscore.model import Visit

Total = TypeVar("Total", bound=PyTree)
TINY = 1e-20
"""A scale whose square is negligible beside that of any other."""


class DepthwiseGradient(NamedTuple):
    """The gradients of a depthwise convolution's weights (`ntkscore.model.LayerGradient`).

    Attributes:
        kernel: the weights, (k, k, 1, c).
        x: the layer's input, (m, h, w, c).
        g: the cotangent of the convolution of x by the kernel, (m, h2, w2, c).
        stride, dilation: of the convolution.
    """

    kernel: Array
    x: Array
    g: Array
    stride: int
    dilation: int

    @property
    def gradients(self) -> Float[Array, "m k k 1 c"]:
        """Each image's gradient of the weights."""
        return depthwise_gradients(self.x, self.g, len(self.kernel), self.stride, self.dilation)

    @property
    def first(self) -> Float[Array, " m"]:
        """Each image's gradient of the kernel's first weight alone."""
        corner, *_ = windows(self.x[..., :1], len(self.kernel), self.stride, self.dilation)
        return jnp.sum(corner * self.g[..., :1], (1, 2, 3))


class Visitor:
    """Visits every layer with weights in a backward pass, last to first; this one does nothing.

    Each method returns a list of trees of arrays. Convolutions return equally many trees of equal
    shapes.
    """

    def convolution(
        self, x: Images, g: Array, kernel: Array, norm: Norm | None, stride: int, gain: float
    ) -> list[PyTree]:
        """Visit a convolution by gain · kernel, and a normalisation behind it.

        Args:
            x: the convolution's input.
            g: the cotangent of the output of both.
            kernel, norm, stride, gain: of the layer; there may be no normalisation.
        """
        return []

    def depthwise(
        self, x: Images, g: Array, kernel: Array, gain: float, stride: int, dilation: int
    ) -> list[PyTree]:
        """Visit a depthwise convolution by gain · kernel, without normalisation.

        Args:
            x: its input.
            g: the cotangent of its output.
            kernel, gain, stride, dilation: of the layer.
        """
        return []

    def normalization(self, standard: Images, g: Images) -> list[PyTree]:
        """Visit a normalisation, by its standardised input and the output's cotangent."""
        return []

    def dense(
        self, x: Float[Array, "m c"], g: Float[Array, "m o"], kernel: Array, gain: float
    ) -> list[PyTree]:
        """Visit a linear layer by gain · kernel and a bias."""
        return []

    def collect(self, total: Total, visited: list[PyTree]) -> tuple[Total, list[PyTree]]:
        """Add a layer's outputs to the total; also return those to stack over the layers."""
        return total, visited


class WeightGradients(Visitor):
    """Applies a function to the weight gradients of each convolution and linear layer."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    def convolution(
        self, x: Images, g: Array, kernel: Array, norm: Norm | None, stride: int, gain: float
    ) -> list[PyTree]:
        if norm is not None:
            g = g * norm.factor
        return [self._visit(ConvolutionGradient(kernel, x, gain * g, stride))]

    def depthwise(
        self, x: Images, g: Array, kernel: Array, gain: float, stride: int, dilation: int
    ) -> list[PyTree]:
        return [self._visit(DepthwiseGradient(kernel, x, gain * g, stride, dilation))]

    def dense(
        self, x: Float[Array, "m c"], g: Float[Array, "m o"], kernel: Array, gain: float
    ) -> list[PyTree]:
        pixel = x[:, None, None], g[:, None, None], kernel[None, None]
        return self.convolution(*pixel, None, 1, gain)


class GramVisitor(Visitor):
    """Sums the layers' contributions to the Gram matrix of per-image parameter gradients.

    For the cotangent s of a layer's outputs

        ⟨(∂f(x_i)/∂θ)ᵀ s_i, (∂f(x_j)/∂θ)ᵀ s_j⟩,   i, j = 1 … M,

    separately for the three kinds of parameters: `weight` (convolution and linear kernels), `scale`
    and `shift` (of the normalisation; the linear bias is a shift).

    Args:
        start: zeros of the matrices' shapes, by kind.
    """

    def __init__(self, start: GramByKind) -> None:
        self._start = start

    def _products(self, **gradients: Array) -> dict[str, Gram]:
        zeros = {kind: jnp.zeros_like(gram) for kind, gram in self._start.items()}
        groups = groups_of(self._start)
        return zeros | {kind: self_product(rows, groups) for kind, rows in gradients.items()}

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

    def depthwise(
        self, x: Images, g: Array, kernel: Array, gain: float, stride: int, dilation: int
    ) -> list[dict[str, Gram]]:
        gradients = depthwise_gradients(x, gain * g, len(kernel), stride, dilation)
        return [self._products(weight=gradients)]

    def normalization(self, standard: Images, g: Images) -> list[dict[str, Gram]]:
        return [self._products(scale=jnp.sum(g * standard, (1, 2)), shift=jnp.sum(g, (1, 2)))]

    def dense(
        self, x: Float[Array, "m c"], g: Float[Array, "m o"], kernel: Array, gain: float
    ) -> list[dict[str, Gram]]:
        matrices = self._products(weight=x, shift=g)
        return [matrices | {"weight": gain**2 * matrices["weight"] * matrices["shift"]}]

    def collect(self, total: Total, visited: list[PyTree]) -> tuple[Total, list[PyTree]]:
        for matrices in visited:
            total = jax.tree.map(jnp.add, total, matrices)
        return total, []
