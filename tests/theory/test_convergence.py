"""Deep networks: their limits, lengths, and the two inequalities that hold for every run."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from theory_networks import draw_two_layer, fully_connected, two_layer

from cells.residual import ACTIVATIONS
from experiments.statistics import log_slope
from experiments.theory.gaussian import moments
from experiments.theory.tasks import on_sphere
from experiments.theory.training import logistic, margins
from ntkscore.kernels.ntk import ntk
from ntkscore.model import Model

COUNT, RADIUS = 10, 0.15
"""Arcs of the circle, and how far each reaches from its middle, in radians."""


def deep_network(key: jax.Array, d: int, m: int, hidden: int) -> Model:
    """f = aᵀ x_H with x_h = relu(W_h x_{h−1}) and x_0 = A x; W_1 … W_H are trained (equation 1).

    Entries of A and W_h are N(0, 2/m), those of a N(0, 1).
    """
    first, last, *keys = jax.random.split(key, hidden + 2)
    scale = (2 / m) ** 0.5
    enter, leave = jax.random.normal(first, (d, m)) * scale, jax.random.normal(last, (m, 1))
    weights = [jax.random.normal(k, (m, m)) * scale for k in keys]
    return Model(lambda w, x: fully_connected([*w, leave], x @ enter), weights)


def deep_ntk(points: np.ndarray, hidden: int) -> np.ndarray:
    """Its kernel over m as m grows: Σ_h G_{h−1} Ė_h Π_{k>h} 2Ė_k, G_h = 2 E relu(u)relu(u′)."""
    gram, total = 2 * points @ points.T, np.zeros((len(points), len(points)))
    for _ in range(hidden):
        v = np.diag(gram)
        product, derivative = moments(ACTIVATIONS["relu"], v[:, None], v[None], gram)
        # All layers below are pulled through this one.
        total = 2 * derivative * total + gram * derivative
        gram = 2 * product
    return total


@pytest.mark.parametrize("hidden", [1, 2, 3])
def test_the_deep_network_s_kernel_approaches_its_limit(hidden: int) -> None:
    points = on_sphere(np.random.default_rng(0).standard_normal((6, 4)))
    limit = deep_ntk(points, hidden)

    @partial(jax.jit, static_argnames="width")
    def kernel(key: jax.Array, width: int) -> jax.Array:
        return ntk(deep_network(key, 4, width, hidden), jnp.asarray(points, jnp.float32)) / width

    far = {}
    for width in (32, 512):
        drawn = [kernel(jax.random.key(seed), width) for seed in range(12)]
        apart = [np.linalg.norm(each - limit) / np.linalg.norm(limit) for each in drawn]
        far[width] = np.mean(apart)
        assert np.linalg.norm(np.mean(drawn, 0) - limit) / np.linalg.norm(limit) < 4 * far[width]
    # A sixteenth of the width, four times as far.
    assert far[32] / far[512] == pytest.approx(4, rel=0.4)


def lifted(angles: np.ndarray) -> jax.Array:
    """(cos φ, sin φ, 1)/√2: a circle on the sphere where no point lies opposite another."""
    return jnp.asarray(
        np.stack([np.cos(angles), np.sin(angles), np.ones_like(angles)], -1) / 2**0.5
    )


MIDDLES = 2 * np.pi * np.arange(COUNT) / COUNT
LABELS = np.where(np.arange(COUNT) % 5 < 2, 1.0, -1.0)


def arcs(model: Model, w: Any, grid: int = 81) -> tuple[jax.Array, jax.Array]:
    """Of each arc the grid's point of largest loss, and the end of the arc with the larger one."""
    across = np.linspace(-RADIUS, RADIUS, grid)
    points = lifted(MIDDLES[:, None] + across)
    outputs = model.apply(w, points.reshape(-1, 3)).reshape(COUNT, grid)
    found = LABELS[:, None] * outputs
    least = jnp.argmin(found, 1), jnp.where(found[:, 0] < found[:, -1], 0, grid - 1)
    worst, end = (jnp.take_along_axis(points, k[:, None, None], 1)[:, 0] for k in least)
    return worst, end


