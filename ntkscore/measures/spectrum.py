"""Matrices over the images as their measures read them: spectra in float64, or a status.

A matrix that cannot be measured gives NaN and a named status, never a stand-in number:
docs/definitions.md, section 8.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ntkscore.errors import InputError
from ntkscore.measures.declaration import (
    CONSTANT,
    NOT_FINITE,
    NOT_PSD,
    Measure,
    Measurement,
    failed,
)

Kernel = Float[np.ndarray, "n n"]

ROUNDING = 32
"""Tolerance for negative eigenvalues, in units of ε·λ_max; ε is float32's."""


@dataclass(frozen=True)
class Spectrum:
    """A matrix over the images and its spectrum.

    Attributes:
        matrix: float64.
        values: eigenvalues in rising order; of a matrix that is not symmetric, singular values.
        labels: classes of the images.
        vectors: eigenvectors by column; None where the matrix is not symmetric.
        singular: whether λ_min is zero within rounding.
    """

    matrix: Kernel
    values: Float[np.ndarray, "n"]
    labels: Int[np.ndarray, "n"]
    vectors: Kernel | None = None
    singular: bool = False


def spectrum_of(
    kernel: Kernel, labels: Int[np.ndarray, "n"], symmetric: bool = True
) -> Spectrum | str:
    """The spectrum of a matrix over the images; the status where it cannot be measured.

    Args:
        kernel: N×N, of any real dtype; a symmetric one is symmetrised against rounding.
        labels: classes of the N images.
        symmetric: False for a kernel between two sets of points.
    """
    if np.ndim(kernel) != 2 or len(kernel) != len(np.transpose(kernel)) or len(kernel) < 2:
        raise InputError(
            f"expected a square kernel of at least two images, got the shape {np.shape(kernel)}; "
            "give K(X, X)"
        )
    resolution = ROUNDING * np.finfo(np.float32).eps
    if np.asarray(kernel).dtype == np.float64:
        resolution = ROUNDING * np.finfo(np.float64).eps * len(kernel)
    matrix = np.asarray(kernel, np.float64)
    if not np.isfinite(matrix).all():
        return NOT_FINITE
    if np.ptp(matrix) <= resolution * np.abs(matrix).max():
        return CONSTANT
    if not symmetric:
        return Spectrum(matrix, np.linalg.svd(matrix, compute_uv=False)[::-1], labels)
    matrix = (matrix + matrix.T) / 2
    values, vectors = np.linalg.eigh(matrix)
    floor = resolution * values[-1]
    if values[0] < -floor:
        return NOT_PSD
    return Spectrum(matrix, values, labels, vectors, bool(values[0] <= floor))


def measured(definitions: Mapping[str, Measure], found: Any) -> dict[str, Measurement]:
    """Measurements from what a quantity is read as; all of one status where that is a status."""
    if isinstance(found, str):
        return dict.fromkeys(definitions, failed(found))
    return {name: measure(found) for name, measure in definitions.items()}
