"""Expectations of activations over Gaussian pre-activations: what a wide layer computes.

Of an activation σ and a Gaussian pair (u, u′) they are E σ(u)σ(u′) and E σ′(u)σ′(u′), in closed
form for rectifiers and as power series of the correlation otherwise, whose coefficients are those
of σ in Hermite polynomials.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Float

from cells.residual.activations import Activation

TERMS = 80
"""Hermite coefficients of an activation that is no rectifier."""
NODES = 200
"""Nodes of the Gauss–Hermite rule that computes them."""

Numbers = Float[np.ndarray, "..."] | float
"""NumPy makes scalars of arrays without axes."""


@lru_cache
def _rule(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes and weights of a standard Gaussian, and h_0 … h_{count−1} at the nodes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    rows = [np.ones_like(nodes), nodes]
    for r in range(1, count):
        rows.append((nodes * rows[r] - np.sqrt(r) * rows[r - 1]) / np.sqrt(r + 1))
    return nodes, weights / np.sqrt(2 * np.pi), np.array(rows[:count])


def hermite_coefficients(
    activation: Activation, variance: Numbers = 1.0, count: int = TERMS
) -> Float[np.ndarray, "... r"]:
    """μ_r = E σ(√v g) h_r(g), with h_r the normalised Hermite polynomials of a standard Gaussian g.

    Args:
        activation: σ.
        variance: v ≥ 0, of any shape.
        count: r = 0 … count − 1.

    Source: Nguyen and Mondelli (2020), "Global convergence of deep networks with one wide layer
    followed by pyramidal topology", lemma D.3: on unit vectors E σ(w·x)σ(w·x′) = Σ μ_r² ⟨x, x′⟩^r.

    Example:
        >>> from cells.residual import ACTIVATIONS
        >>> hermite_coefficients(ACTIVATIONS["relu"], count=5).round(6).tolist()
        [0.398942, 0.5, 0.282095, 0.0, -0.081434]
    """
    root = np.sqrt(np.asarray(variance, float))[..., None]
    if activation.negative_slope is not None:
        return root * _of_rectifier(activation.negative_slope, count)
    nodes, weights, polynomials = _rule(count)
    return (activation(root * nodes) * weights) @ polynomials.T


def _of_rectifier(slope: float, count: int) -> Float[np.ndarray, " r"]:
    even = np.zeros(count)
    even[:1], even[2:3] = 1 / np.sqrt(2 * np.pi), 1 / np.sqrt(4 * np.pi)
    for r in range(4, count, 2):
        # (r − 3)!!/√(r!), with the sign turning, from the one before.
        even[r] = -even[r - 2] * (r - 3) / np.sqrt(r * (r - 1))
    coefficients = (1 - slope) * even
    coefficients[1:2] = (1 + slope) / 2
    return coefficients


def mean(activation: Activation, variance: Numbers) -> Numbers:
    """E σ(u) for u ~ N(0, v)."""
    return hermite_coefficients(activation, variance, 1)[..., 0]


def moments(
    activation: Activation, first: Numbers, second: Numbers, covariance: Numbers
) -> tuple[Numbers, Numbers]:
    """E σ(u)σ(u′) and E σ′(u)σ′(u′) of Gaussian pairs (u, u′).

    Args:
        activation: σ.
        first, second: variances of u and of u′; where one is zero, σ′ is its slope at zero.
        covariance: of the two, of the shape that the variances broadcast to.

    Example:
        >>> from cells.residual import ACTIVATIONS
        >>> one = np.ones(())
        >>> [float(x) for x in moments(ACTIVATIONS["relu"], one, one, one)]
        [0.5, 0.5]
    """
    lengths = np.sqrt(first * second)
    t = np.clip(covariance / np.where(lengths > 0, lengths, 1), -1, 1)
    if activation.negative_slope is not None:
        return _rectified(activation.negative_slope, first, second, lengths, t)
    pair = [hermite_coefficients(activation, v, TERMS + 1) for v in (first, second)]
    slopes = [_of_derivative(activation, v, c) for v, c in zip((first, second), pair, strict=True)]
    return _series(pair[0], pair[1], t), _series(slopes[0], slopes[1], t)


def _rectified(
    s: float, first: Numbers, second: Numbers, lengths: Numbers, t: Numbers
) -> tuple[Numbers, Numbers]:
    """The two moments of z ↦ z above zero, s·z below."""
    angle = np.arccos(t)
    product = lengths * (np.sqrt(1 - t**2) + t * (np.pi - angle)) / (2 * np.pi)
    product = (1 - s) ** 2 * product + s * lengths * t
    both = (1 - s) ** 2 * (np.pi - angle) / (2 * np.pi) + s
    mean = lambda v: np.where(v > 0, (1 + s) / 2, s)  # noqa: E731
    return product, np.where(lengths > 0, both, mean(first) * mean(second))


def _of_derivative(
    activation: Activation, variance: Numbers, coefficients: Float[np.ndarray, "... r"]
) -> Float[np.ndarray, "... s"]:
    """Hermite coefficients of σ′(√v ·), from those of σ(√v ·)."""
    roots = np.sqrt(np.arange(1, coefficients.shape[-1]))
    at_zero = activation.slope_at_zero * (np.arange(len(roots)) == 0)
    v = np.asarray(variance, float)[..., None]
    shifted = coefficients[..., 1:] * roots
    return np.where(v > 0, shifted / np.sqrt(np.where(v > 0, v, 1)), at_zero)


def _series(
    first: Float[np.ndarray, "... r"], second: Float[np.ndarray, "... r"], t: Numbers
) -> Numbers:
    """Σ_r first_r second_r t^r."""
    total = np.zeros_like(t)
    for r in reversed(range(first.shape[-1])):
        total = total * t + first[..., r] * second[..., r]
    return total
