"""Per-image gradients of a convolution kernel, and the Gram matrices of per-image rows."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from jaxtyping import Float, Int

from ntkscore.lazy import Array, jax, jnp, lax

Images = Float[Array, "m h w c"]
Points = Float[Array, "m ..."]
Gram = Float[Array, "r s s"]
"""R Gram matrices, of R groups of S images that have their first images in common: M = shared +
R·(S − shared) images in all. One group holds all images."""
Taps = Mapping[str, Gram]
"""Zeros of the shapes of the layers' contributions to Gram matrices (`cells.pullbacks`), by kind of
parameter. An empty one asks for the gradient in the points alone."""

# Accelerators would otherwise multiply float32 in fewer bits.
PRECISION = "highest"
CPU_IMAGES, CPU_COLUMNS = 10, 2304
"""Images whose patches, and columns of rows, are taken at once on a CPU: what stays near its cache
(`python -m experiments.benchmark.layers`)."""


def zero_taps(kinds: Sequence[str], points: Points, groups: int) -> dict[str, Gram]:
    """Taps for a stack of points: X, then `groups` times two further sets of X's size."""
    size = len(points) if groups == 1 else 3 * (len(points) // (2 * groups + 1))
    return {kind: jnp.zeros((groups, size, size), points.dtype) for kind in kinds}


def regroup(kernel: Float[Array, "m m"], groups: int) -> Gram:
    """The Gram matrices of R groups (X, X_ρ, X_2ρ), from that of X and R pairs (X_ρ, X_2ρ)."""
    if groups == 1:
        return kernel[None]
    members = per_group(jnp.arange(len(kernel)), groups)
    return kernel[members[:, :, None], members[:, None, :]]


def per_group(values: Array, groups: int) -> Array:
    """Values (m, …) at X and at R pairs (X_ρ, X_2ρ), regrouped as (r, s, …): (X, X_ρ, X_2ρ)."""
    n = len(values) // (2 * groups + 1)
    pairs = values[n:].reshape(groups, 2 * n, *values.shape[1:])
    clean = jnp.broadcast_to(values[:n], (groups, n, *values.shape[1:]))
    return jnp.concatenate([clean, pairs], 1)


def groups_of(taps: Taps) -> int:
    """How many groups of points the matrices are of."""
    return len(next(iter(taps.values())))


def self_product(rows: Points, groups: int) -> Gram:
    """The Gram matrix of the rows of an array, one for each group of rows.

    Args:
        rows: one for each image.
        groups: R; with one, all rows; else X and R pairs (X_ρ, X_2ρ).
    """
    rows = rows.reshape(rows.shape[0], -1)
    if groups == 1:
        return square(rows)[None]
    shared = len(rows) // (2 * groups + 1)
    common, others = rows[:shared], rows[shared:].reshape(groups, 2 * shared, -1)
    product = partial(jnp.einsum, precision=PRECISION)
    corner = jnp.broadcast_to(product("ip,jp->ij", common, common), (groups, shared, shared))
    side = product("rip,jp->rij", others, common)
    corners = product("rip,rjp->rij", others, others)
    above = jnp.concatenate([corner, side.swapaxes(1, 2)], 2)
    return jnp.concatenate([above, jnp.concatenate([side, corners], 2)], 1)


def square(rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
    """rows · rowsᵀ; on a CPU some columns at a time, and one of the two equal corners once."""
    if jax.default_backend() != "cpu":
        return jnp.matmul(rows, rows.T, precision=PRECISION)
    m, p = rows.shape
    half, width = m // 2, _divisor(p, CPU_COLUMNS)
    product = partial(jnp.matmul, precision=PRECISION)

    def add(i: Int[Array, ""], sums: tuple[Array, Array]) -> tuple[Array, Array]:
        some = lax.dynamic_slice_in_dim(rows, i * width, width, 1)
        lower = some[half:]
        return sums[0] + product(some[:half], some.T), sums[1] + product(lower, lower.T)

    sums = jnp.zeros((half, m), rows.dtype), jnp.zeros((m - half, m - half), rows.dtype)
    above, corner = lax.fori_loop(0, p // width, add, sums)
    return jnp.concatenate([above, jnp.concatenate([above[:, half:].T, corner], 1)])


def per_image(function: Callable[..., Array], *arrays: Array) -> Array:
    """A function of whole batches, applied to a few images at a time where that is faster."""
    count = len(arrays[0])
    size = _divisor(count, CPU_IMAGES)
    if jax.default_backend() != "cpu" or size == count:
        return function(*arrays)
    some = tuple(array.reshape(-1, size, *array.shape[1:]) for array in arrays)
    out = lax.map(lambda few: function(*few), some)
    return out.reshape(count, *out.shape[2:])


def _divisor(count: int, limit: int) -> int:
    """The largest divisor that is no larger than a limit."""
    return next(size for size in range(min(count, limit), 0, -1) if count % size == 0)


def kernel_gradients(
    x: Images,
    g: Float[Array, "m h2 w2 d"],
    sides: tuple[int, ...],
    strides: tuple[int, ...] = (1, 1),
    before: tuple[int, int] | None = None,
    dilation: tuple[int, ...] = (1, 1),
) -> Float[Array, "m k c k2 d"]:
    """Each image's gradient of a convolution kernel, indexed (image, row, in, column, out).

    G[n, i, c, j, d] = Σ_{h,w} x[n, h+i, w+j, c] g[n, h, w, d]. Where the columns have stride 1 the
    rows are shifted on the input and the columns on the cotangent, so that one product of 3c by 3d
    matrices does the nine shifts, and six copies are made instead of nine.

    Args:
        x: the convolution's input.
        g: the cotangent of its output.
        sides: height and width of the kernel.
        strides: of the convolution.
        before: rows and columns of padding before the first; half the kernel if left out.
        dilation: pixels from one row or column of the kernel to the next.
    """
    (rows_before, columns_before) = before or (sides[0] // 2, sides[1] // 2)

    def windows(
        a: Array, axis: int, count: int, starts: Sequence[int], step: int = 1
    ) -> list[Array]:
        """`count` entries from each start on, zero outside of the array."""
        last = step * (count - 1) + 1
        widths = [(0, 0, 0)] * a.ndim
        widths[axis] = (-min(starts), max(starts) + last - a.shape[axis], 0)
        a = lax.pad(a, jnp.zeros((), a.dtype), widths)
        return [
            lax.slice_in_dim(a, start, start + last, stride=step, axis=axis)
            for start in (start - min(starts) for start in starts)
        ]

    row_starts = [i * dilation[0] - rows_before for i in range(sides[0])]
    column_starts = [j * dilation[1] - columns_before for j in range(sides[1])]

    def contract(x: Array, g: Array) -> Array:
        rows = windows(x, 1, g.shape[1], row_starts, strides[0])
        columns = [g]
        if strides[1] == 1:
            columns = windows(g, 2, x.shape[2], [-start for start in column_starts])
        else:
            rows = [
                each
                for row in rows
                for each in windows(row, 2, g.shape[2], column_starts, strides[1])
            ]
        # Without the barrier XLA fuses the copies into the product, which it then runs naively.
        sides = (_flatten_pixels(jnp.concatenate(cuts, -1)) for cuts in (rows, columns))
        left, right = lax.optimization_barrier(tuple(sides))
        return lax.dot_general(left, right, (((1,), (1,)), ((0,), (0,))), precision=PRECISION)

    out = per_image(contract, x, g)
    c, d = x.shape[-1], g.shape[-1]
    if strides[1] == 1:
        return out.reshape(-1, sides[0], c, sides[1], d)
    return out.reshape(-1, *sides, c, d).transpose(0, 1, 3, 2, 4)


class Slope(NamedTuple):
    """A convolution and where a gradient meets it; a linear layer is a 1×1 convolution of a pixel.

    Attributes:
        kernel: the weights, (k, k, c, d).
        x: what the layer is given, (m, h, w, c).
        g: the cotangent of the convolution of x by the kernel, (m, h2, w2, d).
        stride: of the convolution.
    """

    kernel: Array
    x: Array
    g: Array
    stride: int = 1

    @property
    def gradients(self) -> Float[Array, "m k k c d"]:
        """Each image's gradient of the weights."""
        each = kernel_gradients(self.x, self.g, self.kernel.shape[:2], (self.stride,) * 2)
        return each.transpose(0, 1, 3, 2, 4)

    @property
    def first(self) -> Float[Array, "m"]:
        """Each image's gradient of the kernel's first weight alone."""
        alone = Slope(self.kernel[..., :1, :1], self.x[..., :1], self.g[..., :1], self.stride)
        return alone.gradients[:, 0, 0, 0, 0]


def _flatten_pixels(x: Images) -> Float[Array, "m p c"]:
    return x.reshape(x.shape[0], -1, x.shape[-1])
