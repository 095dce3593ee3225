"""Perturbation stability: how far outputs move, to first order, with a uniform draw of the ball.

𝒫(f, ε) = E ‖∇f(x)ᵀ(x − x̂)‖ over x, x̂ uniform within ε of x, and the weights. It is linear in ε:
here ε = 1. Smaller is more robust. `ntkscore.measures.perturbations.displacements` measures it.
Here are its exact values and bounds for networks with d inputs, m features a layer, o outputs and L
layers, under an initialisation of `experiments.theory.networks.INITIALISATIONS`.

Source: Zhu et al. (2022), "Robustness in deep learning: the good (width), the bad (depth), and the
ugly (initialization)", appendix B.
"""

import numpy as np
from scipy.special import gammaln

from experiments.theory.networks import INITIALISATIONS


def gain(initialisation: str, dimension: int, width: int) -> float:
    """γ = β√(m/2), the growth of a signal's length by a hidden layer."""
    return float(INITIALISATIONS[initialisation](dimension, width)[1] * np.sqrt(width / 2))


def second_moment(
    initialisation: str, dimension: int, width: int, outputs: int, layers: int
) -> float:
    """E ‖∇f(x)ᵀ(x − x̂)‖² of a random network, exactly, at any width: its bound is met.

    Source: Zhu et al. (2022), lemma 5, with E ‖x − x̂‖² = d/(d + 2).

    Example:
        >>> round(second_moment("he", 10, 64, outputs=1, layers=4), 4)
        0.1667
    """
    first, _, last = INITIALISATIONS[initialisation](dimension, width)
    scale = width * outputs * first**2 * last**2 / 2
    grown = gain(initialisation, dimension, width) ** (2 * (layers - 2))
    return float(scale * grown * dimension / (dimension + 2))


def stability_at_initialisation(
    initialisation: str, dimension: int, width: int, outputs: int, layers: int
) -> float:
    """𝒫/ε of a random network, to leading order of a log-normal in (L − 1)/m.

    Source: derived; the first factor is of lemma 5 of Zhu et al. (2022).
    """
    root = np.sqrt(second_moment(initialisation, dimension, width, outputs, layers))
    log_ratio = gammaln((outputs + 1) / 2) - gammaln(outputs / 2)
    of_outputs = np.sqrt(2 / outputs) * np.exp(log_ratio)
    return float(root * of_outputs * np.exp(-5 * (layers - 1) / (8 * width)))
