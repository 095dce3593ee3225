"""Lower bounds of a kernel's least eigenvalue, as printed and as it can be proved.

Points on the sphere whose inner products are small give kernels whose Hadamard powers are nearly
diagonal; each power r counts as the square of the first activation's Hermite coefficient μ_r. A
bound that says nothing is 0.

Source: Wu et al. (2024), "Robust NAS under adversarial training", theorem 2. Printed, it is about
K̃_all while its proof is about K̂_ρ, and it drops the skips: without one of them the least eigenvalue
can lie below it, and for K̃_all even with all (`tests/theory`). The corrected bound keeps what each
skip and each branch hands on, and holds for every network of equation 1.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from cells.residual import Residual, Skips
from cells.residual.activations import ACTIVATIONS, Activation
from experiments.theory.gaussian import TERMS, hermite_coefficients, moments
from experiments.theory.infinite_width import check_on_sphere
from ntkscore.errors import InputError

ORDERS_OF_RECTIFIERS = 1000
KERNELS = ("clean", "robust", "twice", "joint_clean", "joint_robust")


def orders(activation: Activation) -> int:
    """The number of Hermite coefficients that can be computed of an activation."""
    return ORDERS_OF_RECTIFIERS if activation.homogeneous else TERMS


def printed_bound(activation: str, n: int, c: float, r: int | None = None) -> float:
    """2 μ_r² (1 − (N−1) c^r), at the best r.

    Args:
        activation: name of σ_1.
        n: N points.
        c: max_{i≠j} |⟨x_i, x_j⟩| + 2ρ + ρ².
        r: the power; the best one if left out.

    Source: theorem 2, with |⟨x_i, x_j⟩|, without whose bars its assumption lets points lie
    opposite each other.

    Example:
        >>> round(printed_bound("relu", n=50, c=0.104), 3)
        0.075
    """
    sigma = ACTIVATIONS[activation]
    squares = hermite_coefficients(sigma, count=orders(sigma)) ** 2
    powers = np.arange(1, len(squares)) if r is None else np.array([r])
    values = 2 * squares[powers] * np.maximum(1 - (n - 1) * min(c, 1.0) ** powers, 0)
    return _without_rounding(float(values.max()))


def shares(space: Residual, architecture: Skips | str) -> tuple[float, float]:
    """The shares of the first layer in the kernel: by skips alone, and by the backward pass.

    w_skip = Π α_l and w_chain = Π (α_{l−1} + (E σ_l′(√v g))²/L²) over the hidden layers after the
    first, v the variance of the layer's input, on points of length 1.
    """
    skips = space.parse(architecture)
    first, *others = (ACTIVATIONS[name] for name in space.activations_of(skips))
    one = np.ones(())
    variance, means = moments(first, one, one, one)[0], hermite_coefficients(first, one, 1)[..., 0]
    alphas, chain = space.encode(skips), 1.0
    for alpha, sigma in zip(alphas, others, strict=True):
        zeroth, slope = hermite_coefficients(sigma, variance, 2)
        chain *= alpha + (slope**2 / variance) / skips.layers**2
        product = moments(sigma, variance, variance, variance)[0]
        cross = 2 * alpha * zeroth * means / skips.layers
        means = zeroth / skips.layers + alpha * means
        variance = product / skips.layers**2 + alpha * variance + cross
    return float(np.prod(alphas)), float(chain)


def lower_bound(
    kernel: str, space: Residual, architecture: Skips | str, n: int, c: float, rho: float = 0.0
) -> float:
    """A bound of the least eigenvalue that is known before any point is attacked.

    Σ_r (w_skip + r w_chain) μ_r(σ_1)² max(0, q^r − (N−1) c_Z^r), with q = 1, or 1 − ρ²/2 for the
    joint kernels, and with c_Z = c, c + 2ρ + ρ² or c + 4ρ + 4ρ² for X, X_ρ and X_2ρ.

    Args:
        kernel: of `KERNELS`, at any β.
        space, architecture: of the network; its width does not count.
        n: N points.
        c: max_{i≠j} |⟨x_i, x_j⟩| of the clean points.
        rho: radius of the attack.

    Raises:
        InputError: if there is no such kernel, or ρ is not from 0 to 2.

    Example:
        >>> round(lower_bound("clean", Residual(), "1", n=50, c=0.104), 2)
        0.21
        >>> lower_bound("robust", Residual(), "1", n=50, c=0.97, rho=0.2)
        0.0
    """
    if kernel not in KERNELS:
        raise InputError(f"a kernel of {', '.join(KERNELS)}", repr(kernel), "choose one")
    if not 0 <= rho <= 2:
        raise InputError("rho from 0 to 2", f"{rho:g}", "it is a chord of the sphere")
    times = {"clean": 0, "robust": 1, "joint_clean": 1, "twice": 2, "joint_robust": 2}[kernel]
    reach = min(c + 2 * times * rho + (times * rho) ** 2, 1.0)
    shrink = 1 - rho**2 / 2 if kernel.startswith("joint") else 1.0
    return _bound(space, architecture, lambda powers: shrink**powers - (n - 1) * reach**powers)


def lower_bound_at(
    space: Residual, architecture: Skips | str, points: Float[np.ndarray, "n d"]
) -> float:
    """A bound of the least eigenvalue of the kernel at these points, from their inner products.

    As `lower_bound`, with max_i Σ_{j≠i} |⟨z_i, z_j⟩|^r in place of (N−1) c^r.

    Raises:
        InputError: if a point is not on the sphere.

    Example:
        >>> round(lower_bound_at(Residual(), "1", np.eye(4)), 2)
        0.85
    """
    check_on_sphere(points)
    inner = np.abs(points @ points.T)
    np.fill_diagonal(inner, 0)

    def remainder(powers: np.ndarray) -> np.ndarray:
        rows, reached = [], np.ones_like(inner)
        for _ in powers:
            reached = reached * inner
            rows.append(reached.sum(1).max())
        return 1 - np.array(rows)

    return _bound(space, architecture, remainder)


def _bound(
    space: Residual, architecture: Skips | str, remainder: Callable[[np.ndarray], np.ndarray]
) -> float:
    """Σ_r (w_skip + r w_chain) μ_r(σ_1)² max(0, remainder_r), over all known powers."""
    first = ACTIVATIONS[space.activations_of(space.parse(architecture))[0]]
    squares = hermite_coefficients(first, count=orders(first))[1:] ** 2
    by_skips, by_chain = shares(space, architecture)
    powers = np.arange(1, orders(first))
    weights = by_skips + powers * by_chain
    return _without_rounding(float(np.sum(weights * squares * np.maximum(remainder(powers), 0))))


def _without_rounding(value: float) -> float:
    """A bound, but 0 for what rounding leaves of coefficients that are zero."""
    return value if value > np.finfo(float).eps else 0.0
