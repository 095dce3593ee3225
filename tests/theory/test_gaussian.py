"""Moments of activations against quadrature in one and two dimensions."""

import numpy as np
import pytest
from numpy.polynomial import hermite_e
from scipy import special

from cells.residual import ACTIVATIONS
from experiments.theory.gaussian import hermite_coefficients, mean, moments

NAMES = sorted(ACTIVATIONS)
Z, STEP = np.linspace(-9, 9, 6001, retstep=True)
"""Numbers around 0, where the kinks are, fine enough for sums to be integrals."""
WEIGHTS = STEP * np.exp(-(Z**2) / 2) / np.sqrt(2 * np.pi)


@pytest.mark.parametrize("variance", [1.0, 0.7])
@pytest.mark.parametrize("name", NAMES)
def test_coefficients_are_integrals(name: str, variance: float) -> None:
    values = WEIGHTS * ACTIVATIONS[name](np.sqrt(variance) * Z)
    degrees = np.arange(9)
    expected = hermite_e.hermevander(Z, 8).T @ values / np.sqrt(special.factorial(degrees))
    got = hermite_coefficients(ACTIVATIONS[name], variance, 9)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert float(mean(ACTIVATIONS[name], variance)) == pytest.approx(expected[0], abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("a", "b", "covariance"), [(1.0, 1.0, 0.5), (0.7, 1.6, -0.6)])
def test_moments_are_integrals(name: str, a: float, b: float, covariance: float) -> None:
    """That of the slopes is the other's derivative in the covariance (Price)."""
    sigma, t, z, weights = ACTIVATIONS[name], covariance / np.sqrt(a * b), Z[::4], 4 * WEIGHTS[::4]
    second = np.sqrt(b) * (t * z[:, None] + np.sqrt(1 - t**2) * z)
    product, slopes = moments(sigma, a, b, covariance)
    assert product == pytest.approx(
        weights * sigma(np.sqrt(a) * z) @ sigma(second) @ weights, abs=1e-5
    )
    less, more = (moments(sigma, a, b, covariance + change)[0] for change in (-1e-4, 1e-4))
    assert slopes == pytest.approx((more - less) / 2e-4, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_that_is_given_nothing_has_the_values_at_zero(name: str) -> None:
    sigma, zero = ACTIVATIONS[name], np.zeros(())
    at_zero = float(sigma(np.zeros(1))[0])
    product, slopes = moments(sigma, zero, zero, zero)
    assert (float(product), float(slopes)) == pytest.approx((at_zero**2, sigma.slope_at_zero**2))
    one = np.ones(())
    product, slopes = moments(sigma, zero, one, zero)
    assert float(product) == pytest.approx(at_zero * float(mean(sigma, one)))
    usual = hermite_coefficients(sigma, count=2)[1]
    assert float(slopes) == pytest.approx(sigma.slope_at_zero * usual)
