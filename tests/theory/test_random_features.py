"""The kernel of two-layer networks near their start: degrees, norms, and features that give it."""

import numpy as np
import pytest
from scipy.special import comb, gammaln, roots_legendre
from theory_networks import unit_points

from cells.residual import ACTIVATIONS
from experiments.statistics import log_slope
from experiments.theory.gaussian import moments
from experiments.theory.tasks import on_sphere

SQUARED_RELU = "squared relu"
"""σ(z) = relu(z)², σ′ = 2 relu, with rows of W uniform on the sphere of radius √d."""
CENTRES, X, A = unit_points(4, 3), unit_points(50, 3, seed=1), np.array([1.0, -1, 1, 1])
"""Of a sum of kernel functions its centres and its weights, and points where it is read."""


def tangent_kernel(activation: str, inner: np.ndarray) -> np.ndarray:
    """K_σ(x, x′) = E ⟨x σ′(w·x), x′ σ′(w·x′)⟩ of points of length 1 with these inner products."""
    t = np.clip(inner, -1, 1)
    if activation != SQUARED_RELU:
        return t * moments(ACTIVATIONS[activation], 1.0, 1.0, t)[1]
    return 4 * t * moments(ACTIVATIONS["relu"], 1.0, 1.0, t)[0]


def eigenvalues(activation: str, d: int, degrees: int) -> np.ndarray:
    """λ_k = E K(t) P_k(t) of uniform points on the sphere, by degree (Funk and Hecke)."""
    nodes, weights = roots_legendre(400)
    angle, power = np.pi * (nodes + 1) / 2, d - 2
    t = np.cos(angle)
    log_mass = gammaln(d / 2) - gammaln(power / 2 + 0.5) - np.log(np.pi) / 2
    measure = np.exp(log_mass) * np.sin(angle) ** power * weights * np.pi / 2
    values, before, now = tangent_kernel(activation, t) * measure, np.ones_like(t), t
    found = [values.sum()]
    for k in range(1, degrees):
        found.append(values @ now)
        # (k + d − 2) P_{k+1} = (2k + d − 2) t P_k − k P_{k−1}
        before, now = now, ((2 * k + power) * t * now - k * before) / (k + power)
    return np.array(found)


def relu(z: np.ndarray) -> np.ndarray:
    return np.maximum(z, 0)


@pytest.mark.parametrize("d", [3, 6])
def test_eigenvalues_add_up_to_the_diagonal_and_fall_as_a_power(d: int) -> None:
    values = eigenvalues(SQUARED_RELU, d, 42)
    k = np.arange(42)
    harmonics = comb(d + k - 1, k) - np.where(k > 1, comb(d + k - 3, k - 2), 0)
    assert values @ harmonics == pytest.approx(tangent_kernel(SQUARED_RELU, np.ones(1)), rel=1e-2)
    # Lemma C.3 says even functions: of these there are the degrees 0 and 2 alone.
    assert (values[[0, 1, 2, 3, 5, 7]] > 1e-6).all()
    np.testing.assert_allclose(values[4::2], 0, atol=1e-13)
    odd = k[21::2]
    assert log_slope(odd + d / 2 - 1, values[odd]) == pytest.approx(-(d + 2), abs=0.15)


@pytest.mark.parametrize(("sigma", "missing"), [("softplus", 1), ("swish", 1), ("tanh", 0)])
def test_half_of_the_degrees_are_missing_on_the_whole_sphere(sigma: str, missing: int) -> None:
    """Assumption 5.2, that the kernel's space is dense, holds on a half sphere alone."""
    values = eigenvalues(sigma, 3, 10)
    gone = np.arange(2 + missing, 10, 2)
    np.testing.assert_allclose(values[gone], 0, atol=1e-12)
    assert (values[[gone[0] - 1, gone[1] - 1]] > 1e-7).all()


