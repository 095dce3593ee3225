"""Train-free measures of a network that are no scores of its kernel, each declared once.

They are taken from gradients in the images and in the weights, from what the rectifiers and blocks
hand on, from weights alone: what comes by on the kernel's way in `probes`, the rest in `own_passes`
and `weight_gradients`. `reductions` makes numbers of matrices.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from ntkscore.errors import InputError
from ntkscore.kernels import joint
from ntkscore.kernels.scores import ASYMMETRIC_SCORES, SCORES, Measure, Score, Spectrum

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
    "jacov": Score(
        +1,
        "−Σ log(λ + k) + 1/(λ + k), λ of the gradients' correlation",
        _jacov,
        source="Mellor et al. (2020), first version",
    ),
    "epe_nas": Score(
        +1, "Σ over classes |Σ log(|correlation| + k)|", _epe_nas, source="Lopes et al. (2021)"
    ),
}
"""Of X, X_ρ and X_2ρ: the scores of the correlation over the pixels of the gradients of the logit
sum; k = 1e-5."""

STATE_SCORES: dict[str, Score] = {
    "naswot": Score(
        +1,
        "ln det of the number of rectifiers in one state",
        lambda s: float(np.sum(np.log(s.values))),
        inverts=True,
        source="Mellor et al. (2021)",
    ),
}
"""Of X, X_ρ and X_2ρ: the scores of the number of rectifiers (ReLUs) that are in the same state,
on or off, at two images."""


@dataclass(frozen=True)
class Number(Measure):
    """The definition of a measure that is a number as it is computed.

    Attributes:
        at: kernels that it stands beside; `network` for what no image is needed for.
        own_passes: whether it takes passes beside the kernel's, and so is measured on demand.
    """

    at: tuple[str, ...] = joint.POINTS
    own_passes: bool = False


NETWORK = "network"
"""In the place of a kernel: the network alone, at no image."""
LOSS = "loss"
"""The mean cross-entropy at a kernel's points, which is measured beside the scores of kernels."""

ATTACKED_ONCE = joint.POINTS[:2]

NUMBERS: dict[str, Number] = {
    "expressivity": Number(
        +1, "Σ over blocks, entropy of the features' spectrum", source="Lee and Ham (2024), AZ-NAS"
    ),
    "progressivity": Number(
        +1, "least rise of that entropy from block to block", source="Lee and Ham (2024), AZ-NAS"
    ),
    "flips": Number(
        -1,
        "share of rectifiers whose state the attack changes",
        at=joint.ASYMMETRIC,
        source="ours, after the states of Mellor et al. (2021)",
    ),
    "curvature": Number(
        -1,
        "mean of ‖∇ℓ(x_ρ) − ∇ℓ(x)‖²/‖x_ρ − x‖²",
        at=("cross",),
        source="Moosavi-Dezfooli et al. (2019), CURE",
    ),
    "synflow": Number(
        +1, "ln Σ |θ ∂R/∂θ|, R of |θ| at ones", at=(NETWORK,), source="Tanaka et al. (2020)"
    ),
    LOSS: Number(0, "mean cross-entropy, nats"),
    "grad_norm": Number(
        +1,
        "Σ over layers ‖∇‖, ∇ the loss's mean gradient",
        at=ATTACKED_ONCE,
        own_passes=True,
        source="Abdelfattah et al. (2021), Zero-cost proxies",
    ),
    "snip": Number(
        +1, "Σ |θ ∇|", at=ATTACKED_ONCE, own_passes=True, source="Lee et al. (2019), SNIP"
    ),
    "zico": Number(
        +1,
        "Σ over layers ln Σ E|∇|/std ∇ over the images",
        at=ATTACKED_ONCE,
        own_passes=True,
        source="Li et al. (2023), ZiCo, with batches of one image",
    ),
    "zen": Number(
        +1,
        "ln E‖f(x) − f(x + 0.01 x′)‖₁ + Σ ln σ, all Gaussian",
        at=(NETWORK,),
        own_passes=True,
        source="Lin et al. (2021), Zen-NAS",
    ),
    "trainability": Number(
        +1,
        "mean over blocks of 2 − σ − 1/σ, σ of the gradient's way back",
        at=("clean",),
        own_passes=True,
        source="Lee and Ham (2024), AZ-NAS",
    ),
    "fisher_entropy": Number(
        +1,
        "entropy of the deciles of the Fisher information's spectrum",
        at=ATTACKED_ONCE,
        own_passes=True,
        source="Týbl and Neumann (2025), VKDNW, a weight a layer",
    ),
    "vkdnw": Number(
        +1,
        "fisher_entropy, and one for each layer with weights",
        at=ATTACKED_ONCE,
        own_passes=True,
        source="Týbl and Neumann (2025), VKDNW, single",
    ),
    "stability": Number(
        -1,
        "E‖∇f(x)ᵀ(x − x̂)‖, x̂ uniform within 1 of x",
        at=("clean",),
        own_passes=True,
        source="Zhu et al. (2022), perturbation stability",
    ),
    "flip_distance": Number(
        +1,
        "mean of |Δ|/‖∇Δ‖, Δ the largest logit less the second",
        at=("clean",),
        own_passes=True,
        source="Moosavi-Dezfooli et al. (2016), DeepFool; Wang et al. (2022)",
    ),
}
"""Measures that are numbers as a program hands them out, or reduced from matrices
(`ntkscore.kernels.reductions`)."""


