"""Projections inside the box, against SciPy's optimisers and what defines them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from attacks.projections import between, onto_hyperplane, onto_l1_ball

ROWS, SIZE = 6, 12


@pytest.fixture(autouse=True)
def _double(double: None) -> None:
    """In float64."""


def rows(seed: int = 0) -> tuple[jax.Array, jax.Array]:
    """Points, some of whose coordinates lie on the box, and slopes, some of which are 0."""
    rng = np.random.default_rng(seed)
    t = np.clip(rng.uniform(-0.2, 1.2, (ROWS, SIZE)), 0, 1)
    w = rng.normal(size=(ROWS, SIZE)) * (rng.uniform(size=(ROWS, SIZE)) > 0.1)
    return jnp.asarray(t), jnp.asarray(w)


def least(t: np.ndarray, w: np.ndarray, value: float, norm: str) -> float | None:
    """The least size of a change that brings a value to 0, by linear or quadratic programming."""
    n = len(t)
    if norm == "l2":
        bounds = list(zip(-t, 1 - t, strict=True))
        found = minimize(
            lambda d: d @ d,
            np.zeros(n),
            jac=lambda d: 2 * d,
            bounds=bounds,
            constraints={"type": "eq", "fun": lambda d: w @ d + value, "jac": lambda d: w},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        return float(np.sqrt(found.fun)) if found.success else None
    # δ = p − q; in ℓ∞ all of them are at most s.
    one = np.eye(n)
    equal = np.concatenate([w, -w, [0]])[None]
    if norm == "linf":
        upper = np.hstack([one, one, -np.ones((n, 1))])
        cost = np.concatenate([np.zeros(2 * n), [1]])
    else:
        upper, cost = np.zeros((1, 2 * n + 1)), np.concatenate([np.ones(2 * n), [0]])
    bounds = [*((0, room) for room in 1 - t), *((0, room) for room in t), (0, None)]
    limit = np.zeros(len(upper))
    found = linprog(cost, upper, limit, equal, [-value], bounds, method="highs")
    return float(found.fun) if found.success else None


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("value", [0.0, 0.3, -1.1, 2.5])
def test_a_hyperplane_is_reached_by_the_least_change(norm: str, value: float) -> None:
    t, w = rows()
    found = np.asarray(onto_hyperplane(t, w, jnp.full((ROWS, 1), value), norm))
    assert (t + found >= -1e-12).all() and (t + found <= 1 + 1e-12).all()
    order = {"linf": np.inf, "l2": 2, "l1": 1}[norm]
    reached = 0
    for each, slope, change in zip(*map(np.asarray, (t, w, found)), strict=True):
        size = least(each, slope, value, norm)
        if size is None:
            # The box leaves too little: all of it is used.
            room = np.where(slope * -np.sign(value) > 0, 1 - each, each) * (slope != 0)
            np.testing.assert_allclose(abs(change), room, atol=1e-12)
            continue
        reached += 1
        assert slope @ change == pytest.approx(-value, abs=1e-10)
        assert np.linalg.norm(change, order) == pytest.approx(size, rel=1e-5, abs=1e-7)
    assert reached > 2


def test_ties_of_the_l1_norm_share_what_is_needed() -> None:
    t, w = jnp.full((1, 4), 0.5), jnp.array([[1.0, -1.0, 1.0, 0.5]])
    found = np.asarray(onto_hyperplane(t, w, jnp.array([[1.2]]), "l1"))
    np.testing.assert_allclose(found, [[-0.4, 0.4, -0.4, 0]], atol=1e-12)


@pytest.mark.parametrize("rho", [0.05, 0.8, 2.0, 40.0])
def test_the_l1_ball_inside_the_box(rho: float) -> None:
    t, y = rows(1)
    found = np.asarray(onto_l1_ball(y, t, rho))
    assert (abs(found).sum(1) <= rho + 1e-10).all()
    assert (t + found >= 0).all() and (t + found <= 1).all()
    for each, wanted, change in zip(*map(np.asarray, (t, y, found)), strict=True):
        # The nearest point has the least angle to all others: (y − δ)·(z − δ) ≤ 0.
        for seed in range(200):
            rng = np.random.default_rng(seed)
            z = np.clip(rng.normal(size=SIZE), -each, 1 - each)
            z *= min(1, rho / abs(z).sum())
            assert (wanted - change) @ (z - change) <= 1e-10


def test_a_cut_is_that_of_a_sorted_row() -> None:
    sizes = np.abs(np.random.default_rng(2).normal(size=(5, 40)))  # one row with ties
    sizes[0, :20] = sizes[0, 0]
    for count in (1, 7, 40):
        low, high = between(jnp.asarray(sizes), jnp.ones_like(sizes), count)
        least_kept = np.sort(sizes, 1)[:, -count]
        np.testing.assert_array_equal((sizes >= low).sum(1), (least_kept <= sizes.T).sum(0))
        assert ((sizes >= high).sum(1) < count).all()


def test_all_is_one_program_for_gradients_of_any_length() -> None:
    t, w = rows()
    compiled = jax.jit(lambda w: onto_hyperplane(t, w, jnp.full((ROWS, 1), 0.3), "l2"))
    for scale in (1e-20, 1.0, 1e20):
        found = np.asarray(compiled(w * scale))
        assert np.isfinite(found).all()
