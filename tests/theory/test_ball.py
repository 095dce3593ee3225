"""Training in a ball of weights: it stays inside, and does what the algorithm says."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks import Attack
from experiments.theory.ball import adversarial_training, deviation, train_inside
from experiments.theory.lazy import project_rows
from experiments.theory.networks import draw_two_layer, two_layer
from experiments.theory.training import logistic, margins

N, D, M = 12, 6, 40


def setting(seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((N, D))
    y = np.where(x[:, 0] > 0, 1.0, -1.0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    w, a = draw_two_layer(jax.random.key(seed), D, M)
    return w, a, jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)


def steps_by_hand(w, a, x, y, count: int, rate: float, ball: float = 1e9) -> list[Any]:
    """Every iterate of full-batch descent on the mean, projected."""
    model = two_layer(w, a)
    slope = jax.jit(jax.grad(lambda w: jnp.mean(logistic(margins(model, w, x, y)))))
    out = [w]
    for _ in range(count):
        out.append(project_rows(out[-1] - rate * slope(out[-1]), w, ball))
    return out


def test_the_last_weights_inside_each_ball() -> None:
    w, a, x, y = setting()
    balls = jnp.asarray([0.5, 1.0, 2.0])
    run = train_inside(jax.random.key(1), w, a, x, y, balls, 0.5, batch=N)
    iterates = steps_by_hand(w, a, x, y, int(run.steps[-1]) + 1, 0.5)
    reached = np.array([float(deviation(each, w)) for each in iterates])
    for k, ball in enumerate(balls):
        last = int(np.argmax(reached > float(ball))) - 1
        assert run.status[k] == "ok" and int(run.steps[k]) == last
        np.testing.assert_allclose(run.weights[k], iterates[last], atol=1e-5)
        assert float(run.deviation[k]) == pytest.approx(reached[last], rel=1e-4)
    # A neuron moves by at most rate/√m in a step on points of length 1.
    assert np.diff(reached).max() <= 0.5 * (1 + 1e-5)


def test_a_ball_that_no_step_leaves_is_named() -> None:
    w, a, x, y = setting()
    run = train_inside(jax.random.key(1), w, a, x, y, jnp.asarray([0.01, 50.0]), 0.1, max_steps=30)
    assert run.status == ["ok", "inside"]
    assert int(run.steps[1]) == 30 and float(run.deviation[1]) < 50


def test_one_step_may_leave_several_balls() -> None:
    w, a, x, y = setting()
    run = train_inside(jax.random.key(1), w, a, x, y, jnp.asarray([1e-4, 2e-4]), 1.0, batch=N)
    assert run.status == ["ok", "ok"] and list(np.asarray(run.steps)) == [0, 0]
    np.testing.assert_array_equal(run.weights, jnp.stack([w, w]))


def test_sums_take_larger_steps() -> None:
    w, a, x, y = setting()
    balls = jnp.asarray([2.0])
    mean, total = (
        train_inside(
            jax.random.key(1), w, a, x, y, balls, rate, batch=4, reduction=reduction, max_steps=20
        )
        for reduction, rate in (("mean", 0.4), ("sum", 0.1))
    )
    np.testing.assert_allclose(mean.weights, total.weights, atol=1e-6)


def attack(radius: Any) -> Attack:
    return Attack(radius, 4, radius, norm="l2", box=None)


@pytest.mark.parametrize("ball", [1e9, 0.02])
def test_without_a_radius_it_is_plain_training_projected_after_each_step(ball: float) -> None:
    w, a, x, y = setting()
    end = adversarial_training(
        jax.random.key(1), w, a, x, y, 0.0, ball, attack, 0.5, batch=N, epochs=7
    )
    expected = steps_by_hand(w, a, x, y, 7, 0.5, ball)[-1]
    np.testing.assert_allclose(end.weights, expected, atol=1e-5 if ball > 1 else 1e-6)
    rows = np.linalg.norm(end.weights - w, axis=1)
    assert rows.max() <= ball * (1 + 1e-5) and int(end.epochs) == 7


def test_it_ends_when_robust_accuracy_no_longer_rises() -> None:
    w, a, x, y = setting()
    run = lambda patience: adversarial_training(  # noqa: E731
        jax.random.key(1), w, a, x, y, 5.0, 1e-9, attack, 1.0, epochs=9, batch=N, patience=patience
    )
    # The first epoch's accuracy counts as a rise; none follows.
    assert int(run(3).epochs) == 4
    assert int(run(None).epochs) == 9
