"""What a backward pass makes of each layer's gradients."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array

from cells.backward import Visited
from cells.layers import Layer
from ntkscore.grams import Gram, GramByKind, groups_of, kernel_gradients, self_product
from ntkscore.model import Visit

TINY = 1e-20
"""A scale whose square is negligible beside that of any other."""


def of_weights(visit: Visit) -> Callable[[Layer], Visited]:
    """A function of the weight gradients of each convolution and linear layer."""
    return lambda layer: [visit(layer)] if layer.kernel.ndim > 1 else []


def grams_like(start: GramByKind) -> Callable[[Layer], Visited]:
    """A layer's contribution to the Gram matrix of per-image parameter gradients.

    For the cotangent s of a layer's outputs

        ⟨(∂f(x_i)/∂θ)ᵀ s_i, (∂f(x_j)/∂θ)ᵀ s_j⟩,   i, j = 1 … M,

    separately for the three kinds of parameters: `weight` (convolution and linear kernels), `scale`
    and `shift` (of the normalisation; the linear bias is a shift).

    Args:
        start: zeros of the matrices' shapes, by kind.
    """

    def products(**gradients: Array) -> dict[str, Gram]:
        zeros = {kind: jnp.zeros_like(gram) for kind, gram in start.items()}
        groups = groups_of(start)
        return zeros | {kind: self_product(rows, groups) for kind, rows in gradients.items()}

    def grams(layer: Layer) -> dict[str, Gram]:
        x, g, norm = layer.x, layer.g, layer.norm
        total = jnp.sum(g, (1, 2))
        if layer.kernel.ndim == 1:
            return products(scale=jnp.sum(g * x, (1, 2)), shift=total)
        if layer.biased:
            matrices = products(weight=x, shift=g)
            return matrices | {"weight": layer.gain**2 * matrices["weight"] * matrices["shift"]}
        if layer.depthwise:
            return products(weight=layer.gradients)
        factor = jnp.ones((), g.dtype) if norm is None else norm.factor
        # A scale of zero hides its channel; as a tiny one it still leaves its own gradient.
        visible = jnp.where(factor == 0, TINY, factor)
        sides, strides = layer.kernel.shape[:2], (layer.stride,) * 2
        gradients = kernel_gradients(x, g * (layer.gain * visible), sides, strides)
        if norm is None:
            return products(weight=gradients)
        # Σ g z over the pixels, from z = kernel ∗ x, without keeping or recomputing z.
        product = jnp.sum(gradients * layer.kernel.transpose(0, 2, 1, 3), (1, 2, 3)) / visible
        scale = (product - total * norm.mean) * norm.inverse
        return products(weight=gradients, scale=scale, shift=total)

    return lambda layer: [grams(layer)]
