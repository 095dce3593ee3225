"""Numbers that a kernel is reduced to, each with the direction that predicts a better network.

Everything is measured in float64, whatever precision the Jacobians had. A kernel that cannot be
measured gives NaN and a named status, never a stand-in number: docs/definitions.md, section 8.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ntkscore.errors import InputError

Kernel = Float[np.ndarray, "n n"]

OK = "ok"
NOT_FINITE = "not_finite"
NOT_PSD = "not_psd"
CONSTANT = "constant"
SINGULAR = "singular"
NOT_GIVEN = "not_given"
STATUSES = {
    OK: "measured",
    NOT_FINITE: "the kernel has an entry that is not a finite number",
    NOT_PSD: "an eigenvalue is negative beyond rounding",
    CONSTANT: "all entries are equal: network or gradient does not tell the images apart",
    SINGULAR: "λ_min is zero within rounding, so that the score's division has no meaning",
    NOT_GIVEN: "the network does not report what the measure is taken from",
}

ROUNDING = 32
"""Tolerance for negative eigenvalues, in units of ε·λ_max; ε is float32's."""


class Measurement(NamedTuple):
    """A score's value and its status; the value is NaN unless the status is `ok`."""

    value: float
    status: str


@dataclass(frozen=True)
class Spectrum:
    """A kernel and its spectrum.

    Attributes:
        matrix: the kernel, float64.
        values: eigenvalues in rising order; of a kernel that is not symmetric, singular values.
        labels: classes of the images.
        vectors: eigenvectors by column; None where the kernel is not symmetric.
    """

    matrix: Kernel
    values: Float[np.ndarray, "n"]
    labels: Int[np.ndarray, "n"]
    vectors: Kernel | None = None


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


@dataclass(frozen=True)
class Measure:
    """The definition of a train-free measure: what it is, and which way is better.

    Attributes:
        direction: +1 if a larger value predicts a better network, −1 if a smaller one does; 0 for
            what is measured beside the others and predicts nothing.
        formula: what it is, in a line.
        source: whose it is.
    """

    direction: int
    formula: str
    source: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Score(Measure):
    """The definition of a measure that a matrix over the images is reduced to.

    Attributes:
        measure: the value from the spectrum.
        inverts: whether it needs λ_min to be above rounding, since it divides by it.
    """

    measure: Callable[[Spectrum], float]
    inverts: bool = field(default=False, kw_only=True)


SCORES: dict[str, Score] = {
    "frobenius": Score(
        +1, "‖M‖_F", lambda s: float(np.linalg.norm(s.matrix)), source="Wu et al. (2024)"
    ),
    "trace": Score(+1, "Σ λ", lambda s: float(np.trace(s.matrix))),
    "lambda_min": Score(+1, "λ_min", lambda s: float(s.values[0])),
    "lambda_max": Score(+1, "λ_max", lambda s: float(s.values[-1])),
    "condition": Score(
        -1,
        "λ_max/λ_min",
        lambda s: s.values[-1] / s.values[0],
        inverts=True,
        source="Chen et al. (2021), TE-NAS",
    ),
    "lambda_min_normalized": Score(+1, "N·λ_min/trace", _lambda_min_normalized),
    "effective_rank": Score(+1, "exp(entropy of λ/Σλ)", _effective_rank),
    "label_energy": Score(
        -1,
        "tr(Yᵀ M⁻¹ Y)/N, Y centred",
        _label_energy,
        inverts=True,
        source="Wu et al. (2024), theorem 1",
    ),
    "gradient_norm": Score(
        +1,
        "‖mean gradient‖ = √(Σ M)/N",
        _gradient_norm,
        source="Abdelfattah et al. (2021), of the reading in place of the loss",
    ),
}
"""The scores of a symmetric kernel."""

ASYMMETRIC_SCORES = {
    "frobenius": SCORES["frobenius"],
    "trace": SCORES["trace"],
    "sigma_min": Score(+1, "smallest singular value", lambda s: float(s.values[0])),
}
"""The scores of a kernel between two different sets of points: no eigenvalues."""


def measure(
    kernel: Kernel,
    labels: Int[np.ndarray, "n"],
    symmetric: bool = True,
    definitions: Mapping[str, Score] | None = None,
) -> dict[str, Measurement]:
    """Every score of a kernel.

    Args:
        kernel: N×N, of any real dtype; a symmetric one is symmetrised against rounding.
        labels: classes of the N images, for `label_energy`.
        symmetric: False for a kernel between two sets of points.
        definitions: the scores; those of a neural tangent kernel if left out.

    Returns:
        Measurements by score. A kernel that is not finite fails every score; one that is not
        positive semidefinite, or constant, likewise; one that is singular only those that divide
        by λ_min.

    Example:
        >>> measure(np.diag([1.0, 2.0, 5.0]), labels=np.arange(3))["lambda_max"]
        Measurement(value=5.0, status='ok')
    """
    if np.ndim(kernel) != 2 or len(kernel) != len(np.transpose(kernel)) or len(kernel) < 2:
        raise InputError(
            f"expected a square kernel of at least two images, got the shape {np.shape(kernel)}; "
            "give K(X, X)"
        )
    if definitions is None:
        definitions = SCORES if symmetric else ASYMMETRIC_SCORES
    resolution = ROUNDING * np.finfo(np.float32).eps
    if np.asarray(kernel).dtype == np.float64:
        resolution = ROUNDING * np.finfo(np.float64).eps * len(kernel)
    matrix = np.asarray(kernel, np.float64)

    def failed(status: str) -> dict[str, Measurement]:
        return dict.fromkeys(definitions, Measurement(float("nan"), status))

    if not np.isfinite(matrix).all():
        return failed(NOT_FINITE)
    if np.ptp(matrix) <= resolution * np.abs(matrix).max():
        return failed(CONSTANT)
    if not symmetric:
        values = np.linalg.svd(matrix, compute_uv=False)[::-1]
        spectrum = Spectrum(matrix, values, labels)
        return {name: _scored(definition, spectrum) for name, definition in definitions.items()}
    matrix = (matrix + matrix.T) / 2
    values, vectors = np.linalg.eigh(matrix)
    floor = resolution * values[-1]
    if values[0] < -floor:
        return failed(NOT_PSD)
    spectrum = Spectrum(matrix, values, labels, vectors)
    return {
        name: Measurement(float("nan"), SINGULAR)
        if definition.inverts and values[0] <= floor
        else _scored(definition, spectrum)
        for name, definition in definitions.items()
    }


def _scored(definition: Score, spectrum: Spectrum) -> Measurement:
    """Measure one score; the status is `not_finite` where its value overflowed."""
    return finite(float(definition.measure(spectrum)))


def finite(value: float | None) -> Measurement:
    """The measurement of a number that may have overflowed, or that no network gave."""
    if value is None:
        return Measurement(float("nan"), NOT_GIVEN)
    if np.isfinite(value):
        return Measurement(value, OK)
    return Measurement(float("nan"), NOT_FINITE)
