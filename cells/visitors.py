"""Visitors of a backward pass: functions of each layer's gradients."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from cells.backward import Layer, Visited, Visitor
from ntkscore.grams import Gram, GramByKind, groups_of, kernel_gradients, self_product
from ntkscore.model import Visit

TINY = 1e-20
"""A scale whose square is negligible beside that of any other."""


class WeightGradients(Visitor):
    """Applies a function to the weight gradients of each convolution and linear layer."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    def visit(self, layer: Layer) -> Visited:
        return [] if layer.kernel is None else [self._visit(layer)]


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

    def visit(self, layer: Layer) -> Visited:
        x, g, norm = layer.x, layer.g, layer.norm
        total = jnp.sum(g, (1, 2))
        if layer.kernel is None:
            return [self._products(scale=jnp.sum(g * x, (1, 2)), shift=total)]
        if layer.biased:
            matrices = self._products(weight=x, shift=g)
            return [matrices | {"weight": layer.gain**2 * matrices["weight"] * matrices["shift"]}]
        if layer.depthwise:
            return [self._products(weight=layer.gradients)]
        factor = jnp.ones((), g.dtype) if norm is None else norm.factor
        # A scale of zero hides its channel; as a tiny one it still leaves its own gradient.
        visible = jnp.where(factor == 0, TINY, factor)
        sides, strides = layer.kernel.shape[:2], (layer.stride,) * 2
        gradients = kernel_gradients(x, g * (layer.gain * visible), sides, strides)
        if norm is None:
            return [self._products(weight=gradients)]
        # Σ g z over the pixels, from z = kernel ∗ x, without keeping or recomputing z.
        product = jnp.sum(gradients * layer.kernel.transpose(0, 2, 1, 3), (1, 2, 3)) / visible
        scale = (product - total * norm.mean) * norm.inverse
        return [self._products(weight=gradients, scale=scale, shift=total)]

    def collect(self, total: PyTree, visited: Visited) -> tuple[PyTree, Visited]:
        for matrices in visited:
            total = jax.tree.map(jnp.add, total, matrices)
        return total, []
