"""Kernels of weights that products share.

For a product (`ntkscore.trace.sites`) with inputs X, cotangents G and positions p, q

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

from ntkscore.grams import PRECISION, Gram, regroup, self_product
from ntkscore.platforms import platform
from ntkscore.trace.sites import Product

CHUNK_BYTES = 2**29
"""Bytes of gradients, or of products of positions, that are held at once."""
CPU_CHUNK_BYTES = 2**24
"""The same of gradients on a CPU: what its last cache holds."""
Factors = tuple[list[Array], list[Array]]
"""The arrays that a Gram matrix is computed from, each (m, …): a product's values and
cotangents, or the gradients of leaves and nothing."""


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


def cheaper_by_positions(products: Sequence[Product], count: int) -> bool:
    """Whether the kernel of some points takes fewer multiplications without their gradients.

    Args:
        products: by one weight.
        count: of the points.
    """
    positions = sum(product.positions for product in products)
    sides = products[0].before, products[0].after
    return count / 2 * positions**2 * sum(sides) < (positions + count / 2) * prod(sides)


@partial(jax.jit, static_argnames=("products", "sizes", "groups"))
def gram(
    products: tuple[Product, ...],
    sizes: tuple[int, ...],
    groups: int,
    sets: Sequence[Sequence[Factors]],
) -> Gram:
    """The Gram matrices of the gradients of some leaves, or of a weight that products share.

    Args:
        products: all of equal sizes but in their positions; none where the factors are gradients.
        sizes: as for `concatenate_blocks`.
        groups: as for `ntkscore.grams.self_product`.
        sets: as for `concatenate_blocks`.
    """
    values, cotangents = concatenate_blocks(sets, sizes)
    if not products:
        rows = [each.reshape(len(each), -1) for each in values]
        return self_product(jnp.concatenate(rows, 1), groups)
    if cheaper_by_positions(products, len(values[0])):
        pairs = zip(products, values, cotangents, strict=True)
        sides = [(jax.vmap(p.inputs)(x), jax.vmap(p.outputs)(g)) for p, x, g in pairs]
        x, g = (jnp.concatenate(each, 2) for each in zip(*sides, strict=True))
        return regroup(_gram_by_positions(x, g), groups)
    visit = lambda rows, piece: self_product(rows, groups)  # noqa: E731
    return _sum_over_rows(products, values, cotangents, visit)


def _sum_over_rows(
    products: tuple[Product, ...],
    values: Sequence[Array],
    cotangents: Sequence[Array],
    visit: Callable[[Float[Array, "m ..."], Int[Array, ""]], Array],
) -> Array:
    """The sum of a function of each point's gradients, some features at a time.

    Args:
        products, values, cotangents: the products, and for each its factors (m, …).
        visit: of the gradients, and of how many pieces came before.
    """
    uses = list(zip(products, values, cotangents, strict=True))
    first, count, dtype = products[0], len(values[0]), cotangents[0].dtype
    size = count * first.batch * first.before * first.after * dtype.itemsize
    pieces = -(-size // (CPU_CHUNK_BYTES if platform() == "cpu" else CHUNK_BYTES))
    if pieces <= 1:
        rows = [product.rows(x, g) for product, x, g in uses]
        return visit(sum(rows[1:], rows[0]), jnp.zeros((), int))
    operands = [product.operands(x, g) for product, x, g in uses]
    if len({(left.shape[-1], right.shape[-1]) for left, right in operands}) > 1:
        operands = [Product.operands(*use) for use in uses]
    left, right = (jnp.concatenate(each, 2) for each in zip(*operands, strict=True))
    step = -(-left.shape[-1] // pieces)
    pieces = -(-left.shape[-1] // step)
    left = jnp.pad(left, ((0, 0),) * 3 + ((0, pieces * step - left.shape[-1]),))
    left, right = lax.optimization_barrier((left, right))

    def seen(piece: Int[Array, ""]) -> Array:
        some = lax.dynamic_slice_in_dim(left, piece * step, step, 3)
        rows = jnp.einsum("mbpk,mbpd->mbkd", some, right, precision=PRECISION)
        return visit(lax.optimization_barrier(rows), piece)

    zeros = jnp.zeros_like(jax.eval_shape(seen, jnp.zeros((), int)))
    return lax.fori_loop(0, pieces, lambda piece, total: total + seen(piece), zeros)


@partial(jax.jit, static_argnames=("products", "size"))
def projected_products(
    products: tuple[Product, ...],
    values: Sequence[Array],
    cotangents: Sequence[Array],
    key: Array,
    size: int,
) -> Float[Array, "m s"]:
    return _sum_over_rows(
        products,
        values,
        cotangents,
        lambda rows, piece: projection(rows, jax.random.fold_in(key, piece), size),
    )


@partial(jax.jit, static_argnames="size")
def projection(rows: Float[Array, "m ..."], key: Array, size: int) -> Float[Array, "m s"]:
    """Rows of many numbers as rows of few, whose products are those of the rows in the mean.

    Each number is added to one of the few, drawn at random, with a random sign: a projection of
    Johnson and Lindenstrauss with one entry in each column. The product of two rows has the
    variance (‖a‖²‖b‖² + ⟨a, b⟩²) / S at most, over the draws.

    Args:
        rows: of each point.
        key: of the draws; equal keys project equal shapes alike.
        size: S.

    Source: Charikar, Chen and Farach-Colton (2002), "Finding frequent items in data streams";
    Weinberger et al. (2009), "Feature hashing for large scale multitask learning", lemma 2.
    """
    flat = rows.reshape(len(rows), -1)
    first, second = jax.random.split(key)
    signs = jax.random.rademacher(first, flat.shape[1:], flat.dtype)
    places = jax.random.randint(second, flat.shape[1:], 0, size)
    return jax.ops.segment_sum((flat * signs).T, places, size).T


def _gram_by_positions(
    x: Float[Array, "m b p k"], g: Float[Array, "m b p d"]
) -> Float[Array, "m m"]:
    """Σ_bpq (X_bp · X′_bq)(G_bp · G′_bq), some rows at a time up to the diagonal."""
    m, b, p, _ = x.shape
    fitting = CHUNK_BYTES // (2 * b * p * p * m * x.dtype.itemsize)
    # Four pieces save three eighths of the products, two a quarter, and compile faster.
    step = max(1, min(fitting, -(-m // (4 if m > 64 else 2))))
    below = []
    for start in range(0, m, step):
        stop = min(start + step, m)
        first, second = (
            jnp.einsum("mbpk,nbqk->bmpnq", each[start:stop], each[:stop], precision=PRECISION)
            for each in (x, g)
        )
        own = jnp.sum(first * second, (0, 2, 4))
        below.append(jnp.pad(own, ((0, 0), (0, m - stop))))
    lower, place = jnp.concatenate(below), jnp.arange(m) // step
    return jnp.where(place[:, None] >= place[None], lower, lower.T)
