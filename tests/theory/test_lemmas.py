"""The lemmas behind theorem 1: what is exact in them, and the case that lemma 8 leaves out."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jaxtyping import Array, PyTree

from cells.residual import Residual
from cells.residual.networks import convolve
from experiments.theory.sphere import CapAttack, project_to_cap
from experiments.theory.tasks import margin, on_sphere, tradeoff
from experiments.theory.training import input_gradient, logistic, margins, mixed_gradient
from ntkscore import Task


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", ["101", "010:swish,relu,tanh,sigmoid"])
def test_moving_a_point_is_moving_the_first_layer(name: str) -> None:
    """Lemma 4: W̃_1 = W_1 + x (x̂ − x)ᵀ W_1, of weights (in, out) and ‖x‖ = 1."""
    space = Residual(width=16).on(Task((6,), 1))
    names = space.activations_of(space.parse(name))
    weights = space.draw(names, 0, jnp.float64)
    x, other = (jnp.asarray(margin(1, 6, 0.0, np.random.default_rng(k)).x) for k in (0, 1))
    attacked = project_to_cap(other, x, 0.7)
    first = weights[0] + jnp.outer(x[0], ((attacked - x) @ weights[0])[0])
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
@pytest.mark.parametrize(("size", "reached"), [(3, True), (1, False)])
def test_a_convolution_has_no_such_weights_where_it_has_more_pixels_than_inputs(
    size: int, reached: bool
) -> None:
    """κd ≥ p is 9 ≥ 8 for κ = 3, and 3 < 8 for κ = 1."""
    rng, inputs = np.random.default_rng(0), 3 * size
    points = jnp.asarray(on_sphere(rng.standard_normal((2, 8, 3))))
    patches = np.asarray(convolve(points, jnp.eye(inputs).reshape(size, 3, inputs)))
    wanted = patches[1] @ rng.standard_normal((inputs, 4))
    found = np.linalg.lstsq(patches[0], wanted, rcond=None)[0]
    apart = np.linalg.norm(patches[0] @ found - wanted) / np.linalg.norm(wanted)
    assert apart < 1e-10 if reached else apart > 0.1


def test_a_run_without_attacks_does_not_learn_to_resist_them() -> None:
    """Lemma 8's second inequality at β = 0, for √m f; descent bounds the mixture's regret alone."""
    x, y = tradeoff(400, 20, np.random.default_rng(0))
    space = Residual(width=32, activation="tanh", output_scale="sqrt_width").on(Task((20,), 1))
    model = space.network("1", jnp.zeros((1, 20)), seed=0)
    x, y = (jnp.asarray(each, jnp.float32) for each in (x, y))
    gamma, attack = jnp.float32(1 / 32), CapAttack(0.3, steps=2)

    @jax.jit
    def run(other: PyTree, beta: Array) -> tuple[PyTree, Array, Array, Array]:
        """W^{[N+1]} of Algorithm 1, its mean regrets against W* at x and x̂; ‖W − W*‖², ‖g‖²."""

        def step(w: PyTree, point: tuple[Array, Array]) -> tuple[PyTree, tuple[Array, Array]]:
            x, y = (each[None] for each in point)
            attacked = attack(input_gradient(model, w, y), x)
            gradient, ours = mixed_gradient(model, w, x, attacked, y, beta)
            theirs = [margins(model, other, z, y) for z in (x, attacked)]
            excess = [logistic(a)[0] - logistic(b)[0] for a, b in zip(ours, theirs, strict=True)]
            moved = jax.tree.map(lambda w, g: w - gamma * g, w, gradient)
            return moved, (jnp.stack(excess), optax.tree.norm(gradient, squared=True))

        end, (excess, squares) = lax.scan(step, model.params, (x, y))
        way = optax.tree.norm(jax.tree.map(jnp.subtract, model.params, other), squared=True)
        allowed = way / (2 * gamma * len(y)) + gamma / 2 * jnp.mean(squares)
        return end, *jnp.mean(excess, 0), allowed

    robust, *_ = run(model.params, jnp.float32(1))
    for beta in (0.0, 0.5, 1.0):
        _, clean, attacked, allowed = run(robust, jnp.float32(beta))
        assert (1 - beta) * clean + beta * attacked <= 1.5 * allowed
        if beta == 0:
            assert attacked > 0.3 and attacked > 3 * allowed
