"""One cell's network in training: batch statistics, and running ones that follow them.

The cell is known here, so that what it does not use is neither computed nor updated. Parameters
and statistics are those of `cells.nasbench201.network`; the tests hold these passes against it.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from cells import layers
from cells.initializers import gain
from cells.layers import Norm
from cells.nasbench201.cell import EDGES, KERNEL_SIZES, NONE, OPERATIONS, SKIP, Cell
from cells.nasbench201.network import Network
from ntkscore.grams import PRECISION, Images, kernel_gradients

MOMENTUM = 0.1
"""Share of a batch's statistics in the running ones after it, PyTorch's default."""
FEW_CHANNELS = 32
"""Up to as many, CPUs take the gradient of a 3×3 kernel fastest image by image."""

Tree = dict[str, Any]
Outputs = Float[Array, "m h2 w2 d"]
"""Of a convolution, which may change the images' size."""


def logits(
    network: Network, cell: Cell, params: Tree, statistics: Tree, images: Images, train: bool
) -> tuple[Float[Array, "m o"], Tree]:
    """Logits of a batch of images, and the running statistics after it.

    Args:
        network: width, depth, classes and the images' normaliser.
        cell: the architecture.
        params, statistics: as in the network's variables.
        images: pixels in [0, 1].
        train: normalise by the batch's own mean and biased variance, differentiated through, and
            move the running mean and variance, unbiased, by a tenth towards them; else normalise
            by the running ones, and leave them.
    """
    part = _Part(network.init_name, train)
    pixel_mean, pixel_std = (jnp.asarray(v, images.dtype) for v in (network.mean, network.std))
    new: Tree = {}
    x, new["stem"] = part.conv_norm(
        (images - pixel_mean) / pixel_std, params["stem"]["conv"], statistics["stem"]
    )
    for stage in range(3):
        if stage:
            name = f"reduction_{stage}"
            x, new[name] = part.reduce(x, params[name], statistics[name])
        name = f"stage_{stage}"
        step = lambda x, own: part.cell(cell, x, *own)  # noqa: E731
        x, new[name] = lax.scan(step, x, (params[name], statistics[name]))
    head = params["head"]
    y, new["head"] = part.norm(x, head, statistics["head"])
    features = jnp.mean(jax.nn.relu(y), (1, 2))
    factor = gain(network.init_name, head["kernel"].shape)
    return layers.dense(features, factor * head["kernel"], head["bias"]), new


def _stored_norm(weights: Tree, stored: Tree) -> Norm:
    return Norm(weights["scale"], weights["shift"], stored["mean"], stored["var"])


def _running_norm(z: Images, weights: Tree, stored: Tree) -> tuple[Images, Tree]:
    return _stored_norm(weights, stored)(z), stored


def _batch_norm(z: Images, weights: Tree, stored: Tree) -> tuple[Images, Tree]:
    mean = jnp.mean(z, (0, 1, 2))
    var = jnp.mean(jnp.square(z - mean), (0, 1, 2))
    count = z.size // z.shape[-1]
    measured = {"mean": mean, "var": var * (count / max(count - 1, 1))}
    follow = lambda old, now: old + MOMENTUM * (lax.stop_gradient(now) - old)  # noqa: E731
    new = jax.tree.map(follow, stored, measured)
    return Norm(weights["scale"], weights["shift"], mean, var)(z), new


class _Part:
    """Parts of a network that share its initialiser's factors and its normalisation."""

    def __init__(self, init: str, train: bool) -> None:
        self.init, self.train = init, train
        self.norm = _batch_norm if train else _running_norm

    def convolve(self, x: Images, kernel: Array, stride: int = 1) -> Outputs:
        return convolve(x, gain(self.init, kernel.shape) * kernel, stride)

    def conv_norm(
        self, x: Images, weights: Tree, stored: Tree, stride: int = 1
    ) -> tuple[Outputs, Tree]:
        kernel = weights["kernel"]
        if self.train:
            return self.norm(self.convolve(x, kernel, stride), weights, stored)
        # What is known before multiplies the kernel, and no image on either way.
        norm = _stored_norm(weights, stored)
        factor = norm.inverse * norm.scale
        shift = norm.shift - norm.mean * factor
        return self.convolve(x, kernel * factor, stride) + shift, stored

    def reduce(self, x: Images, weights: Tree, stored: Tree) -> tuple[Outputs, Tree]:
        a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
        y, first = self.conv_norm(jax.nn.relu(x), a, stored["conv_a"], 2)
        y, second = self.conv_norm(jax.nn.relu(y), b, stored["conv_b"])
        shortcut = self.convolve(layers.average_pool_2x2(x), weights["downsample"]["kernel"])
        return y + shortcut, {"conv_a": first, "conv_b": second}

    def cell(self, cell: Cell, x: Images, weights: Tree, stored: Tree) -> tuple[Images, Tree]:
        # None stands for a node of zeros, until something needs its values.
        nodes: list[Any] = [x, None, None, None]
        new = dict(stored)
        for e, (source, target) in enumerate(EDGES):
            operation, z, name = cell.operations[e], nodes[source], f"edge_{e}"
            if operation in KERNEL_SIZES:
                # A normalisation makes its shift of zeros.
                z = jnp.zeros_like(x) if z is None else jax.nn.relu(z)
                y, new[name] = self.conv_norm(z, weights[name][OPERATIONS[operation]], stored[name])
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
    """`layers.convolve`, with gradients that CPUs take fast."""
    return layers.convolve(x, kernel, stride)


def _forward(x: Array, kernel: Array, stride: int) -> tuple[Array, tuple[Array, Array]]:
    return layers.convolve(x, kernel, stride), (x, kernel)


def _backward(stride: int, kept: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, kernel = kept
    if jax.default_backend() != "cpu":
        d_kernel = jax.vjp(lambda k: layers.convolve(x, k, stride), kernel)[1](g)[0]
    elif stride == 1 and len(kernel) == 3 and kernel.shape[-1] <= FEW_CHANNELS:
        d_kernel = jnp.sum(kernel_gradients(x, g, (3, 3)), 0).transpose(0, 2, 1, 3)
    else:
        d_kernel = by_shifts(x, g, len(kernel), stride)
    return layers.transposed_convolve(g, kernel, x, stride), d_kernel


def by_shifts(
    x: Images, g: Float[Array, "m h2 w2 d"], size: int, stride: int
) -> Float[Array, "k k c d"]:
    """The gradient of a convolution's kernel as a product for each of its pixels.

    XLA's own, a convolution over images, is run naively by CPUs inside of loops.
    """
    pad, (height, width) = size // 2, g.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    flat = g.reshape(-1, g.shape[-1])

    def product(i: int, j: int) -> Array:
        rows = slice(i, i + stride * (height - 1) + 1, stride)
        columns = slice(j, j + stride * (width - 1) + 1, stride)
        seen = padded[:, rows, columns].reshape(-1, x.shape[-1])
        return jnp.matmul(seen.T, flat, precision=PRECISION)

    products = [product(i, j) for i in range(size) for j in range(size)]
    return jnp.stack(products).reshape(size, size, x.shape[-1], -1)


convolve.defvjp(_forward, _backward)
