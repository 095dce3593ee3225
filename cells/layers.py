"""Layers.

Arrays are (image, height, width, channel); kernels (height, width, in, out).
"""

from collections.abc import Sequence
from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ntkscore import convolutions
from ntkscore.convolutions import Window, kernel_gradients
from ntkscore.grams import PRECISION, Images
from ntkscore.platforms import platform

EPSILON = 1e-5
FEW_CHANNELS = 32
"""Largest number of output channels at which CPUs compute a 3×3 kernel's gradient fastest image by
image."""


class Norm(NamedTuple):
    """Batch normalisation with given statistics: scale · (z − mean) / √(var + ε) + shift."""

    scale: Float[Array, " c"]
    shift: Float[Array, " c"]
    mean: Float[Array, "*m c"]
    var: Float[Array, "*m c"]

    @property
    def inverse(self) -> Float[Array, "*m c"]:
        return lax.rsqrt(self.var + EPSILON)

    @property
    def factor(self) -> Float[Array, "*m c"]:
        """The factor on z, scale / √(var + ε)."""
        return self.inverse * self.scale

    def standardize(self, z: Images) -> Images:
        return (z - self.mean) * self.inverse

    def __call__(self, z: Images) -> Images:
        return (z - self.mean) * self.factor + self.shift


class Layer(NamedTuple):
    """A layer with weights in a backward pass; its gradients are a `ntkscore.model.LayerGradient`.

    Attributes:
        x: its input, (m, h, w, c); of a normalisation alone the standardised one.
        g: the cotangent of its output; while it is computed, the output.
        kernel: (k, k, c, d), which the layer multiplies by its gain; (k, k, 1, c) of a depthwise
            convolution, (1, 1, c, o) of a linear layer; the scale (c,) of a normalisation alone.
        norm: the normalisation behind the convolution.
        gain, window: of the convolution.
        depthwise: whether each channel has a kernel of its own.
        biased: whether it is a linear layer, with a bias.
    """

    x: Array
    g: Array
    kernel: Array
    norm: Norm | None = None
    gain: float = 1.0
    window: Window = Window.square(1)
    depthwise: bool = False
    biased: bool = False

    @property
    def gradients(self) -> Float[Array, "m k k c d"]:
        """Each image's gradient of the weights."""
        g = self.g if self.norm is None else self.g * self.norm.factor
        x, g, size = self.x, self.gain * g, len(self.kernel)
        if self.depthwise:
            rows = convolutions.gradients_of_each_channel(x, g, (size, size), self.window)
            return rows.reshape(len(x), size, size, 1, -1)
        gradients = kernel_gradients(x, g, (size, size), self.window)
        return gradients.transpose(0, 1, 3, 2, 4)

    @property
    def first(self) -> Float[Array, " m"]:
        """Each image's gradient of the kernel's first weight alone."""
        norm = self.norm and Norm(*(leaf[..., :1] for leaf in self.norm))
        corner = {"x": self.x[..., :1], "kernel": self.kernel[..., :1, :1], "g": self.g[..., :1]}
        return self._replace(**corner, norm=norm).gradients[:, 0, 0, 0, 0]


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def trained_convolve(x: Images, kernel: Array, window: Window) -> Float[Array, "m h2 w2 d"]:
    """A convolution with gradients that CPUs compute fast; it has no forward derivative."""
    return convolutions.convolve(x, kernel, window)


