"""One cell's network in training: normalised by batch statistics, with running averages of them.

The cell is known when the network is traced, so that unused operations are neither computed nor
updated. Parameters and statistics are those of `cells.nasbench201.network`; the tests compare these
passes with it.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from cells import layers
from cells.nasbench201.cell import EDGES, KERNEL_SIZES, NONE, OPERATIONS, SKIP
from cells.nasbench201.forward import CellRules
from cells.rules import Outputs, TrainingRules, Weights
from ntkscore.grams import PRECISION, Images, kernel_gradients
from ntkscore.platforms import platform

FEW_CHANNELS = 32
"""Largest number of output channels at which CPUs compute a 3×3 kernel's gradient fastest image by
image."""


class Training(TrainingRules, CellRules):
    """Rules for a cell whose digits are known numbers, differentiable in weights and images."""

    def convolve(self, x: Images, kernel: Array, stride: int = 1) -> Outputs:
        return convolve(x, self.gain(kernel) * kernel, stride)

    def conv_norm(
        self, x: Images, weights: Weights, statistics: Weights, stride: int = 1
    ) -> tuple[Outputs, Weights, Outputs]:
        if self.measure:
            return super().conv_norm(x, weights, statistics, stride)
        # The known factor multiplies the kernel, which is smaller than the images.
        norm = self.norm(weights, statistics)
        shift = norm.shift - norm.mean * norm.factor
        y = self.convolve(x, weights["kernel"] * norm.factor, stride) + shift
        return y, statistics, y  # JAX differentiates, so nothing reads the third output.

    def stage(
        self, x: Images, weights: Weights, stored: Weights
    ) -> tuple[Float[Array, "1 m h w c"], Weights, None]:
        """The last node of a stage, and its statistics."""
        x, new = lax.scan(lambda x, cell: self._cell(x, *cell), x, (weights, stored))
        return x[None], new, None

    def _cell(self, x: Images, weights: Weights, stored: Weights) -> tuple[Images, Weights]:
        # None stands for a node of zeros, until something needs its values.
        nodes: list[Any] = [x, None, None, None]
        new = dict(stored)
        for e, (source, target) in enumerate(EDGES):
            operation, z, name = int(self.digits[e]), nodes[source], f"edge_{e}"
            if operation in KERNEL_SIZES:
                # The convolution of a node of zeros, normalised, is the shift.
                z = jnp.zeros_like(x) if z is None else jax.nn.relu(z)
                of_conv = weights[name][OPERATIONS[operation]]
                y, new[name], _ = self.conv_norm(z, of_conv, stored[name])
            elif operation == NONE or z is None:
                continue
            else:
                y = z if operation == SKIP else layers.average_pool_3x3(z)
            nodes[target] = y if nodes[target] is None else nodes[target] + y
        return (jnp.zeros_like(x) if nodes[-1] is None else nodes[-1]), new


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve(
    x: Float[Array, "m h w c"], kernel: Float[Array, "k k c d"], stride: int = 1
) -> Float[Array, "m h2 w2 d"]:
    """`layers.convolve`, with gradients that CPUs compute fast."""
    return layers.convolve(x, kernel, stride)


def _forward(x: Array, kernel: Array, stride: int) -> tuple[Array, tuple[Array, Array]]:
    return layers.convolve(x, kernel, stride), (x, kernel)


def _backward(stride: int, residuals: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, kernel = residuals
    if platform() != "cpu":
        d_kernel = jax.vjp(lambda k: layers.convolve(x, k, stride), kernel)[1](g)[0]
    elif stride == 1 and len(kernel) == 3 and kernel.shape[-1] <= FEW_CHANNELS:
        d_kernel = jnp.sum(kernel_gradients(x, g, (3, 3)), 0).transpose(0, 2, 1, 3)
    else:
        d_kernel = by_shifts(x, g, len(kernel), stride)
    return layers.transposed_convolve(g, kernel, x, stride), d_kernel


def by_shifts(
    x: Images, g: Float[Array, "m h2 w2 d"], size: int, stride: int
) -> Float[Array, "k k c d"]:
    """The gradient of a convolution's kernel, as a matrix product for each of its pixels.

    XLA's version is a convolution over images, which CPUs run slowly inside of loops.
    """
    flat, channels = g.reshape(-1, g.shape[-1]), x.shape[-1]
    shifted = (z.reshape(-1, channels) for z in layers.windows(x, size, stride))
    products = [jnp.matmul(z.T, flat, precision=PRECISION) for z in shifted]
    return jnp.stack(products).reshape(size, size, channels, -1)


convolve.defvjp(_forward, _backward)
