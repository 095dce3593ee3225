"""AZ-NAS's trainability: the change of a gradient's length from block to block."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from attacks.lazy import Array, jax, jnp, lax
from ntkscore.grams import PRECISION
from ntkscore.kernels.joint import POINTS
from ntkscore.measures.activations import of_each_block
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.registry import Measure, Quantity


def pullback_products(at: Pass) -> list[Float[Array, "_ _ _"]] | None:
    """Correlation of the gradients at each block's input with the cotangents at its output.

    Where a block changes the resolution, the pixels of a patch become channels.

    Returns:
        Of blocks of one shape (blocks, c · (h/h2) · (w/w2), d), where gradients at their inputs
        are (m, h, w, c), and the cotangents at their outputs (m, h2, w2, d).
    """
    # Zen has the first half of the key.
    key = jax.random.split(at.noise)[1]

    def product(left: Float[Array, "m h w c"], right: Float[Array, "m h2 w2 d"]) -> Array:
        m, h, w, d = right.shape
        a, b = left.shape[1] // h, left.shape[2] // w
        patches = left.reshape(m, h, a, w, b, -1).transpose(0, 1, 3, 2, 4, 5)
        rows, cotangents = patches.reshape(m * h * w, -1), right.reshape(-1, d)
        return jnp.matmul(rows.T, cotangents, precision=PRECISION) / len(rows)

    pairs = at.passes.pullbacks(at.model.params, at.residuals, key)
    return [lax.map(lambda pair: product(*pair), pair) for pair in pairs] or None


def largest_values(products: Sequence[Float[np.ndarray, "_ _ _"]]) -> Float[np.ndarray, " b"]:
    """The largest singular value of each matrix; NaN for all where one is not finite."""
    return of_each_block(products, lambda matrices: np.linalg.norm(matrices, 2, (1, 2)))


def trainability(largest: Float[np.ndarray, " b"]) -> float:
    """0 where every block preserves the length of gradients, negative elsewhere.

    Example:
        >>> round(trainability(largest_values([np.eye(3)[None]])), 5)
        0.0
    """
    return float(np.mean(2 - largest - 1 / (largest + 1e-6)))


PULLBACKS = Quantity("pullbacks", POINTS[:1], pullback_products, largest_values, own_passes=True)

MEASURES = (
    Measure(
        "trainability",
        +1,
        "mean over blocks of 2 − σ − 1/σ, σ of a block's backward pass",
        PULLBACKS,
        trainability,
        source="Lee and Ham (2024), AZ-NAS",
    ),
)
