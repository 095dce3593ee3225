"""The lazy regime's identities, at any size: outputs, gradients, sign changes, exact flips."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf
from scipy.stats import binom, chi2
from theory_networks import two_layer


def draws(count: int, m: int, d: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((m, d)), rng.choice([-1.0, 1.0], m)) for _ in range(count)]


def output(w: np.ndarray, a: np.ndarray, x: np.ndarray) -> float:
    return float(a @ np.maximum(w @ x, 0) / len(a) ** 0.5)


def unit(d: int, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal(d)
    return x / np.linalg.norm(x)


def largest_output(w: np.ndarray, a: np.ndarray, x: np.ndarray, radius: float) -> float:
    """sup f(x) over the ball of rows: m^−1/2 Σ a_s max(0, w_s·x + a_s V ‖x‖)."""
    return float(a @ np.maximum(w @ x + a * radius * np.linalg.norm(x), 0) / len(a) ** 0.5)


def changes_bound(gamma: float, m: int, radius: float) -> float:
    """Lemma 4.3: neurons of which the ball lets the sign at x change."""
    return float(radius * m + np.sqrt(m * np.log(1 / gamma) / 2))


def lost(gamma: float, m: float, c0: float) -> float:
    """What lemmas 4.2 and B.8 take from the gates."""
    return float(np.sqrt((c0 + np.sqrt(np.log(4 / gamma) / 2)) / np.sqrt(m)))


def gradient_bound(gamma: float, d: float, m: float, c0: float) -> float:
    """Lemma 4.2: ‖∇f(x)‖ from below; it says nothing where it is not above 0."""
    first = 0.5 - np.sqrt(2 * np.log(4 / gamma) / m) - np.log(4 / gamma) / m
    second = d - 5 * np.sqrt(d * np.log(8 / gamma))
    rest = lost(gamma, m, c0) * np.sqrt(d + 4 * np.sqrt(d * np.log(8 * m / gamma)))
    return float(np.sqrt(max(first, 0) * max(second, 0)) - c0 - rest)


def gradient_change_bound(d: float, m: float, c0: float) -> float:
    """Lemma 4.4: ‖∇f(x) − ∇f(x + δ)‖ over ‖δ‖ ≤ 1/√d."""
    first = (d**2 * np.log(m * d) ** 2 * np.sqrt(np.log(d) / d)) ** 0.25
    last = max(1, c0) * c0 * d**0.25
    return float(9 * first + 15 * d * np.log(m * d) / np.sqrt(m) + 327 * last)


def gates_bound(gamma: float, d: float, m: float, c0: float, reach: float) -> float:
    """Lemma B.8: r·(∇f(x) − ∇f(x + δ)), with the last "+ 3" of its proof."""
    tail = np.log(4 / gamma)
    first = 2 * np.sqrt(tail) * ((4 * reach * np.sqrt(np.log(d))) ** 0.25 + np.sqrt(tail / m))
    second = 3 * lost(gamma, m, c0) * np.sqrt(d + 4 * np.sqrt(d * np.log(8 * m / gamma)))
    third = 5 * (c0 + np.sqrt(tail)) * (np.sqrt(np.log(4 * m / gamma)) + 3)
    return float(first + c0 + second + third)


class Flip(NamedTuple):
    """The smallest η ≥ 0 with which x − sign(f) η ∇f has another sign, NaN without; f and ‖∇f‖."""

    step: float
    output: float
    gradient: float

    @property
    def length(self) -> float:
        return self.step * self.gradient


def flip_along_gradient(w: np.ndarray, a: np.ndarray, x: np.ndarray) -> Flip:
    """The exact step: f is piecewise linear along a ray."""
    u, root = w @ x, len(a) ** 0.5
    value, slope = output(w, a, x), (a * (u > 0)) @ w / root
    length, v = float(np.linalg.norm(slope)), -np.sign(value) * (w @ slope)
    if value == 0:
        return Flip(float("nan"), value, length)
    # Along the ray the slope changes where a neuron does.
    ahead = u * v < 0
    starts = np.concatenate([[0.0], np.sort(-u[ahead] / v[ahead])])
    values = np.array([output(w, a, x - np.sign(value) * t * slope) for t in starts])
    last = float((a * np.maximum(v, 0)).sum() / root)
    ends = np.append(values[1:], np.inf * np.sign(last) if abs(last) > 1e-12 else values[-1])
    crossed = np.nonzero(ends * np.sign(value) < -1e-12)[0]
    if not len(crossed):
        return Flip(float("nan"), value, length)
    k = crossed[0]
    slopes = np.append(np.diff(values) / np.diff(starts), last)
    return Flip(float(starts[k] - values[k] / slopes[k]), value, length)


def may_change(w: np.ndarray, x: np.ndarray, radius: float, reach: float = 0.0) -> np.ndarray:
    """Neurons of which some row of the ball changes the sign at some point within reach of x.

    The angle from x to w_s's hyperplane is at most arcsin(V/‖w_s‖) + arcsin(reach/‖x‖).
    """
    lengths, size = np.linalg.norm(w, axis=1), np.linalg.norm(x)
    turned = np.arcsin(np.minimum(radius / lengths, 1)) + np.arcsin(min(reach / size, 1))
    return np.arcsin(np.minimum(np.abs(w @ x) / (lengths * size), 1)) <= turned


def test_the_gradient_gives_the_output_back() -> None:
    x = unit(9)
    for w, a in draws(5, 6, 9):
        model = two_layer(jnp.asarray(w, jnp.float32), jnp.asarray(a, jnp.float32))
        slope = jax.grad(lambda z, model=model: model.apply(model.params, z[None])[0, 0])
        there = jnp.asarray(x, jnp.float32)
        flip = flip_along_gradient(w, a, x)
        assert float(slope(there) @ there) == pytest.approx(flip.output, abs=1e-5)
        assert float(jnp.linalg.norm(slope(there))) == pytest.approx(flip.gradient, rel=1e-5)
        # The cone: signs stay when all weights are scaled.
        assert np.sign(output(3.7 * w, a, x)) == np.sign(flip.output)


@pytest.mark.parametrize("m", [3, 20, 400])
def test_the_smallest_flip_is_exact(m: int) -> None:
    flips = []
    for seed, (w, a) in enumerate(draws(25, m, 5)):
        x = unit(5, seed)
        flip = flip_along_gradient(w, a, x)
        flips.append(flip.step)
        active = w @ x > 0
        g = -np.sign(flip.output) * (a * active) @ w / m**0.5
        if np.isnan(flip.step):
            steps = np.geomspace(1e-3, 1e6, 400)
        else:
            beyond = output(w, a, x + 1.0001 * flip.step * g)
            assert np.sign(beyond) == -np.sign(flip.output)
            steps = np.linspace(0, 0.9999 * flip.step, 1000)
            assert abs(flip.output) / flip.gradient <= flip.length * 3
        values = np.array([output(w, a, x + t * g) for t in steps])
        assert (values * np.sign(flip.output) >= -1e-9).all()
    assert np.isfinite(flips).any()


def test_neurons_that_may_change_are_binomial_and_below_their_bound() -> None:
    m, d, c0 = 2000, 10, 3.0
    radius, x = c0 / m**0.5, unit(10)
    counts = [int((np.abs(w @ x) <= radius).sum()) for w, _ in draws(60, m, d)]
    exact = m * erf(radius / 2**0.5)
    assert np.mean(counts) == pytest.approx(exact, abs=4 * np.sqrt(exact / 60))
    assert np.mean(np.array(counts) > changes_bound(0.05, m, radius)) <= 0.05


def test_the_ball_s_largest_output_is_reached_and_never_exceeded() -> None:
    m, d, c0 = 400, 8, 2.0
    radius, x, rng = c0 / m**0.5, unit(8), np.random.default_rng(1)
    gains = []
    for w, a in draws(100, m, d):
        top = largest_output(w, a, x, radius)
        best = w + radius * a[:, None] * x
        assert output(best, a, x) == pytest.approx(top, abs=1e-9)
        moves = rng.standard_normal((m, d))
        moves *= radius / np.linalg.norm(moves, axis=1, keepdims=True)
        assert output(w + moves, a, x) <= top
        gains.append(top - output(w, a, x))
        # Lemma 4.1.
        bound = np.sqrt(2 * np.log(40)) + 2 * np.log(40) / m**0.5 + c0
        assert top <= output(w, a, x) + c0 and abs(output(w, a, x)) <= bound
    assert np.mean(gains) == pytest.approx(c0 / 2, abs=0.15)


def test_what_the_bounds_say_at_sizes_that_can_be_run() -> None:
    assert gradient_bound(0.05, 784, 10**5, 10.0) < 0
    assert gradient_bound(0.05, 10**6, 10**9, 1.0) > 100
    # Divided by √d, with C₀ = C₁ = 1 and m = d^2.4.
    for d, expected in ((784, 89), (10**12, 4.5), (10**20, 0.58)):
        found = gradient_change_bound(float(d), d**2.4, 1.0) / d**0.5
        assert found == pytest.approx(expected, rel=0.05)


def test_the_cone_keeps_the_flip_and_not_the_printed_step() -> None:
    """Weights times r > 0: δ stays, η shrinks by r; C₂/‖∇f‖² shrinks by r²."""
    x = unit(30, 7)
    for w, a in draws(10, 200, 30):
        flip = flip_along_gradient(w, a, x)
        for r in (0.25, 3.0, 10.0):
            scaled = flip_along_gradient(r * w, a, x)
            assert scaled.length == pytest.approx(flip.length, rel=1e-9)
            assert scaled.step == pytest.approx(flip.step / r, rel=1e-9)
        # What flips W by a quarter more than a linear function would flips 10 W no longer.
        steps = 1.25 * abs(flip.output) * np.array([1 / flip.gradient**2, 1 / scaled.gradient**2])
        assert steps[0] > flip.step and steps[1] < scaled.step


def test_neurons_that_may_change_around_a_point_are_found_exactly() -> None:
    """Against the best row and the best point; lemma B.4 as printed counts far too few."""
    m, d, radius = 4000, 20, 0.1
    x, (w, _) = unit(d, 7), draws(1, m, d)[0]
    np.testing.assert_array_equal(may_change(w, x, radius), np.abs(w @ x) <= radius)
    reach = 0.1
    found = may_change(w, x, radius, reach)
    for row, there in zip(w[:200], found[:200], strict=True):
        # The point of the ball around x that is nearest to the hyperplane by angle.
        across = row - (row @ x) * x
        across *= -np.sign(row @ x) / np.linalg.norm(across)
        turn = np.linspace(0, np.arcsin(reach), 400)[:, None]
        points = np.cos(turn) * (np.cos(turn) * x + np.sin(turn) * across)
        assert (np.linalg.norm(points - x, axis=1) <= reach + 1e-9).all()
        margins = (points @ row) * np.sign(row @ x)
        reached = (margins <= radius * np.linalg.norm(points, axis=1)).any()
        close = abs(margins.min() / radius - 1) < 0.01
        assert there == reached or close
    assert found.sum() > 1.1 * changes_bound(0.05, m, radius) * (1 + reach)
    expected = binom(m, erf(radius / 2**0.5))
    assert abs(may_change(w, x, radius).sum() - expected.mean()) < 4 * expected.std()


def test_a_move_across_turns_a_neuron_by_its_angle_over_pi() -> None:
    """Lemma B.6, equation 3, which has R √(2 log d) + 1/d."""
    d, reach = 50, 0.1
    x = unit(d)
    across = np.eye(d)[0] - x[0] * x
    z = x + reach * across / np.linalg.norm(across)
    w = np.random.default_rng(5).standard_normal((200_000, d))
    share = np.mean((w @ x > 0) != (w @ z > 0))
    assert share == pytest.approx(np.arctan(reach) / np.pi, abs=4 * (0.04 / 200_000) ** 0.5)
    assert share <= reach * np.sqrt(2 * np.log(d)) + 1 / d


def test_the_inequalities_that_the_lemmas_start_from() -> None:
    """Equation 2 needs log(2/γ) ≤ m; theorem B.2 holds; lemma B.8 is far above its trivial size."""
    for m in (5, 50, 500):
        for gamma in (0.3, 0.01, 2 * np.exp(-m)):
            off = 4 * np.sqrt(m * np.log(2 / gamma))
            assert chi2.sf(m + off, m) + chi2.cdf(m - off, m) <= gamma
    off = 4 * np.sqrt(np.log(2 / 1e-6))
    assert chi2.sf(1 + off, 1) > 1e-6
    for share in (0.01, 0.3):
        t = np.arange(int(50 * share) + 1, 51)
        mean = 50 * share
        assert (binom(50, share).sf(t - 1) <= np.exp(-mean) * (np.e * mean / t) ** t).all()
    # ‖∇f(x)‖ + ‖∇f(x + δ)‖ is about 2 √(d/2).
    assert gates_bound(0.05, 784, 1000, 10.0, 784**-0.5) > 10 * np.sqrt(2 * 784)
