"""Perturbation stability of random networks, and two trained layers: kernels and bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ks_2samp, norm

from experiments.theory.networks import INITIALISATIONS, fully_connected_network
from experiments.theory.stability import (
    TwoLayer,
    expected_hidden_kernel,
    gain,
    hidden_kernel,
    least_norm,
    output_kernel,
    second_moment,
    stability_at_initialisation,
    travel,
)
from experiments.theory.tasks import on_sphere
from ntkscore.errors import InputError
from ntkscore.kernels.gram import evaluate
from ntkscore.measures.perturbations import displacements


@pytest.mark.thorough
@pytest.mark.parametrize("initialisation", INITIALISATIONS)
@pytest.mark.parametrize(("layers", "m"), [(2, 16), (4, 32)])
def test_second_moments_are_exact_and_means_close(initialisation: str, layers: int, m: int) -> None:
    d, o = 6, 3

    @jax.jit
    def moved(key: jax.Array) -> jax.Array:
        weights, points, ball = jax.random.split(key, 3)
        model = fully_connected_network(weights, d, m, o, layers, initialisation)
        x = jax.random.normal(points, (1, d))
        return displacements(model.logits, x, ball)[0]

    values = np.asarray(jax.vmap(moved)(jax.random.split(jax.random.key(0), 4000)))
    exact = second_moment(initialisation, d, m, o, layers)
    error = (values**2).std() / np.sqrt(len(values))
    assert abs((values**2).mean() - exact) < 4 * error
    mean = stability_at_initialisation(initialisation, d, m, o, layers)
    assert values.mean() == pytest.approx(mean, rel=0.05)


def test_depth_helps_lecun_alone() -> None:
    assert gain("lecun", 10, 64) == pytest.approx(2**-0.5)
    assert gain("he", 10, 64) == gain("ntk", 10, 64) == pytest.approx(1)
    for m in (64, 128):
        assert stability_at_initialisation("lecun", 10, m, 1, 6) < stability_at_initialisation(
            "lecun", 10, m, 1, 4
        )


def test_networks_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2 layers, got 1"):
        fully_connected_network(jax.random.key(0), 4, 8, 1, 1)
    with pytest.raises(InputError, match="initialisation of lecun, he, ntk, got 'torch'"):
        fully_connected_network(jax.random.key(0), 4, 8, 1, 3, "torch")


def points(n: int, d: int) -> np.ndarray:
    return on_sphere(np.random.default_rng(0).standard_normal((n, d)))


def test_the_two_kernels_are_the_networks_ntk() -> None:
    with jax.enable_x64(True):
        x = jnp.asarray(points(7, 5))
        model = fully_connected_network(jax.random.key(0), 5, 11, 1, 2, (0.7, 0.0, 1.3), alpha=2.5)
        w, a = model.params
        ntk = evaluate(model, x, jnp.zeros(7, jnp.int32)).gram[0]
        ours = hidden_kernel(w, a[:, 0], x, 2.5) + output_kernel(w, x, 2.5)
        np.testing.assert_allclose(ours, ntk, atol=1e-12)


def draws(x: np.ndarray, m: int, count: int) -> np.ndarray:
    def one(key: jax.Array) -> jax.Array:
        rows, signs = jax.random.split(key)
        w = jax.random.normal(rows, (x.shape[1], m))
        return hidden_kernel(w, 1.5 * jax.random.normal(signs, (m,)), jnp.asarray(x, jnp.float32))

    return np.asarray(jax.lax.map(one, jax.random.split(jax.random.key(1), count)))


def test_the_expected_kernel_is_the_mean_of_drawn_ones() -> None:
    x = points(4, 3)
    found = draws(x, 20, 4000)
    error = found.std(0) / len(found) ** 0.5
    assert (np.abs(found.mean(0) - expected_hidden_kernel(x, 20, 1.5)) < 4.5 * error).all()


def test_kernels_concentrate_as_the_root_of_the_width() -> None:
    """Lemma 7's printed deviation lacks √m."""
    x = points(8, 3)
    sizes = (100, 400, 1600, 6400)
    off = [
        np.linalg.norm(draws(x, m, 60) - expected_hidden_kernel(x, m, 1.5), axis=(1, 2)).mean()
        for m in sizes
    ]
    assert np.polyfit(np.log(sizes), np.log(off), 1)[0] == pytest.approx(0.5, abs=0.06)


