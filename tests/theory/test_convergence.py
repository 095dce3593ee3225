"""Networks, balls, projected descent and the two inequalities that hold for every run."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cells.residual import ACTIVATIONS
from experiments.theory.convergence import Arcs, Regret, project_to_ball, projected_descent, regret
from experiments.theory.infinite_width import deep_ntk
from experiments.theory.networks import deep_network, draw_two_layer, two_layer
from experiments.theory.seeds import log_slope
from experiments.theory.training import logistic
from ntkscore.errors import InputError
from ntkscore.model import Model

ARCS = Arcs(radius=0.15)


def test_the_deep_network_is_its_formula() -> None:
    with jax.enable_x64(True):
        m, x = 4, jnp.asarray([[0.6, 0.8, 0.0]], jnp.float64)
        model = deep_network(jax.random.key(0), 3, m, 1)
        f = lambda w: float(model.apply([jnp.asarray(w)], x)[0, 0])  # noqa: E731
        unit = lambda j, i: np.outer(np.eye(m)[j], np.eye(m)[i])  # noqa: E731
        # a_i (Ax)_j, by weights of one entry; rows of W are inputs here.
        both = np.array([[f(unit(j, i)) - f(-unit(j, i)) for i in range(m)] for j in range(m)])
        assert np.linalg.matrix_rank(both, tol=1e-9) == 1
        first = next(i for i in range(m) if f(unit(0, i)) + f(-unit(0, i)) > 0)
        scaled, weights = both[:, first], both[0] / both[0, first]
        w = np.asarray(model.params[0])
        expected = np.maximum(scaled @ w, 0) @ weights
        assert f(w) == pytest.approx(expected, rel=1e-12)
        deeper = deep_network(jax.random.key(1), 3, m, 3)
        doubled = deeper.apply([2 * w for w in deeper.params], x)
        np.testing.assert_allclose(doubled, 8 * deeper.apply(deeper.params, x), rtol=1e-12)


def test_a_deep_network_begins_where_its_limits_say() -> None:
    @jax.jit
    def measured(key: Any) -> tuple[Any, Any]:
        model = deep_network(key, 10, 256, 2)
        x = jnp.zeros((1, 10)).at[0, 0].set(1.0)
        slope = jax.grad(lambda w: model.apply(w, x)[0, 0])(model.params)
        length = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(slope))
        return model.apply(model.params, x)[0, 0] ** 2, length / (256 * 2)

    squares, lengths = jax.vmap(measured)(jax.random.split(jax.random.key(0), 200))
    assert float(squares.mean()) == pytest.approx(2, abs=0.7)
    assert float(lengths.mean()) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("activation", ["relu", "tanh", "softplus"])
def test_the_two_layer_network_is_its_formula(activation: str) -> None:
    m, x = 6, np.random.default_rng(0).standard_normal((4, 3))
    with jax.enable_x64(True):
        w, a = draw_two_layer(jax.random.key(0), 3, m)
        model = two_layer(w, a, activation)
        expected = ACTIVATIONS[activation](x @ np.asarray(w).T) @ np.asarray(a) / m**0.5
        assert set(np.asarray(a)) == {-1.0, 1.0}
        np.testing.assert_allclose(model.apply(w, jnp.asarray(x))[:, 0], expected, atol=1e-12)


def test_pairs_cancel_and_odd_widths_have_none() -> None:
    model = two_layer(*draw_two_layer(jax.random.key(3), 3, 8, antisymmetric=True), "softplus")
    x = jax.random.normal(jax.random.key(1), (5, 3))
    np.testing.assert_allclose(model.apply(model.params, x), 0, atol=1e-6)
    with pytest.raises(InputError, match="even width, got 7"):
        draw_two_layer(jax.random.key(0), 3, 7, antisymmetric=True)
    with pytest.raises(InputError, match="activation of relu"):
        two_layer(*draw_two_layer(jax.random.key(0), 3, 7), "gelu")


def test_the_projection_is_the_nearest_point_of_the_ball() -> None:
    rng = np.random.default_rng(0)
    centre = [jnp.asarray(rng.standard_normal((3, 2))), jnp.asarray(rng.standard_normal(4))]
    weights = [c + scale * 1.0 for c, scale in zip(centre, (5.0, 0.01), strict=True)]
    inside = project_to_ball(weights, centre, 0.5)
    again = project_to_ball(inside, centre, 0.5)
    for first, second in zip(inside, again, strict=True):
        np.testing.assert_allclose(first, second, atol=1e-6)
    # By array: the near one stays as it is.
    np.testing.assert_array_equal(inside[1], weights[1])
    best = float(jnp.linalg.norm(inside[0] - weights[0]))
    for _ in range(200):
        drawn = rng.standard_normal((3, 2))
        drawn *= 0.5 * rng.uniform() / np.linalg.norm(drawn)
        assert np.linalg.norm(centre[0] + drawn - weights[0]) >= best - 1e-5


def test_the_worst_point_of_an_arc_is_the_grids() -> None:
    model = deep_network(jax.random.key(0), 3, 32, 1)
    margins = np.asarray(ARCS.margins(model, model.params))
    worst = ARCS.worst(model, model.params)
    found = jnp.asarray(ARCS.y, jnp.float32) * model.apply(model.params, worst)[:, 0]
    np.testing.assert_allclose(found, margins.min(1), atol=1e-5)
    loss, slack = ARCS.robust_loss(model, model.params)
    assert float(loss) == pytest.approx(np.log1p(np.exp(-margins.min(1))).mean(), abs=1e-5)
    finer = Arcs(radius=0.15, grid=1601).robust_loss(model, model.params)[0]
    assert float(loss) - 1e-6 <= float(finer) <= float(loss + slack)
    ends = np.sum(np.asarray(ARCS.stepped(model, model.params)) * ARCS.clean, 1)
    np.testing.assert_allclose(ends, (1 + np.cos(0.15)) / 2, atol=1e-5)
    with pytest.raises(InputError, match=r"below 0.314, got 0.4"):
        Arcs(radius=0.4)


@partial(jax.jit, static_argnames=("exact", "smooth"))
def compared(key: Any, exact: bool, smooth: bool) -> tuple[Any, Any, Any, Any]:
    """A run's best loss, its comparator's robust loss, the regret's bound, the ball's excess."""
    if smooth:
        model = two_layer(*draw_two_layer(key, 3, 64, True), "softplus")
        step, radius, curvature = 0.5, jnp.inf, ACTIVATIONS["softplus"].curvature
    else:
        model = deep_network(key, 3, 64, 2)
        step, radius, curvature = 0.2 / (64 * 2), 4 / 64**0.5, None
    y = jnp.asarray(ARCS.y, jnp.float64)
    worst = partial(ARCS.worst, model)
    towards = projected_descent(model, y, worst, step, 150, 12.0 if smooth else radius)
    perturb = worst if exact else partial(ARCS.stepped, model)
    run = projected_descent(model, y, perturb, step, 100, radius, towards.params)
    terms: Regret = regret(run, step, curvature, 64)
    best, _ = ARCS.robust_loss(model, towards.params)
    lengths = [
        jnp.linalg.norm(a - b)
        for a, b in zip(jax.tree.leaves(run.params), jax.tree.leaves(model.params), strict=True)
    ]
    return run.losses.min(), best, sum(terms), jnp.max(jnp.stack(lengths)) - radius


@pytest.mark.parametrize("smooth", [False, True], ids=["deep", "smooth"])
@pytest.mark.parametrize("exact", [False, True], ids=["weak", "exact"])
def test_no_run_violates_its_inequality(exact: bool, smooth: bool) -> None:
    with jax.enable_x64(True):
        for seed in range(3):
            least, best, bound, excess = compared(jax.random.key(seed), exact, smooth)
            assert float(least - best) <= float(bound)
            assert float(excess) <= 1e-12


def test_a_convex_loss_has_no_defect() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((6, 3)), jnp.float32)
    linear = Model(lambda w, x: x @ w, jnp.zeros((3, 1)))
    y = jnp.asarray([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
    run = projected_descent(linear, y, lambda w: x, 0.1, 20, comparator=jnp.ones((3, 1)))
    assert float(run.defects.max()) <= 1e-6
    assert float(run.projected.max()) == 0
    steps = np.zeros((3, 1))
    for _ in range(20):
        margins = np.asarray(y) * (np.asarray(x) @ steps)[:, 0]
        weights = -np.asarray(y) / (1 + np.exp(margins)) / 6
        steps -= 0.1 * (np.asarray(x).T @ weights)[:, None]
    np.testing.assert_allclose(run.params, steps, atol=1e-5)
    assert float(run.losses[0]) == pytest.approx(float(logistic(jnp.zeros(1))[0]))


def started(m: int, d: int, hidden: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """A, W and a of the deep network."""
    a, entry = rng.standard_normal(m), rng.standard_normal((m, d)) * (2 / m) ** 0.5
    return entry, rng.standard_normal((hidden, m, m)) * (2 / m) ** 0.5, a


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


@pytest.mark.parametrize("m", [60, 400])
def test_a_move_of_the_point_is_one_of_the_first_weights(m: int) -> None:
    """Lemma A.4, and its length: √2 δ for a random network, where the ball has R/√m."""
    d, rng, ratios = 5, np.random.default_rng(m), []
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


def test_the_gradient_changes_as_the_root_of_the_points_move() -> None:
    """Lemma A.5 at W_0: it allows δ^(1/3); the limit's ‖∂f(x) − ∂f(x′)‖²/m is 2 K(x, x) − 2 K."""
    deltas = np.array([1e-4, 1e-3, 1e-2])
    for hidden in (1, 3):
        changes = []
        for delta in deltas:
            angle = 2 * np.arcsin(delta / 2)
            pair = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
            kernel = deep_ntk(pair, hidden)
            changes.append(np.sqrt(2 * (kernel[0, 0] - kernel[0, 1])))
        assert log_slope(deltas, np.array(changes)) == pytest.approx(0.5, abs=0.02)
