"""Convolutions in the form that CPUs compute fast.

XLA has a fast convolution for CPUs: of float32 arrays (image, *sides, channel), by kernels
(*sides, in, out). It brings others into this form, but not inside of a loop, where they take up to
a hundred times as long. Everywhere it is slow at one kernel for each channel, at an image's few
colours, and at gradients over strides. Gradients of a kernel are each image's own.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.lazy import Array, jax, jnp, lax
from ntkscore.grams import PRECISION
from ntkscore.platforms import platform

Sides = Sequence[int]
CPU_IMAGES = 10
"""Images whose gradients of a kernel a CPU computes at once: what stays near its cache."""
MOST_PLACES = 81
"""Places of a kernel up to which shifted images are added up; more take long to compile."""
MOST_COLOURS, MOST_PATCHES = 4, 25
"""Channels, and places of a kernel, up to which a convolution is one product with patches."""
LARGER = 4
"""Size of the products of all places of a kernel, over that of the larger of both images, up to
which they are added up."""


def of_each_channel(kernel: Sequence[int], groups: int) -> bool:
    """Whether kernels of a shape (*sides, in, out) see one channel each, and are small.

    Example:
        >>> of_each_channel((3, 3, 1, 8), 8), of_each_channel((3, 3, 1, 16), 8)
        (True, False)
    """
    *sides, inputs, outputs = kernel
    return inputs == 1 < groups == outputs and prod(sides) <= MOST_PLACES


class Window(NamedTuple):
    """How a kernel moves over an image; the first four are `conv_general_dilated`'s, by side."""

    strides: Sides
    padding: Sequence[tuple[int, int]]
    lhs_dilation: Sides
    rhs_dilation: Sides
    groups: int = 1

    @classmethod
    def square(cls, size: int, stride: int = 1, dilation: int = 1, groups: int = 1) -> "Window":
        """That of an odd square kernel which keeps height and width, before the stride."""
        pad = dilation * (size // 2)
        return cls((stride,) * 2, ((pad, pad),) * 2, (1, 1), (dilation,) * 2, groups)

    def transposed(self, kernel: Sides, before: Sides, after: Sides) -> "Window":
        """The transposed convolution's window, by sides of the kernel and of both its images."""
        padding = []
        for side, k in enumerate(kernel):
            reach = (k - 1) * self.rhs_dilation[side]
            low = reach - self.padding[side][0]
            spread = (before[side] - 1) * self.lhs_dilation[side]
            covered = (after[side] - 1) * self.strides[side]
            padding.append((low, spread + reach - covered - low))
        return Window(
            self.lhs_dilation, padding, self.strides, self.rhs_dilation, groups=self.groups
        )


def convolve(
    x: Float[Array, "m ... c"],
    kernel: Float[Array, "... c_g d"],
    window: Window,
    precision: Any = PRECISION,
) -> Float[Array, "m ... d"]:
    """A convolution; of each channel by its own kernel as a sum of shifted images, with all bits.

    Example:
        >>> import jax.numpy as jnp
        >>> convolve(jnp.ones((1, 4, 4, 3)), jnp.ones((3, 3, 3, 8)), Window.square(3, 2)).shape
        (1, 2, 2, 8)
    """
    if of_each_channel(kernel.shape, window.groups):
        return _of_each_channel(x, kernel, window)
    sides = "".join(map(str, range(x.ndim - 2)))
    return lax.conv_general_dilated(
        x,
        kernel,
        *window[:-1],
        dimension_numbers=(f"N{sides}C", f"{sides}IO", f"N{sides}C"),
        feature_group_count=window.groups,
        precision=precision,
    )


def _of_each_channel(x: Array, kernel: Array, window: Window) -> Array:
    *sides, _, channels = kernel.shape
    weights = kernel.reshape(-1, channels)
    pairs = zip(weights, shifts(x, sides, window), strict=True)
    return sum((weight * z for weight, z in pairs), jnp.zeros((), x.dtype))


def shifts(
    x: Float[Array, "m ... c"], sides: Sides, window: Window, outside: float = 0
) -> list[Float[Array, "m ... c"]]:
    """The pixels under each place of a kernel, one image for each place.

    Example:
        >>> import jax.numpy as jnp
        >>> row = jnp.arange(3.0).reshape(1, 1, 3, 1)
        >>> [z.ravel().tolist() for z in shifts(row, (1, 3), Window.square(3)._replace(
        ...     padding=((0, 0), (1, 1))))]
        [[0.0, 0.0, 1.0], [0.0, 1.0, 2.0], [1.0, 2.0, 0.0]]
    """
    between = [gap - 1 for gap in window.lhs_dilation]
    around = [(*ends, gap) for ends, gap in zip(window.padding, between, strict=True)]
    value = jnp.asarray(outside, x.dtype)
    padded = lax.pad(x, value, [(0, 0, 0), *around, (0, 0, 0)])
    found = []
    for place in np.ndindex(*sides):
        cuts = []
        for k, side, gap, stride, size in zip(
            place, sides, window.rhs_dilation, window.strides, padded.shape[1:-1], strict=True
        ):
            start, last = k * gap, size - (side - 1 - k) * gap
            cuts.append(slice(start, max(start, last), stride))
        found.append(padded[:, *cuts])
    return found


def gradients_of_each_channel(
    x: Float[Array, "m ... c"], g: Float[Array, "m ... c"], sides: Sides, window: Window
) -> Float[Array, "m k c"]:
    """Each image's gradient of kernels of one channel each, from the cotangent of their output."""
    pixels = tuple(range(1, g.ndim - 1))
    return jnp.stack([jnp.sum(z * g, pixels) for z in shifts(x, sides, window)], 1)


def entries(a: Array, axis: int, count: int, starts: Sequence[int], step: int = 1) -> list[Array]:
    """`count` entries along an axis from each start on, zero outside of the array.

    Example:
        >>> import jax.numpy as jnp
        >>> [each.tolist() for each in entries(jnp.arange(1, 4), 0, 3, (-1, 0, 1))]
        [[0, 1, 2], [1, 2, 3], [2, 3, 0]]
    """
    last = max(step * (count - 1) + 1, 0)
    widths = [(0, 0, 0)] * a.ndim
    widths[axis] = (-min(starts), max(starts) + last - a.shape[axis], 0)
    a = lax.pad(a, jnp.zeros((), a.dtype), widths)
    return [
        lax.slice_in_dim(a, start, start + last, stride=step, axis=axis)
        for start in (start - min(starts) for start in starts)
    ]


def kernel_operands(
    x: Float[Array, "h w c"],
    g: Float[Array, "h2 w2 d"],
    sides: Sides,
    window: Window,
    channels_first: bool = False,
) -> tuple[Float[Array, "p kc"], Float[Array, "p kd"]]:
    """Two arrays whose product over the pixels holds an image's gradient of a kernel of two sides.

    Where the columns have stride 1 the rows are shifted on the input and the columns on the
    cotangent, so that one product of 3c by 3d matrices does the nine shifts, and six copies are
    made instead of nine.

    Args:
        x, g, sides, window, channels_first: as for `kernel_gradients`, of one image.
    """
    strides, ((rows_before, _), (columns_before, _)), _, dilation, _ = window
    # Copies run along the memory that is there: a transposition takes as long as the product.
    height, width, channels = (1, 2, 0) if channels_first else (0, 1, 2)
    x, g = (each.transpose(np.argsort((height, width, channels))) for each in (x, g))

    row_starts = [i * dilation[0] - rows_before for i in range(sides[0])]
    column_starts = [j * dilation[1] - columns_before for j in range(sides[1])]
    rows, columns = entries(x, height, g.shape[height], row_starts, strides[0]), [g]
    if strides[1] == 1:
        columns = entries(g, width, x.shape[width], [-start for start in column_starts])
    else:
        rows = [
            each
            for row in rows
            for each in entries(row, width, g.shape[width], column_starts, strides[1])
        ]

    def by_pixels(cuts: list[Array]) -> Array:
        together = jnp.concatenate(cuts, channels)
        size = together.shape[channels]
        # Without the barrier XLA fuses the copies into the product, which it then runs naively.
        if channels_first:
            return lax.optimization_barrier(together.reshape(size, -1)).T
        return lax.optimization_barrier(together.reshape(-1, size))

    return by_pixels(rows), by_pixels(columns)


def kernel_gradients(
    x: Float[Array, "m h w c"],
    g: Float[Array, "m h2 w2 d"],
    sides: Sides,
    window: Window,
    channels_first: bool = False,
) -> Float[Array, "m k c k2 d"]:
    """Each image's gradient of a convolution kernel, indexed (image, row, in, column, out).

    G[n, i, c, j, d] = Σ_{h,w} x[n, h+i, w+j, c] g[n, h, w, d].

    Args:
        x: the convolution's input.
        g: the cotangent of its output.
        sides: height and width of the kernel.
        window: how it moves; neither over gaps between the pixels nor in groups.
        channels_first: whether memory holds x and g channel by channel.
    """

    def product(x: Array, g: Array) -> Array:
        left, right = kernel_operands(x, g, sides, window, channels_first)
        return jnp.matmul(left.T, right, precision=PRECISION)

    if platform() != "cpu" or len(x) <= CPU_IMAGES:
        out = jax.vmap(product)(x, g)
    else:
        out = lax.map(lambda pair: product(*pair), (x, g), batch_size=CPU_IMAGES)
    c, d = x.shape[-1], g.shape[-1]
    if window.strides[1] == 1:
        return out.reshape(-1, sides[0], c, sides[1], d)
    return out.reshape(-1, *sides, c, d).transpose(0, 1, 3, 2, 4)


def pull(
    g: Float[Array, "m ... d"],
    kernel: Float[Array, "... c_g d"],
    window: Window,
    sides: Sides,
    precision: Any = PRECISION,
) -> Float[Array, "m ... c"]:
    """The cotangent of `convolve`'s images, which have these sides, from that of its output."""
    *size, inputs, outputs = kernel.shape
    if platform() != "cpu" and max(window.strides) > 1:
        # What XLA knows as the gradient of a convolution it gives to the GPU's library as one.
        like = jax.ShapeDtypeStruct((len(g), *sides, inputs * window.groups), g.dtype)
        return jax.linear_transpose(lambda x: convolve(x, kernel, window, precision), like)(g)[0]
    split = jnp.flip(kernel, range(len(size)))
    split = split.reshape(*size, inputs, window.groups, outputs // window.groups)
    flipped = split.swapaxes(-1, -3)
    flipped = flipped.reshape(*size, outputs // window.groups, inputs * window.groups)
    return convolve(g, flipped, window.transposed(size, sides, g.shape[1:-1]), precision)


def has_small_products(kernel: Sequence[int], window: Window) -> bool:
    """Whether `sum_of_products` takes little memory, for kernels of a shape (*sides, in, out).

    So it is for the first convolution of an image's colours, and over strides.

    Example:
        >>> has_small_products((3, 3, 3, 16), Window.square(3))
        True
        >>> [has_small_products((3, 3, 16, 32), Window.square(3, stride)) for stride in (1, 2)]
        [False, True]
    """
    *size, inputs, outputs = kernel
    if not 1 < prod(size) <= MOST_PLACES or window.groups > 1 or max(window.lhs_dilation) > 1:
        return False
    return prod(size) * inputs <= LARGER * max(prod(window.strides) * inputs, outputs)


def sum_of_products(
    g: Float[Array, "m ... d"],
    kernel: Float[Array, "... c d"],
    window: Window,
    sides: Sides,
    precision: Any = PRECISION,
) -> Float[Array, "m ... c"]:
    """`pull` as products with each place of the kernel, moved and added up; in other last digits.

    For few channels and over strides it is two to six times as fast on a CPU.
    """
    size = kernel.shape[:-2]
    products = jnp.matmul(g, kernel.reshape(-1, kernel.shape[-1]).T, precision=precision)
    found, zero = [], jnp.zeros((), g.dtype)
    counts, (strides, padding, _, gaps, _) = g.shape[1:-1], window
    for place, product in zip(np.ndindex(*size), jnp.split(products, prod(size), -1), strict=True):
        by_side = zip(place, sides, counts, strides, padding, gaps, strict=True)
        around = [
            (k * gap - low, side - k * gap + low - (count - 1) * stride - 1, stride - 1)
            for k, side, count, stride, (low, _), gap in by_side
        ]
        found.append(lax.pad(product, zero, [(0, 0, 0), *around, (0, 0, 0)]))
    return sum(found[1:], found[0])


def has_few_channels(kernel: Sequence[int], window: Window) -> bool:
    """Whether `product_of_patches` is fast, for kernels of a shape (*sides, in, out).

    So it is for the first convolution of an image's colours, unless its kernel is large.

    Example:
        >>> [has_few_channels((side, side, 3, 16), Window.square(side)) for side in (1, 3, 7)]
        [False, True, False]
    """
    *size, inputs, _ = kernel
    few = inputs <= MOST_COLOURS and prod(size) <= MOST_PATCHES
    return few and has_small_products(kernel, window)


def product_of_patches(
    x: Float[Array, "m ... c"],
    kernel: Float[Array, "... c d"],
    window: Window,
    precision: Any = PRECISION,
) -> Float[Array, "m ... d"]:
    """`convolve` as one product with all places of the kernel; in other last digits.

    For few channels it is one and a half to two times as fast on a CPU.
    """
    *size, _, outputs = kernel.shape
    strides, padding, _, gaps, _ = window
    # The last side first, whose neighbours lie next to each other.
    for side in reversed(range(len(size))):
        starts = [k * gaps[side] - padding[side][0] for k in range(size[side])]
        room = x.shape[side + 1] + padding[side][1] - starts[-1]
        count = max((room - 1) // strides[side] + 1, 0)
        x = jnp.concatenate(entries(x, side + 1, count, starts, strides[side]), -1)
    return jnp.matmul(x, kernel.reshape(-1, outputs), precision=precision)
