"""Corrections of what is printed, as arithmetic."""

import itertools

import numpy as np
import pytest

from cells.residual import ACTIVATIONS
from experiments.theory.gaussian import moments


def test_squared_relu_has_odd_functions_of_every_degree_and_even_ones_of_degree_0_and_2() -> None:
    t = np.linspace(-1, 1, 41)
    # σ′ = 2 relu, so that K(t) = t E σ′σ′ = 4 t S_relu(t).
    kernel = lambda t: 4 * t * moments(ACTIVATIONS["relu"], 1.0, 1.0, t)[0]  # noqa: E731
    np.testing.assert_allclose(kernel(t) + kernel(-t), 2 * t**2, atol=1e-12)
    odd = (kernel(t) - kernel(-t)) / 2
    degrees = np.polynomial.legendre.legfit(t, odd, 9)
    assert (np.abs(degrees[1::2]) > 1e-5).all()


@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_balls_of_both_signs_around_a_cluster_contain_its_points(d: int) -> None:
    delta, centre = 1.0, np.zeros(d)
    epsilon, s = delta / np.sqrt(d), delta * (1 + 1 / (2 * d))
    corners = centre + epsilon * np.eye(d)
    for labels in itertools.product((-1.0, 1.0), repeat=d):
        if len(set(labels)) < 2:
            continue
        u = np.array(labels) / np.sqrt(d)
        balls = {sign: centre + sign * s * u for sign in (-1.0, 1.0)}
        for corner, label in zip(corners, labels, strict=True):
            assert np.linalg.norm(corner - balls[label]) <= delta + 1e-12
        assert np.linalg.norm(balls[1.0] - balls[-1.0]) > 2 * delta
