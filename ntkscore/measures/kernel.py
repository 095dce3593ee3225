"""Scores of kernels: numbers of their spectra, in float64 whatever precision the Jacobians had.

A matrix that cannot be measured gives NaN and a named status, never a stand-in number:
docs/definitions.md, section 8.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ntkscore.errors import InputError
from ntkscore.kernels.joint import ASYMMETRIC, KERNELS, Kernel
from ntkscore.measures.registry import (
    CONSTANT,
    NOT_FINITE,
    NOT_PSD,
    Measure,
    Measurement,
    Quantity,
    declare,
    measures_of,
)

ROUNDING = 32
"""Tolerance for eigenvalues, in units of ε·λ_max; of float64 in units of N ε·λ_max."""


@dataclass(frozen=True)
class Spectrum:
    """A matrix over the images and its spectrum.

    Attributes:
        matrix: float64.
        values: eigenvalues in rising order; of a matrix that is not symmetric, singular values.
        vectors: eigenvectors by column; None where the matrix is not symmetric.
        singular: whether λ_min is zero within rounding.
    """

    matrix: Kernel
    values: Float[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]
    vectors: Kernel | None = None
    singular: bool = False


def spectrum_of(
    kernel: Kernel, labels: Int[np.ndarray, " n"], symmetric: bool = True
) -> Spectrum | str:
    """The spectrum of a matrix over the images; the status where it cannot be measured."""
    if np.ndim(kernel) != 2 or len(kernel) != len(np.transpose(kernel)) or len(kernel) < 2:
        raise InputError(
            "a square kernel of at least two images",
            f"the shape {np.shape(kernel)}",
            "give K(X, X)",
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


ASYMMETRY = 1e-2
"""Difference of mirror images, relative to the largest entry, that rounding explains."""
SYMMETRIC = tuple(kernel for kernel in KERNELS if kernel not in ASYMMETRIC)
KERNEL = Quantity("gram", SYMMETRIC)
"""The symmetric kernels, which have eigenvalues and eigenvectors."""


def _lambda_min_normalized(s: Spectrum) -> float:
    return len(s.values) * s.values[0] / s.values.sum()


def _effective_rank(s: Spectrum) -> float:
    share = np.clip(s.values, 0, None)
    share = share[share > 0] / share.sum()
    return float(np.exp(-np.sum(share * np.log(share))))


def _label_energy(s: Spectrum) -> float:
    targets = (s.labels[:, None] == np.unique(s.labels)).astype(np.float64)
    assert s.vectors is not None
    projections = s.vectors.T @ (targets - targets.mean(0))
    return float(np.sum(projections**2 / s.values[:, None]) / len(s.values))


def _gradient_norm(s: Spectrum) -> float:
    # Rounding may leave a sum of squares below zero.
    return float(np.sqrt(max(np.sum(s.matrix), 0.0)) / len(s.matrix))


MEASURES = (
    Measure(
        "frobenius",
        +1,
        "‖M‖_F",
        KERNEL,
        lambda s: float(np.linalg.norm(s.matrix)),
        source="Wu et al. (2024)",
        places=KERNELS,
    ),
    Measure("trace", +1, "Σ λ", KERNEL, lambda s: np.trace(s.matrix), places=KERNELS),
    Measure("lambda_min", +1, "λ_min", KERNEL, lambda s: s.values[0]),
    Measure("lambda_max", +1, "λ_max", KERNEL, lambda s: s.values[-1]),
    Measure(
        "condition",
        -1,
        "λ_max/λ_min",
        KERNEL,
        lambda s: s.values[-1] / s.values[0],
        source="Chen et al. (2021), TE-NAS",
        inverts=True,
    ),
    Measure("lambda_min_normalized", +1, "N·λ_min/trace", KERNEL, _lambda_min_normalized),
    Measure("effective_rank", +1, "exp(entropy of λ/Σλ)", KERNEL, _effective_rank),
    Measure(
        "label_energy",
        -1,
        "tr(Yᵀ M⁻¹ Y)/N, Y centred",
        KERNEL,
        _label_energy,
        source="Wu et al. (2024), theorem 1",
        inverts=True,
    ),
    Measure(
        "gradient_norm",
        +1,
        "‖mean gradient‖ = √(Σ M)/N",
        KERNEL,
        _gradient_norm,
        source="Abdelfattah et al. (2021), of the reading in place of the loss",
    ),
    Measure(
        "sigma_min", +1, "smallest singular value", KERNEL, lambda s: s.values[0], places=ASYMMETRIC
    ),
)


def scores_of(kernel: str) -> dict[str, Measure]:
    """The scores that a kernel is reduced to, by its name in `joint.KERNELS`."""
    return {name: score for name, score in measures_of(KERNEL).items() if kernel in score.at}


def measure(
    kernel: Kernel,
    labels: Int[np.ndarray, " n"],
    symmetric: bool = True,
) -> dict[str, Measurement]:
    """Every score of a kernel.

    Args:
        kernel: N×N, of any real dtype; a symmetric one is symmetrised against rounding.
        labels: classes of the N images, for `label_energy`.
        symmetric: False for a kernel between two sets of points.

    Returns:
        Measurements by score. A kernel that is not finite fails every score; one that is not
        positive semidefinite, or constant, likewise; one that is singular only those that divide
        by λ_min.

    Raises:
        InputError: if the matrix is not square, complex, or not symmetric where it should be.

    Example:
        >>> measure(np.diag([1.0, 2.0, 5.0]), labels=np.arange(3))["lambda_max"]
        Measurement(value=5.0, status='ok')
    """
    if np.iscomplexobj(kernel):
        raise InputError("a kernel of real numbers", np.asarray(kernel).dtype, "give its real part")
    matrix = np.asarray(kernel, np.float64)
    if symmetric and np.isfinite(matrix).all() and matrix.shape == matrix.T.shape:
        remedy = "give K(X, X), or symmetric=False for a kernel between two sets of points"
        check_symmetric(matrix, remedy)
    scores = scores_of((SYMMETRIC if symmetric else ASYMMETRIC)[0])
    found = spectrum_of(kernel, labels, symmetric)
    return {name: score(found) for name, score in scores.items()}


def check_symmetric(kernel: Kernel, remedy: str) -> None:
    """Refuse a square matrix that is farther from symmetric than rounding explains."""
    apart = np.abs(kernel - kernel.T).max(initial=0)
    if apart > ASYMMETRY * np.abs(kernel).max(initial=0):
        raise InputError(
            "a symmetric kernel",
            f"entries that differ from their mirror images by {apart:.3g}",
            remedy,
        )


def add_score(
    name: str, value: Callable[[Spectrum], float], *, direction: int, formula: str
) -> None:
    """Add a score of your own: from then on `score` measures it with the others.

    Args:
        name: for rows and for `--by`; letters, digits and underscores.
        value: a float from the kernel's `Spectrum`; NaN and infinities become `not_finite`.
        direction: +1 if a larger value predicts a better network, −1 if a smaller one does.
        formula: the score in a line.

    Raises:
        InputError: if there is such a score already, or the name or direction is none.

    Example:
        >>> from ntkscore.measures.registry import MEASURES
        >>> add_score("spectral_gap", lambda s: s.values[-1] - s.values[-2], direction=+1,
        ...           formula="λ_1 − λ_2")
        >>> measure(np.diag([1.0, 2.0, 5.0]), np.arange(3))["spectral_gap"].value
        3.0
        >>> del MEASURES["spectral_gap"]
    """
    declare(Measure(name, direction, formula, KERNEL, value))