def test_a_sum_of_kernel_functions_is_one_of_features_and_its_norm_theirs() -> None:
    """Lemma C.1, of squared relu: F_RF has these sums, whose norm is at most ‖h‖_RF."""
    rng = np.random.default_rng(2)
    w = 3**0.5 * on_sphere(rng.standard_normal((100_000, 3)))
    c = (2 * relu(w @ CENTRES.T) * A) @ CENTRES
    wanted = tangent_kernel(SQUARED_RELU, X @ CENTRES.T) @ A
    np.testing.assert_allclose(np.mean(2 * relu(w @ X.T) * (c @ X.T), 0), wanted, atol=0.04)
    norm = np.sqrt(A @ tangent_kernel(SQUARED_RELU, CENTRES @ CENTRES.T) @ A)
    sizes = np.linalg.norm(c, axis=1)
    assert np.mean(sizes**2) == pytest.approx(norm**2, rel=0.02)
    assert norm <= sizes.max() <= 2 * relu(w @ CENTRES.T).max() * np.abs(A).sum()
    at_one = float(tangent_kernel(SQUARED_RELU, np.ones(1))[0])
    assert np.abs(wanted).max() <= at_one**0.5 * norm


def test_the_network_of_theorem_5_2_is_as_far_away_as_the_functions_norm() -> None:
    """With a_i in the shift, which the print lacks; R is ‖h‖, not half of ‖h‖_RF."""
    m, rng = 40_000, np.random.default_rng(3)
    w, signs = rng.standard_normal((m // 2, 3)), rng.choice([-1.0, 1.0], m // 2)
    prime = lambda z: 1 - np.tanh(z) ** 2  # noqa: E731
    c = (prime(w @ CENTRES.T) * A) @ CENTRES / (m / 2)
    h = np.sum(prime(X @ w.T) * (X @ c.T), 1)
    np.testing.assert_allclose(h, tangent_kernel("tanh", X @ CENTRES.T) @ A, atol=0.04)

    def output(shift: np.ndarray) -> np.ndarray:
        first, second = (np.tanh(X @ (w + s).T) @ signs for s in (shift, -shift))
        return (first - second) / m**0.5

    shift = signs[:, None] * (m / 4) ** 0.5 * c
    np.testing.assert_allclose(output(shift), h, atol=0.01)
    assert np.abs(output((m / 4) ** 0.5 * c) - h).max() > 0.1
    norm = np.sqrt(A @ tangent_kernel("tanh", CENTRES @ CENTRES.T) @ A)
    assert np.sqrt(2) * np.linalg.norm(shift) == pytest.approx(norm, rel=0.02)


def test_the_mean_square_of_a_feature_is_below_its_bound() -> None:
    d, x, rng = 5, unit_points(200_000, 5), np.random.default_rng(4)
    for along in (True, False, False):
        w = d**0.5 * on_sphere(rng.standard_normal((1, d)))[0]
        # Along w the bound is met.
        c = w if along else rng.standard_normal(d)
        found = np.mean((x @ c) ** 2 * 4 * relu(x @ w) ** 2)
        exact = (2 * (c @ c) * d + 4 * (c @ w) ** 2) / (d * (d + 2))
        assert found == pytest.approx(exact, rel=0.05)
        # E ‖h − h_M‖² ≤ 6 ‖h‖²/((d + 2) M); lemma C.2 has exp(Ω(d)) and a logarithm there.
        bound = 6 * float(c @ c) / (d + 2)
        assert exact == pytest.approx(bound) if along else exact < bound


def test_a_lipschitz_function_has_no_high_peak_of_small_mean_square() -> None:
    """Equation 25, for theorem C.1: a peak of height ε has a mean square of order ε^(d+1)."""
    heights, angle = np.array([0.05, 0.1, 0.2]), np.linspace(0, np.pi, 100_001)
    for d in (3, 5):
        measure = np.sin(angle) ** (d - 2)
        peaks = (relu(e - 2 * 2 * np.sin(angle / 2)) for e in heights)
        squares = np.array([np.sum(peak**2 * measure) for peak in peaks])
        assert log_slope(heights, squares) == pytest.approx(d + 1, abs=0.02)


@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_two_balls_hold_every_labelling_of_a_cluster(d: int) -> None:
    """Theorem 6.1: ⌊n/2⌋ clusters of d points are shattered by balls of radius δ."""
    delta = 0.7
    near, apart = delta / d**0.5, delta * (1 + 1 / (2 * d))
    x = near * np.eye(d)
    for code in range(1, 2**d - 1):
        y = np.array([1.0 if code >> j & 1 else -1.0 for j in range(d)])
        centre = apart * y / d**0.5
        assert (np.linalg.norm(x - y[:, None] * centre, axis=1) <= delta).all()
    assert 2 * apart > 2 * delta  # the two balls do not meet
    assert 6 * delta - 2 * apart > 2 * delta  # nor do those of two clusters
