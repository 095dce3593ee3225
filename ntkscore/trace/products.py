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
from jaxtyping import Array, Float

from ntkscore.grams import PRECISION, Gram, regroup, self_product
from ntkscore.trace.sites import Product

CHUNK_BYTES = 2**29
"""Bytes of gradients, or of products of positions, that are held at once."""


def cheaper_by_positions(products: Sequence[Product], count: int) -> bool:
    """Whether the kernel of some points takes fewer multiplications without their gradients.

    Args:
        products: by one weight.
        count: of the points.
    """
    positions = sum(product.positions for product in products)
    sides = products[0].before, products[0].after
    return count / 2 * positions**2 * sum(sides) < (positions + count / 2) * prod(sides)


@partial(jax.jit, static_argnames=("products", "by_positions", "groups"))
def gram_of_products(
    products: tuple[Product, ...],
    by_positions: bool,
    groups: int,
    values: Sequence[Array],
    cotangents: Sequence[Array],
) -> Gram:
    """The Gram matrices of the gradients of a weight that some products share.

    Args:
        products: all of equal sizes but in their positions.
        by_positions: whether no gradient is formed.
        groups: as for `ntkscore.grams.self_product`.
        values: of the points, for each product (m, …).
        cotangents: of its output (m, …).
    """
    if by_positions:
        pairs = zip(products, values, cotangents, strict=True)
        sides = [(jax.vmap(p.inputs)(x), jax.vmap(p.outputs)(g)) for p, x, g in pairs]
        x, g = (jnp.concatenate(each, 2) for each in zip(*sides, strict=True))
        return regroup(_gram_by_positions(x, g), groups)
    return _sum_over_rows(
        products, values, cotangents, lambda rows, piece: self_product(rows, groups)
    )


def _sum_over_rows(
    products: tuple[Product, ...],
    values: Sequence[Array],
    cotangents: Sequence[Array],
    look: Callable[[Float[Array, "m ..."], int], Array],
) -> Array:
    """The sum of what a function sees of each point's gradients, some features at a time.

    Args:
        products, values, cotangents: as for `gram_of_products`.
        look: given the gradients, and how many pieces came before.
    """
    spread = [p.spread(g) for p, g in zip(products, cotangents, strict=True)]
    first, count, features = products[0], len(values[0]), spread[0].shape[-1]
    size = count * first.products * first.before * features * spread[0].dtype.itemsize
    step = -(-features // -(-size // CHUNK_BYTES))
    total: Array | None = None
    for piece, start in enumerate(range(0, features, step)):
        parts = [
            p.rows(x, g[..., start : start + step])
            for p, x, g in zip(products, values, spread, strict=True)
        ]
        own = look(sum(parts[1:], parts[0]), piece)
        # One piece after the other, so that no two are held at once.
        total = own if total is None else total + own
        total, values, spread = lax.optimization_barrier((total, values, spread))
    assert total is not None
    return total


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