def test_flow_keeps_the_layers_balanced_and_their_norms_above_the_bound() -> None:
    with jax.enable_x64(True):
        x, rng = jnp.asarray(points(6, 4)), np.random.default_rng(1)
        y = jnp.asarray(rng.choice([-1.0, 1.0], 6))
        model = fully_connected_network(
            jax.random.key(2), 4, 16, 1, 3, (0.05, 0.3, 0.05), alpha=1.0
        )
        loss = lambda w: jnp.mean((model.apply(w, x)[:, 0] - y) ** 2) / 2  # noqa: E731
        step = lambda _, w: jax.tree.map(lambda a, g: a - 0.02 * g, w, jax.grad(loss)(w))  # noqa: E731
        w = jax.jit(lambda w: jax.lax.fori_loop(0, 6000, step, w))(model.params)
        layers = travel(model.params, w)
        squares = [layer.end**2 - layer.start**2 for layer in layers]
        # (ii) the rates are equal, up to the steps' length
        np.testing.assert_allclose(squares, squares[0], rtol=0.02)
        output = float(jnp.max(jnp.abs(model.apply(w, x))))
        # (i), (iii), (iv)
        assert output <= np.prod([layer.end for layer in layers])
        for one in layers:
            for other in layers:
                assert one.end <= other.end + one.start + 1e-3
            assert one.end >= least_norm(layers, output) - 1e-3
        assert max(layer.relative for layer in layers) > 1


SIZES = TwoLayer(50, 256, 0.5, 0.8, least=3.0, alpha=16.0)


def test_the_printed_radius_is_always_negative_and_the_mended_one_solves_its_inequality() -> None:
    for n in (2, 10, 1000):
        for m in (1, 64, 10**6):
            # λ₀ is at most m β₂²/(2α²).
            sizes = TwoLayer(n, m, 1.0, 0.7, least=m * 0.7**2 / 2)
            assert sizes.printed_output_radius() < 0 < sizes.output_radius()
    r, n, m = SIZES.output_radius(), SIZES.points, SIZES.width
    shift = np.sqrt(2 / np.pi) * SIZES.output_std
    # n³ (m/α²)((r + s)² − s²) = λ₀/8
    assert n**3 * m / SIZES.alpha**2 * ((r + shift) ** 2 - shift**2) == pytest.approx(
        SIZES.least / 8
    )


def test_weights_are_at_their_radius_at_the_time_that_ends_the_bound() -> None:
    residual = 7.0
    time = SIZES.time(residual)
    assert 0 < time < np.inf
    shares = np.divide(
        SIZES.travelled(time, residual), (SIZES.hidden_radius(), SIZES.output_radius())
    )
    assert shares.max() == pytest.approx(1) and shares.min() > 0
    assert SIZES.stability_bound(time, residual).status == "ok"
    assert SIZES.stability_bound(time * 1.01, residual) == (np.inf, "vacuous", None)
    # Without anything to learn nothing moves.
    assert SIZES.time(1e-12) == np.inf and SIZES.travelled(1.0, 0.0) == (0, 0)


def test_a_gate_is_a_coin_independent_of_what_passes_it() -> None:
    """Lemmas 1 and 2: ‖v‖²/β² ‖h‖² is χ² of Binomial(q, ½) degrees, whatever opens the gates."""
    rng, q, beta = np.random.default_rng(0), 6, 1.7
    opens, h = rng.standard_normal((2, 5))
    w = beta * rng.standard_normal((100_000, q, 5))
    for gate in (opens, h, -h):
        passed = np.sum(np.where(w @ gate > 0, w @ h, 0) ** 2, 1) / (beta**2 * (h @ h))
        coins = rng.chisquare(np.maximum(degrees := rng.binomial(q, 0.5, 100_000), 1))
        assert ks_2samp(passed, np.where(degrees > 0, coins, 0)).pvalue > 1e-3
        assert passed.mean() == pytest.approx(q / 2, rel=0.02)
        assert (passed**2).mean() == pytest.approx(q**2 / 4 + 5 * q / 4, rel=0.03)


def test_scaled_weights_learn_alike_at_a_scaled_rate() -> None:
    """Lemma 3: W/c, c^L f and the rate η/c² give the same outputs at all times."""
    with jax.enable_x64(True):
        c, layers, x = 1.7, 3, jnp.asarray(points(6, 4))
        y = jnp.asarray([1.0, -1, 1, 1, -1, -1])
        model = fully_connected_network(jax.random.key(0), 4, 8, 1, layers)

        def trained(scale: float, rate: float) -> jax.Array:
            f = lambda w: scale**layers * model.apply(w, x)[:, 0]  # noqa: E731
            slope = jax.grad(lambda w: jnp.mean((f(w) - y) ** 2))
            w = [each / scale for each in model.params]
            for _ in range(20):
                w = jax.tree.map(lambda a, g: a - rate * g, w, slope(w))
            return f(w)

        expected = trained(1.0, 0.1)
        np.testing.assert_allclose(trained(c, 0.1 / c**2), expected, atol=1e-12)
        assert float(jnp.max(jnp.abs(trained(c, 0.1 / c) - expected))) > 0.01


