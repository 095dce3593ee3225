"""Kernels of weights that products share.

For a product (`ntkscore.trace.products`) with inputs X, cotangents G and positions p, q

    ⟨Σ_p X_pᵀ G_p, Σ_q X′_qᵀ G′_q⟩ = Σ_pq (X_p · X′_q)(G_p · G′_q).

The left side forms each point's gradient and the right side never does. Whichever takes fewer
multiplications is computed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ntkscore.compiler import GRAMS, Jit
from ntkscore.grams import PRECISION
from ntkscore.platforms import platform
from ntkscore.trace.pairs import CHUNK_BYTES, Pairs
from ntkscore.trace.products import Product

CPU_CHUNK_BYTES = 28 * 2**20
"""The same of gradients on a CPU. A system gives what is larger, with what is beside it, back when
it is freed, and clears it when it is taken again."""
CPU_COLUMNS = 4608
"""Numbers of columns of gradients that a CPU multiplies at once: what stays near its cache."""
Factors = list[tuple[Array, ...]]
"""The arrays that a Gram matrix is computed from, each (m, …): of products the pairs of values and
cotangents, or of leaves their gradients, each alone."""


def concatenate_blocks(sets: Sequence[Sequence[Factors]], sizes: Sequence[int]) -> Factors:
    """Factors of all points, from those of blocks of sets of points.

    Args:
        sets: the blocks of each; the last block may be filled up.
        sizes: how many points each set has.
    """
    whole = [
        jax.tree.map(lambda *a, size=size: jnp.concatenate(a)[:size], *blocks)
        for blocks, size in zip(sets, sizes, strict=True)
    ]
    return jax.tree.map(lambda *a: jnp.concatenate(a), *whole)


def cheaper_by_positions(products: Sequence[Product], count: int, pairs: Pairs) -> bool:
    """Whether the kernel of so many points takes fewer multiplications without their gradients."""
    positions = sum(product.positions for product in products)
    sides, each = (products[0].before, products[0].after), pairs.number(count) / count
    return each * positions**2 * sum(sides) < (positions + each) * prod(sides)


@partial(Jit, fusions=GRAMS, static=("products", "sizes", "pairs"))
def gram(
    products: tuple[Product, ...],
    sizes: tuple[int, ...],
    pairs: Pairs,
    sets: Sequence[Sequence[Factors]],
) -> Array:
    """The kernel of the gradients of some leaves, or of a weight that products share.

    Args:
        products: all of equal sizes but in their positions; none where the factors are gradients.
        sizes: as for `concatenate_blocks`.
        pairs: that it holds.
        sets: as for `concatenate_blocks`.
    """
    factors = concatenate_blocks(sets, sizes)
    if not products:
        rows = [each.reshape(len(each), -1) for (each,) in factors]
        return _by_columns(jnp.concatenate(rows, 1), pairs.of_rows)
    if cheaper_by_positions(products, len(factors[0][0]), pairs):
        return pairs.by_positions(*positions_of(products, factors))
    return _sum_over_rows(products, factors, pairs.of_rows)


def positions_of(
    products: Sequence[Product], factors: Factors
) -> tuple[Float[Array, "m b p k"], Float[Array, "m b p d"]]:
    """The features before and after the products by one weight, at all their positions."""
    uses = zip(products, factors, strict=True)
    sides = [(jax.vmap(p.inputs)(x), jax.vmap(p.outputs)(g)) for p, (x, g) in uses]
    x, g = (jnp.concatenate(each, 2) for each in zip(*sides, strict=True))
    return x, g


def rows_of(products: Sequence[Product], factors: Factors) -> Float[Array, "m ..."]:
    """Each point's gradient of the weight that some products share."""
    uses = zip(products, factors, strict=True)
    first, *others = (product.rows(*each) for product, each in uses)
    return sum(others, first)


def _sum_over_rows(
    products: tuple[Product, ...], factors: Factors, visit: Callable[[Array], Array]
) -> Array:
    """The sum of a function of each point's gradients, some features at a time."""
    first, (_, cotangent) = products[0], factors[0]
    features = first.batch * first.before * first.after
    size = len(cotangent) * features * cotangent.dtype.itemsize
    pieces = -(-size // (CPU_CHUNK_BYTES if platform() == "cpu" else CHUNK_BYTES))
    if pieces <= 1:
        return _by_columns(rows_of(products, factors), visit)
    uses = list(zip(products, factors, strict=True))
    operands = [product.operands(*each) for product, each in uses]
    if len({(left.shape[-1], right.shape[-1]) for left, right in operands}) > 1:
        operands = [Product.operands(product, *each) for product, each in uses]
    left, right = (jnp.concatenate(each, 2) for each in zip(*operands, strict=True))
    step = -(-left.shape[-1] // pieces)
    pieces = -(-left.shape[-1] // step)
    left = jnp.pad(left, ((0, 0),) * 3 + ((0, pieces * step - left.shape[-1]),))
    left, right = lax.optimization_barrier((left, right))

    def seen(piece: Int[Array, ""]) -> Array:
        some = lax.dynamic_slice_in_dim(left, piece * step, step, 3)
        return _by_columns(jnp.einsum("mbpk,mbpd->mbkd", some, right, precision=PRECISION), visit)

    return _total(pieces, seen)


def _by_columns(rows: Float[Array, "m ..."], visit: Callable[[Array], Array]) -> Array:
    """The sum of a function of rows over their columns; on a CPU of some columns at a time."""
    rows = rows.reshape(len(rows), -1)
    pieces = rows.shape[1] // CPU_COLUMNS
    if platform() != "cpu" or pieces <= 1:
        return visit(rows)
    rows = lax.optimization_barrier(rows)

    def seen(piece: Int[Array, ""]) -> Array:
        return visit(lax.dynamic_slice_in_dim(rows, piece * CPU_COLUMNS, CPU_COLUMNS, 1))

    rest = rows[:, pieces * CPU_COLUMNS :]
    return _total(pieces, seen) + (visit(rest) if rest.size else 0)


def _total(pieces: int, seen: Callable[[Int[Array, ""]], Array]) -> Array:
    """The sum of a function of so many places, one after the other."""
    zeros = jnp.zeros_like(jax.eval_shape(seen, jnp.zeros((), int)))
    return lax.fori_loop(0, pieces, lambda piece, total: total + seen(piece), zeros)
