"""Widths of the theorems, as far as their constants are given.

None of them can be had: they are computed so that a result can say how far it is from what its
theorem asks for.
"""

import numpy as np


def theorem1_width(
    n: int, layers: int, beta: float, lipschitz: float = 1.0, largest_feature: float = 1.0
) -> float:
    """m ≥ 18² e^{12C} (1+β)² (C + C_fmax)² N/L², the width that the proof of theorem 1 uses.

    C is the activations' largest Lipschitz constant, C_fmax the largest length of a layer's
    features.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", appendix C, with the squares
    that are missing there.

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
