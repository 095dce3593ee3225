"""Step sizes and widths of the theorems, as far as their constants are given.

None of these widths can be had: they are computed so that a result can say how far it is from what
its theorem asks for. N is the number of points and steps, m the width, C the largest Lipschitz
constant of the activations, ν what a paper calls small enough.
"""

import numpy as np


def theorem_step(
    energy: float, width: int, n: int, lipschitz: float = 1.0, nu: float = 1.0
) -> float:
    """γ = ν √energy / (√C e^C m √N).

    Args:
        energy: the smaller of yᵀK_all⁻¹y and yᵀK̃_all⁻¹y.
        width: m; 1 where the output is as printed, without √m.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", theorem 1. Its proof has
    e^{6C} C_fmax √2 in the denominator. Corollary 1, of convolutional networks with p pixels, has
    √(C p κ) e^{C √κ} for √C e^C, and lacks the energy's square root: it falls with the filter size
    κ, where the remark below it says that it grows.

    Example:
        >>> round(theorem_step(energy=400.0, width=100, n=400), 6)
        0.003679
    """
    return float(nu * np.sqrt(energy / n) / (np.sqrt(lipschitz) * np.exp(lipschitz) * width))


def scaled_step(energy: float, largest: float, width: int, n: int, nu: float = 1.0) -> float:
    """γ = ν √(s/(N k_max))/m, the choice that a regret bound makes.

    Args:
        energy: the margin energy s of K_all.
        largest: k_max, the largest entry of K_all's diagonal.

    Example:
        >>> scaled_step(energy=4.0, largest=1.0, width=1, n=400)
        0.1
    """
    return float(nu * np.sqrt(energy / (n * largest)) / width)


def theorem1_width(
    n: int, layers: int, beta: float, lipschitz: float = 1.0, largest_feature: float = 1.0
) -> float:
    """m ≥ 18² e^{12C} (1+β)² (C + C_fmax)² N/L², the width that the proof of theorem 1 uses.

    C_fmax is the largest length of a layer's features.

    Source: Wu et al. (2024), appendix C, with the squares that are missing there.

    Example:
        >>> f"{theorem1_width(n=9, layers=3, beta=0.0):.1e}"
        '2.1e+08'
    """
    constants = (1 + beta) * (lipschitz + largest_feature)
    return float(18**2 * np.exp(12 * lipschitz) * constants**2 * n / layers**2)


def theorem41_width(radius: float, hidden: int, gap: float, dimension: int = 1) -> float:
    """m = max(R⁹ H¹⁶/ε⁷, d²), for projected descent on a deep network; constants are not given.

    R is the ball's radius, H the number of trained layers, ε, in nats, by how much the loss may
    exceed the best of the ball.

    Source: Gao et al. (2019), "Convergence of adversarial training in overparametrized neural
    networks", theorem 4.1.

    Example:
        >>> f"{theorem41_width(radius=1, hidden=2, gap=0.1):.1e}"
        '6.6e+11'
    """
    return float(max(radius**9 * hidden**16 / gap**7, dimension**2))


def theorem51_width(radius: float, gap: float) -> float:
    """m = R⁴/ε², for descent on a smooth two-layer network, as `theorem41_width`.

    Source: Gao et al. (2019), theorem 5.1.

    Example:
        >>> round(theorem51_width(radius=2, gap=0.1))
        1600
    """
    return float(radius**4 / gap**2)
