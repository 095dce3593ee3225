"""Algorithm 1: identities that hold at any size."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import refuses

from cells.residual import Residual
from experiments.theory.energies import theorem1_width
from experiments.theory.sphere import CapAttack
from experiments.theory.tasks import Points, margin
from experiments.theory.training import algorithm_1, input_gradient
from ntkscore import Task
from ntkscore.model import Model

ATTACK, STEP = CapAttack(0.2, steps=3), 0.05


def network(dtype: Any = jnp.float32) -> Model:
    space = Residual(width=8, activation="tanh", output_scale="sqrt_width").on(Task((5,), 1))
    return space.network("10", jnp.zeros((1, 5)), dtype=dtype)


def points() -> Points:
    return margin(30, 5, 0.1, np.random.default_rng(0))


def minus(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.subtract, a, b)


@pytest.mark.slow
@pytest.mark.usefixtures("double")
def test_the_steps_are_those_of_a_plain_loop_and_keep_the_regret_identity() -> None:
    model, (x, y), beta = network(jnp.float64), points(), 0.3
    got = algorithm_1(model, x, y, ATTACK, beta, STEP)
    weights, gradients, seen = model.params, [], []
    loss = lambda w, z, y: jnp.log1p(jnp.exp(-y * model.apply(w, z)[:, 0]))[0]  # noqa: E731
    slope = jax.jit(jax.grad(loss))
    step = jax.jit(lambda w, z, y: ATTACK(input_gradient(model, w, y), z))
    for i in range(len(y)):
        point, label = jnp.asarray(x[i : i + 1]), jnp.asarray(y[i : i + 1])
        attacked = step(weights, point, label)
        slopes = slope(weights, point, label), slope(weights, attacked, label)
        gradient = jax.tree.map(lambda a, b: (1 - beta) * a + beta * b, *slopes)
        seen.append([float((label * model.apply(weights, z)[:, 0])[0]) for z in (point, attacked)])
        gradients.append((gradient, weights))
        weights = jax.tree.map(lambda w, g: w - STEP * g, weights, gradient)
    assert optax.tree.norm(minus(got.params, weights)) < 1e-10
    np.testing.assert_allclose(np.stack([got.clean, got.robust], 1), seen, rtol=1e-9)
    clean, robust = np.asarray(got.clean), np.asarray(got.robust)
    assert got.progressive == (np.mean(clean < 0), np.mean(robust < 0))
    # For every W*: the sum of ⟨g, W − W*⟩ is the difference of squared distances, and the squares.
    other = jax.tree.map(lambda w: w + 0.1, model.params)
    left = sum(optax.tree.vdot(g, minus(w, other)) for g, w in gradients)
    first, last = (optax.tree.norm(minus(w, other)) ** 2 for w in (model.params, weights))
    squares = sum(optax.tree.norm(g) ** 2 for g, _ in gradients)
    assert left == pytest.approx((first - last) / (2 * STEP) + STEP / 2 * squares)


def test_without_weight_on_attacks_nothing_is_attacked() -> None:
    """An attack that fails would show."""
    model, (x, y) = network(), points()
    broken = algorithm_1(model, x, y, lambda gradient, x: x * jnp.nan, 0.0, STEP)
    assert np.isfinite(broken.clean).all() and np.isfinite(jax.tree.leaves(broken.params)[0]).all()
    np.testing.assert_array_equal(broken.clean, broken.robust)


@pytest.mark.parametrize(
    ("choices", "got", "expected"),
    [
        ({"y": np.zeros(30)}, [0], ("labels", 1, -1)),
        ({"x": np.ones((30, 5))}, [30, 2.236], ("points", 1)),
        ({"beta": 1.5}, [1.5], ("beta", 0, 1)),
        ({"step_size": 0.0}, [0], "step_size"),
        ({"step_size": float("nan")}, ["nan"], "step_size"),
    ],
)
def test_what_cannot_be_trained_is_refused(choices: dict, got: list, expected: Any) -> None:
    x, y = points()
    given = {"x": x, "y": y, "attack": ATTACK, "beta": 0.5, "step_size": STEP} | choices
    with refuses(*got, expected=expected):
        algorithm_1(network(), **given)


def test_the_width_of_the_theorem() -> None:
    assert theorem1_width(9, 3, 1.0) == pytest.approx(324 * np.exp(12) * 16)
