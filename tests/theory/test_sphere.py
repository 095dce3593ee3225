"""Caps of the sphere: the nearest point, attacks within, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_networks import unit_points
from tiny import refuses

from attacks import twice
from experiments.theory.sphere import CapAttack, project_to_cap

pytestmark = pytest.mark.usefixtures("double")


@settings(max_examples=20)
@given(rho=st.floats(0, 2), seed=st.integers(0, 100))
def test_no_point_of_the_cap_is_nearer(rho: float, seed: int) -> None:
    z, x = unit_points(2, 4, seed=seed)[:, None]
    with jax.enable_x64(True):
        got = np.asarray(project_to_cap(jnp.asarray(3 * z), jnp.asarray(x), rho))
    assert np.linalg.norm(got) == pytest.approx(1)
    assert np.linalg.norm(got - x) <= rho + 1e-7
    others = unit_points(5000, 4, seed=seed + 1)
    inside = others[np.linalg.norm(others - x, axis=1) <= rho]
    distances = np.linalg.norm(inside - z, axis=1)
    assert (distances >= np.linalg.norm(got - z) - 1e-9).all()


def test_without_a_direction_a_point_stays_at_the_centre() -> None:
    x = jnp.asarray(unit_points(2, 3))
    np.testing.assert_allclose(project_to_cap(-x, x, 0.5), x, atol=1e-7)
    np.testing.assert_allclose(project_to_cap(0 * x, x, 0.5), x, atol=1e-7)


def test_a_linear_loss_is_raised_the_most_at_the_edge_of_the_cap() -> None:
    x, w = jnp.asarray(unit_points(5, 6)), jnp.asarray(unit_points(1, 6, seed=1)[0])
    rho = 0.3
    tangent = w - (x @ w)[:, None] * x
    tangent /= jnp.linalg.norm(tangent, axis=1, keepdims=True)
    best = (1 - rho**2 / 2) * x + jnp.sqrt(1 - (1 - rho**2 / 2) ** 2) * tangent
    gradient = lambda x: jnp.broadcast_to(w, x.shape)  # noqa: E731
    np.testing.assert_allclose(CapAttack(rho)(gradient, x), best, atol=1e-8)
    np.testing.assert_allclose(CapAttack(rho, 1)(gradient, x), best, atol=1e-8)
    np.testing.assert_allclose(jnp.linalg.norm(best - x, axis=1), rho)
    # The second cap is around the first one's edge.
    _, again = twice(CapAttack(rho), gradient, x)
    angle = 4 * np.arcsin(rho / 2)
    np.testing.assert_allclose(jnp.linalg.norm(again - x, axis=1), 2 * np.sin(angle / 2), atol=1e-7)


def test_a_gradient_of_zero_moves_nothing() -> None:
    x = jnp.asarray(unit_points(3, 4))
    np.testing.assert_allclose(CapAttack(0.2)(jnp.zeros_like, x), x, atol=1e-12)


@pytest.mark.parametrize(
    ("choices", "got", "expected"),
    [
        ({"rho": -0.1}, -0.1, ("radius", 0, 2)),
        ({"rho": 2.5}, 2.5, ("radius", 0, 2)),
        ({"rho": 0.1, "steps": 0}, 0, "step"),
    ],
)
def test_what_is_no_cap_is_refused(choices: dict, got: float, expected: object) -> None:
    with refuses(got, expected=expected):
        CapAttack(**choices)
