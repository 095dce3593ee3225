"""Gram matrices of rows, each of an image or another point."""

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
CPU_COLUMNS = 2304
"""Columns of many rows that a CPU multiplies at once: what stays near its cache, as measured on two
cores."""
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