def test_the_gradients_change_is_at_least_the_outputs() -> None:
    """Lemma 4 bounds it by e^(−m/L³): ∇f(x)·x = f(x), so that it cannot vanish where f changes."""
    with jax.enable_x64(True):
        x = jnp.asarray(points(5, 4))
        first, second = (
            fully_connected_network(jax.random.key(k), 4, 16, 1, 4).params for k in (0, 1)
        )
        model = fully_connected_network(jax.random.key(0), 4, 16, 1, 4)
        changed = lambda z: (model.apply(first, z) - model.apply(second, z))[:, 0]  # noqa: E731
        slopes = jax.jacrev(lambda z: jnp.sum(changed(z)))(x)
        np.testing.assert_allclose(jnp.sum(slopes * x, 1), changed(x), atol=1e-12)
        assert (jnp.linalg.norm(slopes, axis=1) >= jnp.abs(changed(x))).all()


def test_theorem_2_as_printed_asks_for_too_small_an_alpha() -> None:
    """At its α the proof's last line is below zero; at 4 ((2 + 1/L) √1.5 m^1.5 Σβ)^L it is 1."""
    last = lambda alpha, total, n: (alpha / 4) ** (1 / n) / (1.5**0.5 * total) - 1 - 1 / n  # noqa: E731
    for n in (2, 3, 10):
        total = 7.0  # m^1.5 Σβ
        assert last(total**n, total, n) < 0
        mended = 4 * ((2 + 1 / n) * 1.5**0.5 * total) ** n
        assert last(mended, total, n) == pytest.approx(1)


def test_weights_stay_within_the_lemmas_ways_while_h_keeps_half_of_its_least_eigenvalue() -> None:
    """Lemmas 9 to 11, under flow; lemma 9's union should count neurons, m e^(−n/2)."""
    with jax.enable_x64(True):
        n, m, d = 4, 4000, 6
        x, y = jnp.asarray(points(n, d)), jnp.asarray([1.0, -1, 1, -1])
        least = float(np.linalg.eigvalsh(expected_hidden_kernel(np.asarray(x), m, 1.0, m**0.5))[0])
        model = fully_connected_network(
            jax.random.key(3), d, m, 1, 2, (1.0, 1.0, 1.0), alpha=m**0.5
        )
        f = lambda w: model.apply(w, x)[:, 0]  # noqa: E731
        slope = jax.grad(lambda w: jnp.sum((f(w) - y) ** 2) / 2)
        rate, steps = 0.002, 1000
        w = jax.lax.fori_loop(
            0,
            steps,
            lambda _, w: jax.tree.map(lambda a, g: a - rate * g, w, slope(w)),
            model.params,
        )
        time, start = rate * steps, float(jnp.linalg.norm(f(model.params) - y))
        hidden = hidden_kernel(w[0], w[1][:, 0], x, m**0.5)
        assert float(jnp.linalg.eigvalsh(hidden)[0]) >= least / 2
        assert float(jnp.linalg.norm(f(w) - y)) ** 2 <= np.exp(-least * time) * start**2
        of_hidden, of_output = TwoLayer(n, m, 1.0, 1.0, least, m**0.5).travelled(time, start)
        ways = jnp.linalg.norm(w[0] - model.params[0], axis=0), jnp.abs(w[1] - model.params[1])
        # |a_r(0)| ≤ √n β₂ is asked of every neuron: with n of 4 some are beyond.
        usual = jnp.abs(model.params[1][:, 0]) <= n**0.5
        assert not bool(usual.all())
        assert float(ways[0][usual].max()) <= of_hidden and float(ways[1].max()) <= of_output
        assert float(ways[0].max()) > 0.01 * of_hidden
    # At n = 10 and m = 2,000 lemma 9's event fails nearly always, with n e^(−n/2) = .07 printed.
    inside = norm.cdf(10**0.5) - norm.cdf(-(10**0.5))
    assert 1 - inside**2000 > 0.9 and 10 * np.exp(-5) < 0.07