def _pull_convolve(window: Window, given: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, kernel = given
    if platform() != "cpu":
        d_kernel = jax.vjp(lambda k: convolutions.convolve(x, k, window), kernel)[1](g)[0]
    elif max(window.strides) == 1 and len(kernel) == 3 and kernel.shape[-1] <= FEW_CHANNELS:
        d_kernel = jnp.sum(kernel_gradients(x, g, (3, 3), window), 0).transpose(0, 2, 1, 3)
    else:
        d_kernel = kernel_gradient(x, g, len(kernel), window)
    return convolutions.pull(g, kernel, window, x.shape[1:3]), d_kernel


def kernel_gradient(
    x: Images, g: Float[Array, "m h2 w2 d"], size: int, window: Window
) -> Float[Array, "k k c d"]:
    """The gradient of a convolution's kernel, as a matrix product for each of its pixels.

    XLA's version is a convolution over images, which CPUs run slowly inside of loops.
    """
    flat, channels = g.reshape(-1, g.shape[-1]), x.shape[-1]
    shifted = (z.reshape(-1, channels) for z in convolutions.shifts(x, (size, size), window))
    products = [jnp.matmul(z.T, flat, precision=PRECISION) for z in shifted]
    return jnp.stack(products).reshape(size, size, channels, -1)


trained_convolve.defvjp(
    lambda x, kernel, window: (convolutions.convolve(x, kernel, window), (x, kernel)),
    _pull_convolve,
)


def windows(x: Images, size: int, stride: int = 1, outside: float = 0) -> list[Array]:
    """The pixels under each place of a square window, row by row; `outside` is around an image."""
    return convolutions.shifts(x, (size,) * 2, Window.square(size, stride), outside)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def pulled_convolve(x: Images, kernel: Array, window: Window) -> Float[Array, "m h2 w2 d"]:
    """A convolution of which JAX's reverse derivative, in the images alone, is fast on CPUs."""
    return convolutions.convolve(x, kernel, window)


pulled_convolve.defvjp(
    lambda x, kernel, window: (convolutions.convolve(x, kernel, window), (x, kernel)),
    lambda window, given, g: (convolutions.pull(g, given[1], window, given[0].shape[1:3]), None),
)


def max_pool_3x3(x: Images, stride: int = 1) -> Float[Array, "m h2 w2 c"]:
    """Largest of the 3×3 neighbourhood within the image."""
    return reduce(jnp.maximum, windows(x, 3, stride, outside=-jnp.inf))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def pulled_max_pool_3x3(x: Images, stride: int = 1) -> Float[Array, "m h2 w2 c"]:
    """`max_pool_3x3`, whose cotangent the first of equal pixels has, as in PyTorch."""
    return max_pool_3x3(x, stride)


def _pull_max_pool(stride: int, x: Images, g: Float[Array, "m h2 w2 c"]) -> tuple[Images]:
    shifted = windows(x, 3, stride, outside=-jnp.inf)
    largest = reduce(jnp.maximum, shifted)
    free, parts = jnp.ones(g.shape, bool), []
    for z in shifted:
        hit = free & (z == largest)
        free &= ~hit
        parts.append(jnp.where(hit, g, 0))
    return tuple(jax.linear_transpose(lambda x: windows(x, 3, stride), x)(parts))


pulled_max_pool_3x3.defvjp(lambda x, stride: (max_pool_3x3(x, stride), x), _pull_max_pool)


def average_pool_3x3(x: Images, stride: int = 1) -> Float[Array, "m h2 w2 c"]:
    """Mean of the 3×3 neighbourhood; pixels outside the image are not counted."""

    def sums(a: Array, axis: int) -> Array:
        widths = [(0, 0)] * a.ndim
        widths[axis] = (1, 1)
        a = jnp.pad(a, widths)
        size = a.shape[axis] - 2
        parts = (lax.slice_in_dim(a, i, i + size, stride, axis=axis) for i in range(3))
        return sum(parts)  # type: ignore

    counts = sums(sums(jnp.ones_like(x[:1, :, :, :1]), 1), 2)
    return sums(sums(x, 1), 2) / counts


def average_pool_2x2(x: Images) -> Float[Array, "m h2 w2 c"]:
    """Mean of each 2×2 block, stride 2."""
    m, h, w, c = x.shape
    return jnp.mean(x.reshape(m, h // 2, 2, w // 2, 2, c), (2, 4))


def untrained_norm(*shape: int) -> dict[str, Array]:
    """A normalisation's weights before training: scales of one and shifts of zero."""
    return {"scale": jnp.ones(shape, jnp.float32), "shift": jnp.zeros(shape, jnp.float32)}


def unmeasured(weights: PyTree, within: Sequence[str] = ()) -> PyTree:
    """Statistics that nothing has measured, means of zero and variances of one, by their layers.

    Args:
        weights: of layers, in dicts and lists.
        within: names of parts of a layer that are none in its statistics: those of the first that
            is there are the layer's.

    Example:
        >>> layers = {"stem": {"kernel": jnp.ones((3, 3, 3, 4)), "norm": untrained_norm(4)}}
        >>> unmeasured(layers, ["norm"])["stem"]["var"].shape
        (4,)
    """
    if isinstance(weights, list):
        return [unmeasured(each, within) for each in weights]
    if "scale" in weights:
        shape = weights["scale"].shape
        return {"mean": jnp.zeros(shape, jnp.float32), "var": jnp.ones(shape, jnp.float32)}
    parts = {name: each for name, each in weights.items() if isinstance(each, dict | list)}
    found = {name: own for name, part in parts.items() if (own := unmeasured(part, within))}
    return next((found[name] for name in within if name in found), found)


def neutral(statistics: PyTree) -> PyTree:
    """Statistics that leave images as they are: mean 0, and a variance that ε completes to 1."""
    values = {"mean": 0.0, "var": 1 - EPSILON}
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.full_like(leaf, values[path[-1].key]), statistics
    )


def log_deviations(statistics: PyTree) -> Float[Array, ""]:
    """Σ ln σ over normalisations, σ² the mean over the channels of one's variance.

    Those without a convolution have 1, and those of a constant have 0, which is left out.
    """
    variances = [
        jnp.mean(leaf, -1)
        for path, leaf in jax.tree_util.tree_leaves_with_path(statistics)
        if path[-1].key == "var"
    ]
    logs = [jnp.sum(jnp.log(jnp.where(v == 0, 1, v))) for v in variances]
    return jnp.asarray(sum(logs)) / 2
