"""Numbers that a kernel is reduced to, each with the direction that predicts a better network.

Everything is measured in float64, whatever precision the Jacobians had. A kernel that cannot be
measured gives NaN and a named status, never a stand-in number: docs/definitions.md, section 8.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from cells.errors import InputError

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
    CONSTANT: "all entries are equal: network or gradient does not tell the images apart",
    SINGULAR: "λ_min is zero within rounding, so that the score's division has no meaning",
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


@dataclass(frozen=True)
class Score:
    """The definition of a score: how it is measured, and which way is better.

    Attributes:
        direction: +1 if a larger value predicts a better network, −1 if a smaller one does; 0 for
            what is measured beside the scores and predicts nothing.
        measure: the value from the spectrum.
        inverts: whether it divides by λ_min, and so needs it to be above rounding.
        formula: what it is, in a line.
    """

    direction: int
    measure: Callable[[Spectrum], float]
    formula: str
    inverts: bool = False


SCORES: dict[str, Score] = {
    "frobenius": Score(+1, lambda s: float(np.linalg.norm(s.matrix)), "‖M‖_F"),
    "trace": Score(+1, lambda s: float(np.trace(s.matrix)), "Σ λ"),
    "lambda_min": Score(+1, lambda s: float(s.values[0]), "λ_min"),
    "lambda_max": Score(+1, lambda s: float(s.values[-1]), "λ_max"),
    "condition": Score(-1, lambda s: s.values[-1] / s.values[0], "λ_max/λ_min", inverts=True),
    "lambda_min_normalized": Score(+1, _lambda_min_normalized, "N·λ_min/trace"),
    "effective_rank": Score(+1, _effective_rank, "exp(entropy of λ/Σλ)"),
    "label_energy": Score(-1, _label_energy, "tr(Yᵀ M⁻¹ Y)/N, Y centred", inverts=True),
}
"""The scores of a symmetric kernel. Source of `frobenius`: Wu et al. (2024), "NTK-score"; of
`condition`: Chen et al. (2021), TE-NAS; of `label_energy`: Wu et al. (2024), Theorem 1."""

ASYMMETRIC_SCORES = {
    "frobenius": SCORES["frobenius"],
    "trace": SCORES["trace"],
    "sigma_min": Score(+1, lambda s: float(s.values[0]), "smallest singular value"),
}
"""The scores of a kernel between two different sets of points: no eigenvalues."""


_K = 1e-5
"""What is added to eigenvalues and correlations before their logarithm, as in the sources."""


def _jacov(s: Spectrum) -> float:
    """−Σ log(λ + k) + 1/(λ + k), largest for gradients that have nothing in common."""
    values = s.values + _K
    return -float(np.sum(np.log(values) + 1 / values))


def _epe_nas(s: Spectrum) -> float:
    """Σ over the classes of |Σ log(|ρ_ij| + k)|, i and j images of the class."""
    classes = [s.matrix[np.ix_(own, own)] for own in _members(s.labels)]
    return float(sum(abs(np.sum(np.log(np.abs(own) + _K))) for own in classes))


def _members(labels: Int[np.ndarray, "n"]) -> list[Int[np.ndarray, "k"]]:
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


SLOPE_SCORES: dict[str, Score] = {
    "jacov": Score(+1, _jacov, "−Σ log(λ + k) + 1/(λ + k), λ of the gradients' correlation"),
    "epe_nas": Score(+1, _epe_nas, "Σ over classes |Σ log(|correlation| + k)|"),
}
"""The scores of the correlation of input gradients, those of the logit sum, over the pixels;
k = 1e-5. Source of `jacov`: Mellor et al. (2020), version 1, "Neural architecture search without
training"; of `epe_nas`: Lopes et al. (2021), "EPE-NAS"."""

LOSS = "loss"
"""The mean cross-entropy at a kernel's points, which is measured beside the scores of kernels."""


def direction_of(name: str) -> int:
    """The way a score predicts a better network: +1, −1, or 0 for the loss.

    Anything else, such as an accuracy or a parameter count, counts as +1.

    Args:
        name: a score's, or KERNEL.SCORE.

    Example:
        >>> direction_of("robust.condition")
        -1
    """
    score = name.rpartition(".")[2]
    if score == LOSS:
        return 0
    definition = (SCORES | ASYMMETRIC_SCORES | SLOPE_SCORES).get(score)
    return definition.direction if definition else +1


def add_score(
    name: str, value: Callable[[Spectrum], float], *, direction: int, formula: str
) -> None:
    """Add a score of your own: from then on `score` and `rank` measure it with the others.

    Args:
        name: for rows and for `--by`; letters, digits and underscores.
        value: a float from the kernel's `Spectrum`; NaN and infinities become `not_finite`.
        direction: +1 if a larger value predicts a better network, −1 if a smaller one does.
        formula: the score in a line.

    Raises:
        InputError: if there is such a score already, or the name or direction is none.

    Example:
        >>> add_score("spectral_gap", lambda s: s.values[-1] - s.values[-2], direction=+1,
        ...           formula="λ_1 − λ_2")
        >>> measure(np.diag([1.0, 2.0, 5.0]), np.arange(3))["spectral_gap"].value
        3.0
        >>> del SCORES["spectral_gap"]
    """
    taken = [*SCORES, *SLOPE_SCORES, LOSS]
    if not name.isidentifier() or name in taken or name in ASYMMETRIC_SCORES:
        raise InputError(
            f"expected a new name of letters, digits and underscores, got {name!r}; there are "
            f"{', '.join(taken)} already, so choose another"
        )
    if direction not in (+1, -1):
        raise InputError(f"expected the direction +1 or -1, got {direction!r}; give either")
    SCORES[name] = Score(direction, value, formula)


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


def finite(value: float) -> Measurement:
    """The measurement of a number that may have overflowed."""
    return Measurement(value, OK) if np.isfinite(value) else Measurement(float("nan"), NOT_FINITE)
