"""Gradients of single points on few random numbers, whose products are the kernel's in the mean.

The draws are of the network and the key alone: any number of points, in any blocks, is projected
alike.
"""

from collections.abc import Sequence
from functools import partial
from math import isqrt

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ntkscore.grams import PRECISION
from ntkscore.trace.product_kernels import Factors, positions_of, rows_of
from ntkscore.trace.products import Product

CHUNK_BYTES = 2**27
"""Bytes of gradients that are held at once."""


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


@partial(jax.jit, static_argnames=("products", "size", "factored"))
def sketch(
    products: tuple[Product, ...], factors: Factors, key: Array, size: int, factored: bool
) -> Float[Array, "m s"]:
    """Each point's gradients by a weight, or by a leaf, on some numbers.

    Args:
        products: by one weight; none where the factors are gradients.
        factors: of them (`ntkscore.trace.weight_uses.WeightUses.factors`).
        key: of the draws.
        size: how many numbers.
        factored: whether the features before and after a product are projected apart where that
            is less work.
    """
    if not products:
        ((rows,),) = factors
        return projection(rows, key, size)
    sides = _sides(size)
    first, (_, cotangent) = products[0], factors[0]
    if factored and all(
        few < many for few, many in zip(sides, (first.before, first.after), strict=True)
    ):
        return _factored(products, factors, key, sides)
    count = first.batch * first.before * first.after
    step = max(1, CHUNK_BYTES // (count * cotangent.dtype.itemsize))

    def one(point: Factors) -> Float[Array, " s"]:
        alone = jax.tree.map(lambda array: array[None], point)
        return projection(rows_of(products, alone), key, size)[0]

    return lax.map(one, factors, batch_size=min(step, len(cotangent)))


def _sides(size: int) -> tuple[int, int]:
    """The two factors of a number that are nearest to each other."""
    less = next(side for side in range(isqrt(size), 0, -1) if size % side == 0)
    return less, size // less


def _factored(
    products: Sequence[Product], factors: Factors, key: Array, sides: tuple[int, int]
) -> Float[Array, "m s"]:
    """Σ_p (X_p A) ⊗ (G_p B), A and B random signs: the gradients Σ_p X_pᵀ G_p are never formed.

    The product of two gradients M, M′ has the variance ((1 + 2/s)(1 + 2/t) − 1) ‖M‖² ‖M′‖² at most,
    for s and t numbers before and after.
    """
    x, g = positions_of(products, factors)

    def few(array: Array, key: Array, side: int) -> Array:
        # Of products that are independent of each other each has draws of its own.
        signs = jax.random.rademacher(key, (array.shape[1], array.shape[3], side), array.dtype)
        return jnp.einsum("mbpk,bks->mbps", array, signs / side**0.5, precision=PRECISION)

    pair = (few(*each) for each in zip((x, g), jax.random.split(key), sides, strict=True))
    return jnp.einsum("mbps,mbpt->mst", *pair, precision=PRECISION).reshape(len(x), -1)
