"""Measures of a network's activations: NASWOT, and AZ-NAS's expressivity and progressivity."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int, Shaped

from attacks.lazy import Array, jax, jnp, lax
from ntkscore.grams import PRECISION, square
from ntkscore.kernels.joint import POINTS
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.kernel import Spectrum
from ntkscore.measures.registry import Measure, Quantity


def equal_states(at: Pass) -> Float[Array, "n n"] | None:
    """The number of rectifiers that are in the same state, on or off, at two points."""
    if at.activations is None:
        return None
    first, *others = (jax.jit(_equal_states)(*each) for each in at.activations.rectified)
    return sum(others, first)


def _equal_states(count: Int[Array, " k"], x: Shaped[Array, "k n ..."]) -> Float[Array, "n n"]:
    """The number for layers of one shape, each counted as often as `count` says."""
    dtype = jnp.zeros(()).dtype

    def add(total: Array, layer: tuple[Array, Array]) -> tuple[Array, None]:
        count, x = layer
        signs = jnp.where(x > 0, 1, -1).astype(dtype).reshape(len(x), -1)
        # The product counts those in the same state, less the others.
        same = lambda signs: (signs.shape[1] + square(signs)) / 2  # noqa: E731
        none = lambda signs: jnp.zeros_like(total)  # noqa: E731
        return total + count * lax.cond(count > 0, same, none, signs), None

    n = x.shape[1]
    return lax.scan(add, jnp.zeros((n, n), dtype), (count.astype(dtype), x))[0]


def naswot(s: Spectrum) -> float:
    """ln det of the numbers of rectifiers in equal states."""
    return float(np.sum(np.log(s.values)))


def feature_products(at: Pass) -> list[Float[Array, "_ _ _"]] | None:
    """Products of each block's centred features with themselves: multiples of their covariance.

    Over channels or over points and pixels, whichever is smaller; the eigenvalues differ by zeros.
    The host computes eigenvalues, since two LAPACK calls at a time in a program on a CPU can
    deadlock (jaxlib 0.10.2, batches of matrices).
    """
    if at.activations is None:
        return None
    return [jax.jit(products)(blocks) for blocks in at.activations.features]


def products(blocks: Float[Array, "k n ... c"], centred: bool = True) -> Float[Array, "k d d"]:
    """Products of features with themselves, over channels or positions, whichever are fewer."""

    def product(features: Float[Array, "n ... c"]) -> Float[Array, "d d"]:
        rows = features.reshape(-1, features.shape[-1])
        if centred:
            rows -= jnp.mean(rows, 0)
        rows = rows if len(rows) < rows.shape[1] else rows.T
        return jnp.matmul(rows, rows.T, precision=PRECISION)

    return lax.map(product, blocks)


def of_each_block(
    products: Sequence[Float[np.ndarray, "_ _ _"]], number: Callable[..., Float[np.ndarray, " k"]]
) -> Float[np.ndarray, " b"]:
    """A number of each block's matrix, block by block; NaN for all where one is not finite.

    Blocks of one shape come together: their matrices in float64 give their numbers.
    """
    if not all(np.isfinite(each).all() for each in products):
        return np.full(sum(map(len, products)), np.nan)
    return np.concatenate([number(each.astype(float)) for each in products])


def feature_entropies(products: Sequence[Float[np.ndarray, "_ _ _"]]) -> Float[np.ndarray, " b"]:
    """Entropy in nats of the normalised spectrum of the features' covariance, block by block.

    NaN for a block whose features are all equal, and for all where one has some not finite. The
    products are those of `feature_products`.

    Example:
        >>> feature_entropies([np.eye(3)[None]]).round(6)  # three equal shares: ln 3
        array([1.098612])
    """

    def entropies(products: Float[np.ndarray, "k d d"]) -> Float[np.ndarray, " k"]:
        spectrum = np.linalg.eigvalsh(products)
        share = np.clip(spectrum, 0, None) / np.sum(spectrum, 1, keepdims=True)
        return -np.sum(share * np.log(share + 1e-8), 1)

    with np.errstate(invalid="ignore"):
        return of_each_block(products, entropies)


def least_rise(entropies: Float[np.ndarray, " b"]) -> float | None:
    """The least rise from one block to the next; None of a single block."""
    return float(np.min(np.diff(entropies))) if len(entropies) > 1 else None


STATES = Quantity("states", POINTS, equal_states)
FEATURES = Quantity("features", POINTS, feature_products, feature_entropies)

MEASURES = (
    Measure(
        "naswot",
        +1,
        "ln det of the number of rectifiers in one state",
        STATES,
        naswot,
        source="Mellor et al. (2021), Neural architecture search without training",
        inverts=True,
    ),
    Measure(
        "expressivity",
        +1,
        "Σ over blocks, entropy of the features' spectrum",
        FEATURES,
        np.sum,
        source="Lee and Ham (2024), AZ-NAS",
    ),
    Measure(
        "progressivity",
        +1,
        "least rise of that entropy from block to block",
        FEATURES,
        least_rise,
        source="Lee and Ham (2024), AZ-NAS",
    ),
)
