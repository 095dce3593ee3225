"""Deep networks: their lengths, and the two inequalities that hold for every run."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jaxtyping import PyTree
from theory_networks import draw_two_layer, fully_connected, two_layer

from cells.residual import ACTIVATIONS
from experiments.theory.sphere import CapAttack
from experiments.theory.tasks import margin
from experiments.theory.training import input_gradient, logistic, margins
from ntkscore.model import Model


def started(m: int, d: int, hidden: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """A, W and a of the deep network."""
    a, entry = rng.standard_normal(m), rng.standard_normal((m, d)) * (2 / m) ** 0.5
    return entry, rng.standard_normal((hidden, m, m)) * (2 / m) ** 0.5, a


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("smooth", [False, True], ids=["deep", "smooth"])
def test_no_run_violates_its_inequality(smooth: bool) -> None:
    """Theorems 4.1 and 5.1: descent at attacked points, against the weights that it ends in.

    Mean L(W_t) − L(W^c) ≤ ‖W_0 − W^c‖²/(2αT) + α/2 · mean ‖g_t‖² + mean defect_t, each layer
    within the radius; of a smooth two-layer network, which is free, the defect is at most
    C″/(2√m) ‖W_t − W^c‖².
    """
    m, count, (x, y) = 64, 100, map(jnp.asarray, margin(10, 3, 0.1, np.random.default_rng(0)))
    if smooth:
        model, rate = two_layer(*draw_two_layer(jax.random.key(0), 3, m), "softplus"), 0.5
    else:
        entry, weights, a = started(m, 3, 2, np.random.default_rng(0))
        model = Model(
            lambda w, x: fully_connected([*w, jnp.asarray(a)[:, None]], x @ entry.T), [*weights]
        )
        rate = 0.2 / (m * 2)

    @jax.jit
    def run(other: PyTree) -> tuple[PyTree, tuple[jax.Array, ...]]:
        def step(w: PyTree, _: None) -> tuple[PyTree, tuple[jax.Array, ...]]:
            z = lax.stop_gradient(CapAttack(0.15, 3)(input_gradient(model, w, y), x))
            loss = lambda w: jnp.mean(logistic(margins(model, w, z, y)))  # noqa: E731
            slope, way = jax.grad(loss)(w), jax.tree.map(jnp.subtract, w, other)
            excess, far = loss(w) - loss(other), optax.tree.norm(way, squared=True)
            defect = excess - optax.tree.vdot(slope, way)
            allowed = ACTIVATIONS["softplus"].curvature / (2 * m**0.5) * far if smooth else defect
            moves = jax.tree.map(lambda w, g, start: w - rate * g - start, w, slope, model.params)
            if not smooth:
                moves = [optax.projections.projection_l2_ball(move, 4 / m**0.5) for move in moves]
            moved = jax.tree.map(jnp.add, model.params, moves)
            return moved, (excess, optax.tree.norm(slope, squared=True), allowed, far, defect)

        return lax.scan(step, model.params, None, length=count)

    excess, squares, allowed, far, defect = run(run(model.params)[0])[1]
    bound = far[0] / (2 * rate * count) + rate / 2 * jnp.mean(squares)
    assert jnp.mean(excess) <= bound + jnp.mean(allowed) + 1e-12
    assert (defect <= allowed + 1e-12).all() and jnp.mean(excess) > 0.9 * (bound + jnp.mean(defect))


def test_the_lengths_of_lemmas_a1_to_a3() -> None:
    """Limits: ‖A‖ √2 (1 + √(d/m)), ‖W‖ 2√2, ‖a‖ √m; √2 for features, 2 before relu; √m back."""
    m, d, hidden = 1000, 10, 3
    entry, weights, a = started(m, d, hidden, np.random.default_rng(0))
    assert np.linalg.norm(entry, 2) == pytest.approx(2**0.5 * (1 + (d / m) ** 0.5), rel=0.03)
    assert np.linalg.norm(weights[0], 2) == pytest.approx(8**0.5, rel=0.03)
    assert np.linalg.norm(a) == pytest.approx(m**0.5, rel=0.06)
    h, gates = entry @ np.eye(d)[0], []
    for w in weights:
        before = w @ h
        # Lemma A.2 has both within [2/3, 4/3]: that is another network's.
        assert np.linalg.norm(h) == pytest.approx(2**0.5, rel=0.1)
        assert np.linalg.norm(before) == pytest.approx(2, rel=0.1)
        gates.append(before > 0)
        h = np.maximum(before, 0)
    back = a
    for w, gate in zip(weights[::-1], gates[::-1], strict=True):
        back = (back * gate) @ w
        # Lemma A.3 allows √(mH).
        assert np.linalg.norm(back) == pytest.approx(m**0.5, rel=0.15)


def test_a_move_of_the_point_is_one_of_the_first_weights() -> None:
    """Lemma A.4, and its length: √2 δ for a random network, where the ball has R/√m."""
    m, d, rng, ratios = 400, 5, np.random.default_rng(0), []
    for _ in range(20):
        entry, (first, second), _ = started(m, d, 2, rng)
        x, other = rng.standard_normal((2, d))
        x /= np.linalg.norm(x)
        moved = x + 0.1 * other
        moved /= np.linalg.norm(moved)
        at, there = entry @ x, entry @ moved
        shift = np.outer(first @ (there - at), at) / (at @ at)
        for_moved, for_weights = (
            second @ np.maximum(w @ h, 0) for w, h in ((first, there), (first + shift, at))
        )
        np.testing.assert_allclose(for_moved, for_weights, atol=1e-12)
        length, delta = np.linalg.norm(shift), np.linalg.norm(moved - x)
        norms = np.linalg.norm(first, 2) * np.linalg.norm(entry, 2)
        assert length <= norms * delta / np.linalg.norm(at)
        ratios.append(length / delta)
    assert np.mean(ratios) == pytest.approx(2**0.5, rel=0.1)