def measures_at(kernel: str) -> dict[str, Measure]:
    """Every measure that there is of a kernel, at its points, or of the network alone.

    Args:
        kernel: a name in `joint.KERNELS`, or `network`.

    Example:
        >>> list(measures_at("cross"))
        ['frobenius', 'trace', 'sigma_min', 'flips', 'curvature']
        >>> list(measures_at("network"))
        ['synflow', 'zen']
    """
    measures: dict[str, Measure] = {}
    if kernel in joint.KERNELS:
        measures |= ASYMMETRIC_SCORES if kernel in joint.ASYMMETRIC else SCORES
    if kernel in joint.POINTS:
        measures |= SLOPE_SCORES | STATE_SCORES
    return measures | {name: number for name, number in NUMBERS.items() if kernel in number.at}


def all_measures() -> Mapping[str, Measure]:
    """Every measure by name, in the order in which they are shown."""
    return SCORES | ASYMMETRIC_SCORES | SLOPE_SCORES | STATE_SCORES | NUMBERS


def direction_of(name: str, fewer: Collection[str] = ()) -> int:
    """The way a measure predicts a better network: +1, −1, or 0 for the loss.

    Anything else, such as an accuracy or a parameter count, counts as +1.

    Args:
        name: a measure's, or KERNEL.MEASURE.
        fewer: names of counts of which fewer are better, which count as −1.

    Example:
        >>> direction_of("robust.condition")
        -1
    """
    if name in fewer:
        return -1
    measure = all_measures().get(name.rpartition(".")[2])
    return measure.direction if measure else +1


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
        >>> from ntkscore.kernels.scores import measure
        >>> add_score("spectral_gap", lambda s: s.values[-1] - s.values[-2], direction=+1,
        ...           formula="λ_1 − λ_2")
        >>> measure(np.diag([1.0, 2.0, 5.0]), np.arange(3))["spectral_gap"].value
        3.0
        >>> del SCORES["spectral_gap"]
    """
    taken = all_measures()
    if not name.isidentifier() or name in taken:
        raise InputError(
            f"expected a new name of letters, digits and underscores, got {name!r}; there are "
            f"{', '.join(taken)} already, so choose another"
        )
    if direction not in (+1, -1):
        raise InputError(f"expected the direction +1 or -1, got {direction!r}; give either")
    SCORES[name] = Score(direction, formula, value)