def inside(w: Any, start: Any, radius: float) -> Any:
    """Equation 2: the nearest weights whose every array is within the radius of its start."""

    def nearest(w: jax.Array, start: jax.Array) -> jax.Array:
        length = jnp.linalg.norm(w - start)
        return jnp.where(length > radius, start + (w - start) * (radius / length), w)

    return jax.tree.map(nearest, w, start)


def inner(a: Any, b: Any) -> jax.Array:
    return sum(jax.tree.leaves(jax.tree.map(jnp.vdot, a, b)), jnp.zeros(()))


def mean_loss(model: Model, w: Any, points: jax.Array) -> jax.Array:
    return jnp.mean(logistic(margins(model, w, points, jnp.asarray(LABELS))))


def descended(
    model: Model, exact: bool, rate: float, steps: int, radius: float, other: Any
) -> tuple[Any, tuple[jax.Array, ...]]:
    """Full-batch steps at perturbed points; each step's loss, ‖g‖², defect and ‖W − W^c‖."""

    def step(w: Any, _: None) -> tuple[Any, tuple[jax.Array, ...]]:
        worst, weak = lax.stop_gradient(arcs(model, w))
        loss_at = partial(mean_loss, model, points=worst if exact else weak)
        loss, gradient = jax.value_and_grad(loss_at)(w)
        towards = jax.tree.map(jnp.subtract, other, w)
        defect = loss + inner(gradient, towards) - loss_at(other)
        moved = jax.tree.map(lambda w, g: w - rate * g, w, gradient)
        measured = loss, inner(gradient, gradient), defect, inner(towards, towards) ** 0.5
        return inside(moved, model.params, radius), measured

    return lax.scan(step, model.params, None, length=steps)


@partial(jax.jit, static_argnames=("exact", "smooth"))
def compared(key: jax.Array, exact: bool, smooth: bool) -> tuple[jax.Array, ...]:
    """A run's best loss, its comparator's robust loss, the regret's bound, the ball's excess.

    The bound is ‖W_0 − W^c‖²/(2αT) + α/2 · mean ‖g_t‖² + mean defect_t; of a smooth two-layer
    network C″/(2√m) ‖W_t − W^c‖² is in the defect's place (theorems 4.1 and 5.1).
    """
    m, steps = 64, 100
    if smooth:
        model = two_layer(*draw_two_layer(key, 3, m), "softplus")
        rate, radius = 0.5, float("inf")
    else:
        model = deep_network(key, 3, m, 2)
        rate, radius = 0.2 / (m * 2), 4 / m**0.5
    ball = 12.0 if smooth else radius
    towards, _ = descended(model, True, rate, 150, ball, model.params)
    end, (losses, squares, defects, ways) = descended(model, exact, rate, steps, radius, towards)
    if smooth:
        defects = ACTIVATIONS["softplus"].curvature / (2 * m**0.5) * ways**2
    bound = ways[0] ** 2 / (2 * rate * steps) + rate / 2 * jnp.mean(squares) + jnp.mean(defects)
    worst, _ = arcs(model, towards)
    best = mean_loss(model, towards, worst)
    apart = jax.tree.leaves(jax.tree.map(lambda a, b: jnp.linalg.norm(a - b), end, model.params))
    return jnp.min(losses), best, bound, jnp.max(jnp.stack(apart)) - radius


@pytest.mark.parametrize("smooth", [False, True], ids=["deep", "smooth"])
@pytest.mark.parametrize("exact", [False, True], ids=["weak", "exact"])
def test_no_run_violates_its_inequality(exact: bool, smooth: bool) -> None:
    with jax.enable_x64(True):
        for seed in range(3):
            least, best, bound, excess = compared(jax.random.key(seed), exact, smooth)
            assert float(least - best) <= float(bound)
            assert float(excess) <= 1e-12


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
