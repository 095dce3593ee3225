"""The lemmas behind theorem 1: what is exact in them, and the case that lemma 8 leaves out."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from cells import Task
from cells.residual import Residual, ResidualConvolutional
from cells.residual.networks import ResidualSpace
from experiments.theory.lemmas import (
    Constants,
    defects,
    equivalent_weights,
    furthest,
    on_the_boundary,
    regret,
)
from experiments.theory.sphere import CapAttack, project_to_cap
from experiments.theory.studies.lemmas import out_of_reach
from experiments.theory.tasks import margin, tradeoff
from experiments.theory.training import logistic, margins
from ntkscore.model import Model


def network(space: ResidualSpace, name: str, form: tuple[int, ...]) -> Model:
    space = space.on(Task(form, 1))
    return space.network(name, jnp.zeros((1, *form)), dtype=jnp.float64)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", ["101", "010:swish,relu,tanh,sigmoid"])
def test_moving_a_point_is_moving_the_first_layer(name: str) -> None:
    """Lemma 4."""
    space = Residual(width=16).on(Task((6,), 1))
    names = space.activations_of(space.parse(name))
    weights = space.draw(names, 0, jnp.float64)
    x, other = (jnp.asarray(margin(1, 6, 0.0, np.random.default_rng(k)).x) for k in (0, 1))
    attacked = project_to_cap(other, x, 0.7)
    first = equivalent_weights(weights[0], x[0], attacked[0])
    skips = space.encode(space.parse(name))
    pairs = zip(
        space.hidden(weights, attacked, skips, names),
        space.hidden([first, *weights[1:]], x, skips, names),
        strict=True,
    )
    for one, two in pairs:
        np.testing.assert_allclose(jnp.stack(one), jnp.stack(two), atol=1e-14)
    moved = jnp.linalg.norm(first - weights[0])
    assert moved == pytest.approx(float(jnp.linalg.norm((attacked - x) @ weights[0])))
    assert moved <= jnp.linalg.norm(weights[0], 2) * 0.7


@pytest.mark.usefixtures("double")
def test_a_convolution_has_no_such_weights_where_it_has_more_pixels_than_inputs() -> None:
    """κd ≥ p is 9 ≥ 8 for κ = 3, and 3 < 8 for κ = 1."""
    assert out_of_reach(3, 0) < 1e-10
    assert out_of_reach(1, 0) > 0.1


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("space", "form"),
    [(Residual(width=8, activation="tanh"), (5,)), (ResidualConvolutional(width=8), (4, 2))],
)
def test_defects_are_those_of_their_formulas(space: ResidualSpace, form: tuple[int, ...]) -> None:
    model, beta = network(space, "10", form), 0.3
    rng = np.random.default_rng(0)
    x, attacked = (jnp.asarray(rng.standard_normal((3, *form))) for _ in range(2))
    y = jnp.asarray([1.0, -1.0, 1.0])
    other = on_the_boundary(jax.random.key(0), model.params, 0.5)
    found = defects(model, model.params, other, x, attacked, y, beta)
    change = jax.tree.leaves(jax.tree.map(jnp.subtract, other, model.params))

    def parts(of: Callable[[Array], Array], point: Array, label: Array) -> list[float]:
        """Value and slope along the change at W, and value at W̃."""
        value = lambda w: of(margins(model, w, point[None], label[None]))[0]  # noqa: E731
        slopes = jax.tree.leaves(jax.grad(value)(model.params))
        along = sum(float(jnp.vdot(g, c)) for g, c in zip(slopes, change, strict=True))
        return [float(value(model.params)), along, float(value(other))]

    for i in range(len(x)):
        outputs, losses = (
            np.array([parts(of, point, y[i]) for point in (x[i], attacked[i])])
            for of in (lambda z: z, logistic)
        )
        weights = np.array([1 - beta, beta])
        wanted = np.abs(outputs[:, 2] - outputs[:, 0] - weights @ outputs[:, 1])
        np.testing.assert_allclose([found["output"][i], found["attacked output"][i]], wanted)
        wanted = losses[:, 0] + weights @ losses[:, 1] - losses[:, 2]
        np.testing.assert_allclose([found["loss"][i], found["attacked loss"][i]], wanted)
        mixture = weights @ losses
        assert found["mixture"][i] == pytest.approx(mixture[0] + mixture[1] - mixture[2])


def test_the_ascent_finds_the_furthest_point_of_a_ball() -> None:
    """Of a linear function: the centre plus τ along its gradient, in every array."""
    centre = [jnp.zeros(2), jnp.ones(3)]
    slope = [jnp.asarray([3.0, 4.0]), jnp.asarray([0.0, 2.0, 0.0])]
    objective = lambda w: jnp.vdot(w[0], slope[0]) + jnp.vdot(w[1], slope[1])  # noqa: E731
    begin = on_the_boundary(jax.random.key(1), centre, 0.5)
    for here, w in zip(centre, begin, strict=True):
        assert jnp.linalg.norm(w - here) == pytest.approx(0.5, rel=1e-5)
    end = furthest(objective, begin, centre, 0.5, 40)
    np.testing.assert_allclose(end[0], [0.3, 0.4], atol=1e-3)
    np.testing.assert_allclose(end[1], [1.0, 1.5, 1.0], atol=1e-3)


def test_bounds_of_the_smallest_network() -> None:
    constants = Constants(lipschitz=1.0, largest=1.0)
    scale = 2 * np.exp(6)
    assert constants.features(0.1) == pytest.approx(0.1 * scale)
    assert constants.output(0.1, 0.5) == pytest.approx(2.7 * scale)
    assert constants.proved_output(0.1, 0.5) == pytest.approx(6.9 * scale)
    assert constants.loss(0.1, 1.0) == pytest.approx(7.2 * scale)
    wide = Constants(0.5, 1.0, filter_size=9, pixels=4)
    assert wide.output(1.0, 0.0) == pytest.approx(36 * np.exp(9) * 2.5)


def test_a_run_without_attacks_does_not_learn_to_resist_them() -> None:
    """Lemma 8's second inequality at β = 0, for √m f; descent bounds the mixture's regret alone."""
    x, y = tradeoff(400, 20, np.random.default_rng(0))
    space = Residual(width=32, activation="tanh", output_scale="sqrt_width").on(Task((20,), 1))
    model = space.network("1", jnp.zeros((1, 20)), seed=0)
    x, y = (jnp.asarray(each, jnp.float32) for each in (x, y))
    step = jnp.float32(1 / 32)

    @jax.jit
    def run(others: list, beta: jax.Array) -> tuple:
        return regret(model, CapAttack(0.3, steps=2), others, x, y, beta, step)

    robust, _ = run([model.params], jnp.float32(1))
    _, (found,) = run([robust], jnp.float32(0))
    assert found.attacked > 0.3 and found.attacked > 3 * found.allowed
    assert found.clean == pytest.approx(float(found.mixture))
    for beta in (0.0, 0.5, 1.0):
        _, (found,) = run([robust], jnp.float32(beta))
        assert found.mixture <= 1.5 * found.allowed
        assert found.descent <= found.allowed
