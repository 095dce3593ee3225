"""Energies of a kernel and labels, and the leading terms and width of a bound that they enter.

Source: Wu et al. (2024), "Robust NAS under adversarial training", theorem 1. Its proof needs any
targets ỹ with y_i ỹ_i ≥ 1, of which the labels are one choice; the smallest energy over all of them
is that of the hard-margin support vector machine, as in Cao and Gu (2019).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from experiments.theory.tasks import check_labels

Kernel = Float[np.ndarray, "n n"]
Labels = Float[np.ndarray, " n"]

GAP = 0.01
"""Relative gap between the certified bounds of a margin energy at which it counts as found."""


class Energy(NamedTuple):
    """An energy, in units of 1 over the kernel's.

    Attributes:
        value: NaN where there is none.
        status: `ok`; `singular` where the kernel's least eigenvalue is within rounding;
            `not_converged` where the certified bounds stay apart.
        lower, upper: certified bounds of the value.
    """

    value: float
    status: str = "ok"
    lower: float = float("nan")
    upper: float = float("nan")


def label_energy_binary(kernel: Kernel, y: Labels) -> Energy:
    """q = yᵀ M⁻¹ y, of labels 1 and −1.

    Example:
        >>> label_energy_binary(np.eye(2) * 4, np.array([1.0, -1.0])).value
        0.5
    """
    check_labels(y)
    kernel = np.asarray(kernel, float)
    least, largest = np.linalg.eigvalsh(kernel)[[0, -1]]
    if not np.isfinite(least) or least <= len(kernel) * np.finfo(float).eps * largest:
        return Energy(float("nan"), "singular")
    value = float(y @ cho_solve(cho_factor(kernel), y))
    return Energy(value, lower=value, upper=value)


def margin_energy(kernel: Kernel, y: Labels, steps: int = 20_000) -> Energy:
    """s = min ỹᵀ M⁻¹ ỹ over all ỹ with y_i ỹ_i ≥ 1, the squared norm of the hard-margin SVM.

    Of a positive semidefinite M and labels 1 and −1, by so many steps of an optimiser at most.

    Found from its dual, max 2 Σa − aᵀQa over a ≥ 0 with Q = M ∘ yyᵀ, whose value is a lower bound
    of s; aᵀQa/(min_i (Qa)_i)² is an upper one.

    Example:
        >>> round(margin_energy(np.array([[1.0, 0.9], [0.9, 1.0]]), np.ones(2)).value, 3)
        1.053
    """
    check_labels(y)
    q = np.asarray(kernel, float) * np.outer(y, y)
    scale = float(np.max(np.diag(q)))
    if not np.isfinite(q).all() or scale <= 0:
        return Energy(float("nan"), "singular")
    q = q / scale

    def dual(a: np.ndarray) -> tuple[float, np.ndarray]:
        slope = q @ a
        return a @ slope - 2 * a.sum(), 2 * slope - 2

    a, lower, upper = np.full(len(q), 1 / len(q)), 0.0, np.inf
    for _ in range(steps // 500):
        found = minimize(
            dual,
            a,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None)] * len(q),
            options={"maxiter": 500, "maxfun": 1000, "ftol": 0, "gtol": 0, "maxcor": 50},
        )
        a = found.x
        reached = q @ a
        lower = max(lower, float(2 * a.sum() - a @ reached))
        least = reached.min()
        if least > 0:
            upper = min(upper, float(a @ reached / least**2))
        if upper - lower <= GAP * lower:
            return Energy(lower / scale, "ok", lower / scale, upper / scale)
    return Energy(float("nan"), "not_converged", lower / scale, upper / scale)


def leading_term(energy: float, layers: int, n: int) -> float:
    """√(L² q/N), of the bound on the expected error; its constants are not known.

    The energy is q or s, of K_all for the clean and of K̃_all for the robust error.
    """
    return float(np.sqrt(layers**2 * energy / n))


def theorem1_width(n: int, layers: int, beta: float, lipschitz: float = 1.0) -> float:
    """m ≥ 18² e^{12C} (1+β)² (C + C_fmax)² N/L², the width that the proof of theorem 1 needs.

    No network has it: it says how far a result is from what its theorem asks for.

    C is the activations' largest Lipschitz constant, and C_fmax = 1 the largest length of a layer's
    features.

    Source: Wu et al. (2024), appendix C, with the squares that are missing there.

    Example:
        >>> f"{theorem1_width(n=9, layers=3, beta=0.0):.1e}"
        '2.1e+08'
    """
    constants = (1 + beta) * (lipschitz + 1)
    return float(18**2 * np.exp(12 * lipschitz) * constants**2 * n / layers**2)
