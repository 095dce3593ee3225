"""The lazy regime's identities, at any size: outputs, gradients, sign changes, exact flips."""

import numpy as np
import pytest
from scipy.special import erf
from scipy.stats import binom, chi2
from theory_networks import unit_points


def draws(count: int, m: int, d: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((m, d)), rng.choice([-1.0, 1.0], m)) for _ in range(count)]


def output(w: np.ndarray, a: np.ndarray, x: np.ndarray) -> float:
    return float(a @ np.maximum(w @ x, 0) / len(a) ** 0.5)


def largest_output(w: np.ndarray, a: np.ndarray, x: np.ndarray, radius: float) -> float:
    """sup f(x) over the ball of rows: m^−1/2 Σ a_s max(0, w_s·x + a_s V ‖x‖)."""
    return float(a @ np.maximum(w @ x + a * radius * np.linalg.norm(x), 0) / len(a) ** 0.5)


def changes_bound(gamma: float, m: int, radius: float) -> float:
    """Lemma 4.3: neurons of which the ball lets the sign at x change."""
    return float(radius * m + np.sqrt(m * np.log(1 / gamma) / 2))


def gradient_change_bound(d: float, m: float, c0: float) -> float:
    """Lemma 4.4: ‖∇f(x) − ∇f(x + δ)‖ over ‖δ‖ ≤ 1/√d."""
    first = (d**2 * np.log(m * d) ** 2 * np.sqrt(np.log(d) / d)) ** 0.25
    last = max(1, c0) * c0 * d**0.25
    return float(9 * first + 15 * d * np.log(m * d) / np.sqrt(m) + 327 * last)


def may_change(w: np.ndarray, x: np.ndarray, radius: float, reach: float = 0.0) -> np.ndarray:
    """Neurons of which some row of the ball changes the sign at some point within reach of x.

    The angle from x to w_s's hyperplane is at most arcsin(V/‖w_s‖) + arcsin(reach/‖x‖).
    """
    lengths, size = np.linalg.norm(w, axis=1), np.linalg.norm(x)
    turned = np.arcsin(np.minimum(radius / lengths, 1)) + np.arcsin(min(reach / size, 1))
    return np.arcsin(np.minimum(np.abs(w @ x) / (lengths * size), 1)) <= turned


def test_neurons_that_may_change_are_binomial_and_below_their_bound() -> None:
    m, d, c0 = 2000, 10, 3.0
    radius, x = c0 / m**0.5, unit_points(1, 10)[0]
    counts = [int((np.abs(w @ x) <= radius).sum()) for w, _ in draws(60, m, d)]
    exact = m * erf(radius / 2**0.5)
    assert np.mean(counts) == pytest.approx(exact, abs=4 * np.sqrt(exact / 60))
    assert np.mean(np.array(counts) > changes_bound(0.05, m, radius)) <= 0.05


def test_the_ball_s_largest_output_is_reached_and_never_exceeded() -> None:
    m, d, c0 = 400, 8, 2.0
    radius, x, rng = c0 / m**0.5, unit_points(1, 8)[0], np.random.default_rng(1)
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


def test_what_a_bound_says_at_sizes_that_can_be_run() -> None:
    """Lemma 4.4 divided by √d, with C₀ = C₁ = 1 and m = d^2.4."""
    for d, expected in ((784, 89), (10**12, 4.5), (10**20, 0.58)):
        found = gradient_change_bound(float(d), d**2.4, 1.0) / d**0.5
        assert found == pytest.approx(expected, rel=0.05)


def test_the_cone_keeps_the_flip_and_not_the_printed_step() -> None:
    """Weights times r > 0: δ stays, and η shrinks by r; C₂/‖∇f‖² shrinks by r²."""
    x = unit_points(1, 30, seed=7)[0]
    for w, a in draws(10, 200, 30):
        value, slope = output(w, a, x), (a * (w @ x > 0)) @ w / len(a) ** 0.5
        assert value == pytest.approx(slope @ x)  # f is homogeneous in x
        # A quarter more than flips a linear function flips every rW, whose step is 1/r of W's.
        step = -np.sign(value) * 1.25 * abs(value) / (slope @ slope)
        for r in (3.0, 10.0):
            assert output(r * w, a, x + step / r * (r * slope)) * value < 0
            assert output(r * w, a, x + step / r**2 * (r * slope)) * value > 0


def test_neurons_that_may_change_around_a_point_are_found_exactly() -> None:
    """Against the best row and the best point; lemma B.4 as printed counts far too few."""
    m, d, radius = 4000, 20, 0.1
    x, (w, _) = unit_points(1, d, seed=7)[0], draws(1, m, d)[0]
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


def test_a_move_across_turns_a_neuron_by_its_angle_over_pi() -> None:
    """Lemma B.6, equation 3, which has R √(2 log d) + 1/d."""
    d, reach = 50, 0.1
    x = unit_points(1, d)[0]
    across = np.eye(d)[0] - x[0] * x
    z = x + reach * across / np.linalg.norm(across)
    w = np.random.default_rng(5).standard_normal((200_000, d))
    share = np.mean((w @ x > 0) != (w @ z > 0))
    assert share == pytest.approx(np.arctan(reach) / np.pi, abs=4 * (0.04 / 200_000) ** 0.5)
    assert share <= reach * np.sqrt(2 * np.log(d)) + 1 / d


def test_the_inequalities_that_the_lemmas_start_from() -> None:
    """Equation 2 needs log(2/γ) ≤ m; theorem B.2 holds."""
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
