"""Moments of activations against quadrature in two dimensions, and against what is published."""

import itertools

import numpy as np
import pytest
from scipy import integrate

from cells.residual import ACTIVATIONS
from experiments.theory.gaussian import hermite_coefficients, mean, moments

NAMES = sorted(ACTIVATIONS)
# 0:… 8 of unit variance, to six digits, from an independent computation.
COEFFICIENTS = {
    "relu": (0.398942, 0.5, 0.282095, 0, -0.081434, 0, 0.044603, 0, -0.029802),
    "leaky_relu": (0.394953, 0.505, 0.279274, 0, -0.080619, 0, 0.044157, 0, -0.029504),
    "tanh": (0, 0.605706, 0, -0.148437, 0, 0.062548, 0, -0.031445, 0),
    "sigmoid": (0.5, 0.206621, 0, -0.025473, 0, 0.005877, 0, -0.001727, 0),
    "swish": (0.206621, 0.5, 0.248085, 0, -0.037805, 0, 0.009827, 0, -0.003120),
    "softplus": (0.806059, 0.5, 0.146103, 0, -0.012737, 0, 0.002399, 0, -0.000610),
}


def slope(name: str, z: float) -> float:
    sigma = ACTIVATIONS[name]
    if sigma.negative_slope is not None:
        return 1.0 if z > 0 else sigma.negative_slope
    return float(sigma(np.array([z + 1e-5]))[0] - sigma(np.array([z - 1e-5]))[0]) / 2e-5


def expectation(function, a: float, b: float, covariance: float) -> float:
    """E f(u, u′), split where either argument is zero, which is where kinks are."""
    density = lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)  # noqa: E731
    t = covariance / np.sqrt(a * b)

    def inner(x: float) -> float:
        u, kink = np.sqrt(a) * x, -t * x / np.sqrt(1 - t**2)
        value = lambda y: function(u, np.sqrt(b) * (t * x + np.sqrt(1 - t**2) * y)) * density(y)  # noqa: E731
        ends = itertools.pairwise(np.clip([-8, kink, 8], -8, 8))
        return sum(integrate.quad(value, *pair, epsabs=1e-9)[0] for pair in ends)

    return sum(
        integrate.quad(lambda x: inner(x) * density(x), *pair, epsabs=1e-8)[0]
        for pair in ((-8, 0), (0, 8))
    )


@pytest.mark.parametrize("name", NAMES)
def test_coefficients_are_those_of_an_independent_computation(name: str) -> None:
    got = hermite_coefficients(ACTIVATIONS[name], count=9)
    np.testing.assert_allclose(got, COEFFICIENTS[name], atol=6e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("a", "b", "covariance"),
    [pytest.param(1.0, 1.0, 0.5, marks=pytest.mark.thorough), (0.7, 1.6, -0.6)],
)
def test_moments_are_integrals(name: str, a: float, b: float, covariance: float) -> None:
    sigma = ACTIVATIONS[name]
    value = lambda z: float(sigma(np.array([z]))[0])  # noqa: E731
    got = moments(sigma, np.array(a), np.array(b), np.array(covariance))
    product = expectation(lambda u, v: value(u) * value(v), a, b, covariance)
    slopes = expectation(lambda u, v: slope(name, u) * slope(name, v), a, b, covariance)
    assert [float(x) for x in got] == pytest.approx([product, slopes], abs=1e-6)
    by_quadrature = integrate.quad(
        lambda z: value(np.sqrt(b) * z) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), -12, 12
    )[0]
    assert float(mean(sigma, np.array(b))) == pytest.approx(by_quadrature, abs=1e-8)


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
