"""Measures of the gradients of the logit sum in the images: jacov and EPE-NAS."""

import numpy as np
from jaxtyping import Float

from attacks.lazy import Array, jnp
from ntkscore.grams import PRECISION
from ntkscore.kernels.joint import POINTS
from ntkscore.measures.kernel import Spectrum
from ntkscore.measures.registry import Measure, Quantity

TINY = 1e-30
"""A gradient whose largest entry is below it counts as zero."""
K = 1e-5
"""Added to eigenvalues and correlations before their logarithm, as in the sources."""


def correlation(rows: Float[Array, "m ..."]) -> Float[Array, "m m"]:
    """Pearson's correlation of each row with each; zero with one of equal entries."""
    rows = rows.reshape(len(rows), -1)
    # Entries far from 1 would overflow when squared.
    rows = rows / jnp.maximum(jnp.max(jnp.abs(rows), 1, keepdims=True), TINY)
    rows -= jnp.mean(rows, 1, keepdims=True)
    norms = jnp.linalg.norm(rows, axis=1, keepdims=True)
    rows /= jnp.where(norms > 0, norms, 1)
    return jnp.matmul(rows, rows.T, precision=PRECISION)


def jacov(s: Spectrum) -> float:
    """−Σ [log(λ + k) + 1/(λ + k)], largest for uncorrelated gradients."""
    values = s.values + K
    return -float(np.sum(np.log(values) + 1 / values))


def epe_nas(s: Spectrum) -> float:
    """Σ over the classes of |Σ log(|ρ_ij| + k)|, i and j images of the class."""
    classes = [np.flatnonzero(s.labels == label) for label in np.unique(s.labels)]
    blocks = [s.matrix[np.ix_(members, members)] for members in classes]
    return float(sum(abs(np.sum(np.log(np.abs(block) + K))) for block in blocks))


SLOPES = Quantity("slopes", POINTS)
"""The correlation over the pixels of the gradients of the logit sum."""

MEASURES = (
    Measure(
        "jacov",
        +1,
        "−Σ [log(λ + k) + 1/(λ + k)], λ of the gradients' correlation",
        SLOPES,
        jacov,
        source="Mellor et al. (2020), first version",
    ),
    Measure(
        "epe_nas",
        +1,
        "Σ over classes |Σ log(|correlation| + k)|",
        SLOPES,
        epe_nas,
        source="Lopes et al. (2021)",
    ),
)
