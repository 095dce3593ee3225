"""Numbers that a kernel is reduced to, each with the direction that predicts a better network.

Everything is measured in float64, whatever precision the Jacobians had. A kernel that cannot be
measured gives NaN and a named status, never a stand-in number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

Kernel = Float[np.ndarray, "n n"]

OK = "ok"
NOT_FINITE = "not_finite"
NOT_PSD = "not_psd"
CONSTANT = "constant"
SINGULAR = "singular"
STATUSES = {
    OK: "measured",
    NOT_FINITE: "the kernel has an entry that is not a finite number",
    NOT_PSD: "an eigenvalue is negative beyond rounding",
    CONSTANT: "all entries are equal: the network does not tell the images apart",
    SINGULAR: "λ_min is zero within rounding, so that the score's division has no meaning",
}

ROUNDING = 32
"""How many units of float32's ε, times λ_max, an eigenvalue may be below zero by rounding."""


class Score(NamedTuple):
    """A value and what became of it; the value is NaN unless the status is `ok`."""

    value: float
    status: str


@dataclass(frozen=True)
class Spectrum:
    """A symmetric kernel with its eigenvalues in rising order and, if asked for, eigenvectors."""

    matrix: Kernel
    values: Float[np.ndarray, "n"]
    vectors: Kernel
    labels: Int[np.ndarray, "n"]


def _lambda_min_normalized(s: Spectrum) -> float:
    return len(s.values) * s.values[0] / s.values.sum()


def _effective_rank(s: Spectrum) -> float:
    share = np.clip(s.values, 0, None)
    share = share[share > 0] / share.sum()
    return float(np.exp(-np.sum(share * np.log(share))))


def _label_energy(s: Spectrum) -> float:
    targets = (s.labels[:, None] == np.unique(s.labels)).astype(np.float64)
    projections = s.vectors.T @ (targets - targets.mean(0))
    return float(np.sum(projections**2 / s.values[:, None]) / len(s.values))


@dataclass(frozen=True)
class Definition:
    """A score: how it is measured, and which way is better.

    Attributes:
        direction: +1 if a larger value predicts a better network, −1 if a smaller one does.
        measure: the value from the spectrum.
        inverts: whether it divides by λ_min, and so needs it to be above rounding.
        formula: what it is, in a line.
    """

    direction: int
    measure: Callable[[Spectrum], float]
    formula: str
    inverts: bool = False


SCORES = {
    "frobenius": Definition(+1, lambda s: float(np.linalg.norm(s.matrix)), "‖M‖_F"),
    "trace": Definition(+1, lambda s: float(np.trace(s.matrix)), "Σ λ"),
    "lambda_min": Definition(+1, lambda s: float(s.values[0]), "λ_min"),
    "lambda_max": Definition(+1, lambda s: float(s.values[-1]), "λ_max"),
    "condition": Definition(-1, lambda s: s.values[-1] / s.values[0], "λ_max/λ_min", inverts=True),
    "lambda_min_normalized": Definition(+1, _lambda_min_normalized, "N·λ_min/trace"),
    "effective_rank": Definition(+1, _effective_rank, "exp(entropy of λ/Σλ)"),
    "label_energy": Definition(-1, _label_energy, "tr(Yᵀ M⁻¹ Y)/N, Y centred", inverts=True),
}
"""The scores of a symmetric kernel. Source of `frobenius`: Wu et al. (2024), "NTK-score"; of
`condition`: Chen et al. (2021), TE-NAS; of `label_energy`: Wu et al. (2024), Theorem 1."""

ASYMMETRIC_SCORES = {
    "frobenius": SCORES["frobenius"],
    "trace": SCORES["trace"],
    "sigma_min": Definition(+1, lambda s: float(s.values[0]), "smallest singular value"),
}
"""The scores of a kernel between two different sets of points: no eigenvalues."""

DIRECTIONS = {
    name: definition.direction for name, definition in (SCORES | ASYMMETRIC_SCORES).items()
}


def measure(
    kernel: Kernel, labels: Int[np.ndarray, "n"], symmetric: bool = True
) -> dict[str, Score]:
    """Every score of a kernel.

    Args:
        kernel: N×N, of any real dtype; a symmetric one is symmetrised against rounding.
        labels: classes of the N images, for `label_energy`.
        symmetric: False for a kernel between two sets of points.

    Returns:
        Scores by name. A kernel that is not finite fails every score; one that is not positive
        semidefinite, or constant, likewise; one that is singular only those that divide by λ_min.
    """
    definitions = SCORES if symmetric else ASYMMETRIC_SCORES
    resolution = ROUNDING * np.finfo(np.float32).eps
    if np.asarray(kernel).dtype == np.float64:
        resolution = ROUNDING * np.finfo(np.float64).eps * len(kernel)
    matrix = np.asarray(kernel, np.float64)

    def failed(status: str) -> dict[str, Score]:
        return dict.fromkeys(definitions, Score(float("nan"), status))

    if not np.isfinite(matrix).all():
        return failed(NOT_FINITE)
    if np.ptp(matrix) <= resolution * np.abs(matrix).max():
        return failed(CONSTANT)
    if not symmetric:
        values = np.linalg.svd(matrix, compute_uv=False)[::-1]
        spectrum = Spectrum(matrix, values, matrix, labels)
        return {name: _scored(definition, spectrum) for name, definition in definitions.items()}
    matrix = (matrix + matrix.T) / 2
    values, vectors = np.linalg.eigh(matrix)
    floor = resolution * values[-1]
    if values[0] < -floor:
        return failed(NOT_PSD)
    spectrum = Spectrum(matrix, values, vectors, labels)
    return {
        name: Score(float("nan"), SINGULAR)
        if definition.inverts and values[0] <= floor
        else _scored(definition, spectrum)
        for name, definition in definitions.items()
    }


def _scored(definition: Definition, spectrum: Spectrum) -> Score:
    """The score, or by name that it overflowed."""
    value = float(definition.measure(spectrum))
    return Score(value, OK) if np.isfinite(value) else Score(float("nan"), NOT_FINITE)
