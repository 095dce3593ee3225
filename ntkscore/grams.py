"""Per-image gradients of a convolution kernel, and the Gram matrices of per-image rows."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from jaxtyping import Float, Int

from attacks.lazy import Array, jax, jnp, lax
from ntkscore.platforms import platform

Images = Float[Array, "m h w c"]
Points = Float[Array, "m ..."]
Gram = Float[Array, "r s s"]
"""Gram matrices (r, s, s), one for each of R radii: of S = 3N points, which are N clean ones, these
attacked, and attacked again. The clean points are the same for all radii, so that a network sees
N + 2NR of them. Of other points there is one matrix (1, M, M)."""
GramByKind = Mapping[str, Gram]
"""The Gram matrices of the gradients in the parameters of each kind, by its name."""

# Accelerators would otherwise multiply float32 in fewer bits.
PRECISION = "highest"
CPU_IMAGES, CPU_COLUMNS = 10, 2304
"""Numbers of images, and of columns of many rows, that a CPU multiplies at once: what stays near
its cache, as measured on two cores."""
CPU_BYTES = 2**25
"""Bytes of rows that a CPU multiplies as a whole."""


P = ParamSpec("P")
T = TypeVar("T")


def in_full_precision(function: Callable[P, T]) -> Callable[P, T]:
    """A function in which a network's products have all bits of their dtype.

    A network that says nothing of its precision would be computed in fewer bits on accelerators. A
    precision that a product itself or JAX's settings name stays.
    """

    @wraps(function)
    def precise(*arguments: P.args, **named: P.kwargs) -> T:
        chosen = getattr(jax.config, "jax_default_matmul_precision", None)
        with jax.default_matmul_precision(chosen or PRECISION):
            return function(*arguments, **named)

    return precise


def zero_grams(kinds: Sequence[str], points: Array, groups: int) -> dict[str, Gram]:
    """Zero Gram matrices by kind, of points X and `groups` times two further sets of X's size."""
    size = len(points) if groups == 1 else 3 * (len(points) // (2 * groups + 1))
    # Points may be whole numbers, such as tokens.
    real = jnp.issubdtype(points.dtype, jnp.floating)
    dtype = points.dtype if real else jnp.result_type(float)
    return {kind: jnp.zeros((groups, size, size), dtype) for kind in kinds}


def regroup(kernel: Float[Array, "m m"], groups: int) -> Gram:
    """The Gram matrices of R groups (X, X_ρ, X_2ρ), from that of X and R pairs (X_ρ, X_2ρ)."""
    if groups == 1:
        return kernel[None]
    places = jnp.arange(len(kernel))
    n = len(kernel) // (2 * groups + 1)
    pairs, clean = places[n:].reshape(groups, 2 * n), jnp.broadcast_to(places[:n], (groups, n))
    members = jnp.concatenate([clean, pairs], 1)
    return kernel[members[:, :, None], members[:, None, :]]


def groups_of(grams: GramByKind) -> int:
    """R, the number of groups of points, each of which has a matrix."""
    return len(next(iter(grams.values())))


def self_product(rows: Points, groups: int) -> Gram:
    """The Gram matrix of images' rows: of all, or of X and each of several pairs (X_ρ, X_2ρ)."""
    rows = rows.reshape(rows.shape[0], -1)
    if groups == 1:
        return square(rows)[None]
    shared = len(rows) // (2 * groups + 1)
    common, others = rows[:shared], rows[shared:].reshape(groups, 2 * shared, -1)
    product = partial(jnp.einsum, precision=PRECISION)
    # ⟨X, X⟩ once for all radii, then each pair with X and with itself.
    corner = jnp.broadcast_to(product("ip,jp->ij", common, common), (groups, shared, shared))
    side = product("rip,jp->rij", others, common)
    corners = product("rip,rjp->rij", others, others)
    above = jnp.concatenate([corner, side.swapaxes(1, 2)], 2)
    return jnp.concatenate([above, jnp.concatenate([side, corners], 2)], 1)


def square(rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
    """rows · rowsᵀ; of many rows, on a CPU, some columns at a time."""
    product = partial(jnp.matmul, precision=PRECISION)
    pieces = rows.shape[1] // CPU_COLUMNS
    if platform() != "cpu" or rows.nbytes <= CPU_BYTES or not pieces:
        return product(rows, rows.T)

    def add(piece: Int[Array, ""], total: Array) -> Array:
        some = lax.dynamic_slice_in_dim(rows, piece * CPU_COLUMNS, CPU_COLUMNS, 1)
        return total + product(some, some.T)

    rest = rows[:, pieces * CPU_COLUMNS :]
    return lax.fori_loop(0, pieces, add, product(rest, rest.T))


def per_image(function: Callable[..., Array], *arrays: Array) -> Array:
    """A function of each image; on a CPU of a few images at a time."""
    if platform() != "cpu" or len(arrays[0]) <= CPU_IMAGES:
        return jax.vmap(function)(*arrays)
    return lax.map(lambda each: function(*each), arrays, batch_size=CPU_IMAGES)


def kernel_operands(
    x: Float[Array, "h w c"],
    g: Float[Array, "h2 w2 d"],
    sides: tuple[int, ...],
    strides: tuple[int, ...] = (1, 1),
    before: tuple[int, ...] | None = None,
    dilation: tuple[int, ...] = (1, 1),
) -> tuple[Float[Array, "p kc"], Float[Array, "p kd"]]:
    """Two arrays whose product over the pixels holds an image's gradient of a convolution kernel.

    Where the columns have stride 1 the rows are shifted on the input and the columns on the
    cotangent, so that one product of 3c by 3d matrices does the nine shifts, and six copies are
    made instead of nine. Arguments are those of `kernel_gradients`, of one image.
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
    rows, columns = windows(x, 0, g.shape[0], row_starts, strides[0]), [g]
    if strides[1] == 1:
        columns = windows(g, 1, x.shape[1], [-start for start in column_starts])
    else:
        rows = [
            each for row in rows for each in windows(row, 1, g.shape[1], column_starts, strides[1])
        ]
    left, right = (jnp.concatenate(cuts, -1) for cuts in (rows, columns))
    # Without the barrier XLA fuses the copies into the product, which it then runs naively.
    pixels = left.reshape(-1, left.shape[-1]), right.reshape(-1, right.shape[-1])
    return lax.optimization_barrier(pixels)


def kernel_gradients(
    x: Images,
    g: Float[Array, "m h2 w2 d"],
    sides: tuple[int, ...],
    strides: tuple[int, ...] = (1, 1),
    before: tuple[int, ...] | None = None,
    dilation: tuple[int, ...] = (1, 1),
) -> Float[Array, "m k c k2 d"]:
    """Each image's gradient of a convolution kernel, indexed (image, row, in, column, out).

    G[n, i, c, j, d] = Σ_{h,w} x[n, h+i, w+j, c] g[n, h, w, d].

    Args:
        x: the convolution's input.
        g: the cotangent of its output.
        sides: height and width of the kernel.
        before: rows and columns of padding before the first; half the kernel if left out.
        dilation: pixels from one row or column of the kernel to the next.
    """

    def product(x: Array, g: Array) -> Array:
        left, right = kernel_operands(x, g, sides, strides, before, dilation)
        return jnp.matmul(left.T, right, precision=PRECISION)

    out, c, d = per_image(product, x, g), x.shape[-1], g.shape[-1]
    if strides[1] == 1:
        return out.reshape(-1, sides[0], c, sides[1], d)
    return out.reshape(-1, *sides, c, d).transpose(0, 1, 3, 2, 4)
