"""Perturbation stability of random networks, and two trained layers: kernels and bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import ks_2samp, norm
from theory_networks import INITIALISATIONS, fully_connected_network, unit_points

from ntkscore.kernels.implementations import evaluate
from ntkscore.measures.perturbations import displacements

pytestmark = pytest.mark.usefixtures("double")


def gain(initialisation: str, d: int, m: int) -> float:
    """γ = β√(m/2), the growth of a signal's length by a hidden layer."""
    return float(INITIALISATIONS[initialisation](d, m)[1] * np.sqrt(m / 2))


def second_moment(initialisation: str, d: int, m: int, outputs: int, layers: int) -> float:
    """E ‖∇f(x)ᵀ(x − x̂)‖² of a random network, exactly: lemma 5 with E ‖x − x̂‖² = d/(d + 2)."""
    first, _, last = INITIALISATIONS[initialisation](d, m)
    grown = gain(initialisation, d, m) ** (2 * (layers - 2))
    return float(m * outputs * first**2 * last**2 / 2 * grown * d / (d + 2))


def stability_at_initialisation(name: str, d: int, m: int, outputs: int, layers: int) -> float:
    """𝒫/ε of a random network, to leading order of a log-normal in (L − 1)/m."""
    root = np.sqrt(second_moment(name, d, m, outputs, layers))
    log_ratio = gammaln((outputs + 1) / 2) - gammaln(outputs / 2)
    return float(root * np.sqrt(2 / outputs) * np.exp(log_ratio - 5 * (layers - 1) / (8 * m)))


def hidden_kernel(weights: jax.Array, a: jax.Array, x: jax.Array) -> jax.Array:
    """H of f = Σ a_r relu(w_r·x), whose columns are w_r."""
    active = (x @ weights > 0).astype(x.dtype)
    return (x @ x.T) * ((active * a**2) @ active.T)


def expected_hidden_kernel(x: np.ndarray, m: int, output_std: float) -> np.ndarray:
    """H^∞ = E H at the start of points of length 1."""
    inner = np.clip(x @ x.T, -1, 1)
    return m * output_std**2 * inner * (np.pi - np.arccos(inner)) / (2 * np.pi)


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


def test_the_two_kernels_are_the_networks_ntk() -> None:
    """Lemma 6."""
    x = jnp.asarray(unit_points(7, 5))
    model = fully_connected_network(jax.random.key(0), 5, 11, 1, 2, (0.7, 0.0, 1.3))
    w, a = model.params
    ntk = evaluate(model, x, jnp.zeros(7, jnp.int32)).gram[0]
    features = jnp.maximum(x @ w, 0)
    ours = hidden_kernel(w, a[:, 0], x) + features @ features.T
    np.testing.assert_allclose(ours, ntk, atol=1e-12)


def draws(x: np.ndarray, m: int, count: int) -> np.ndarray:
    def one(key: jax.Array) -> jax.Array:
        rows, signs = jax.random.split(key)
        w = jax.random.normal(rows, (x.shape[1], m))
        return hidden_kernel(w, 1.5 * jax.random.normal(signs, (m,)), jnp.asarray(x))

    return np.asarray(jax.lax.map(one, jax.random.split(jax.random.key(1), count)))


def test_kernels_concentrate_as_the_root_of_the_width() -> None:
    """Lemma 7's printed deviation lacks √m."""
    x = unit_points(8, 3)
    sizes = (100, 400, 1600, 6400)
    off = [
        np.linalg.norm(draws(x, m, 60) - expected_hidden_kernel(x, m, 1.5), axis=(1, 2)).mean()
        for m in sizes
    ]
    assert np.polyfit(np.log(sizes), np.log(off), 1)[0] == pytest.approx(0.5, abs=0.06)


def test_flow_keeps_the_layers_balanced_and_their_norms_above_the_bound() -> None:
    x, rng = jnp.asarray(unit_points(6, 4)), np.random.default_rng(1)
    y = jnp.asarray(rng.choice([-1.0, 1.0], 6))
    model = fully_connected_network(jax.random.key(2), 4, 16, 1, 3, (0.05, 0.3, 0.05))
    loss = lambda w: jnp.mean((model.apply(w, x)[:, 0] - y) ** 2) / 2  # noqa: E731
    step = lambda _, w: jax.tree.map(lambda a, g: a - 0.02 * g, w, jax.grad(loss)(w))  # noqa: E731
    w = jax.jit(lambda w: jax.lax.fori_loop(0, 6000, step, w))(model.params)
    start, end, apart = (
        np.array([jnp.linalg.norm(each) for each in layers])
        for layers in (model.params, w, jax.tree.map(jnp.subtract, w, model.params))
    )
    squares = end**2 - start**2
    # (ii) the rates are equal, up to the steps' length
    np.testing.assert_allclose(squares, squares[0], rtol=0.02)
    output = float(jnp.max(jnp.abs(model.apply(w, x))))
    # (i), (iii), (iv), and equation 15
    assert output <= np.prod(end)
    assert (end[:, None] <= end + start[:, None] + 1e-3).all()
    assert end.min() >= output ** (1 / len(end)) - np.mean(start) - 1e-3
    assert (apart / start).max() > 1


def output_radius(n: int, m: int, std: float, least: float, alpha: float = 1.0) -> float:
    """R_a, how far every a_r may be from its start for H to stay within λ₀/4 (lemma 8), mended."""
    shift = np.sqrt(2 / np.pi) * std
    room = alpha**2 * least / (8 * n**3 * m)
    return float(room / (shift + np.sqrt(shift**2 + room)))


def hidden_radius(n: int, m: int, std: float, least: float, alpha: float = 1.0) -> float:
    """R_w (equation 17), of weights w_r that begin as N(0, I)."""
    r = output_radius(n, m, std, least, alpha)
    spread = r * (r + np.sqrt(8 / np.pi) * std) + std**2
    return float(np.sqrt(2 * np.pi) * alpha**2 * least / (32 * n**3 * m * spread))


def test_the_printed_radius_is_always_negative_and_the_mended_one_solves_its_inequality() -> None:
    shift = np.sqrt(2 / np.pi) * 0.7
    for n in (2, 10, 1000):
        for m in (1, 64, 10**6):
            # λ₀ is at most m β₂²/(2α²).
            least = m * 0.7**2 / 2
            assert np.sqrt(least / (8 * n * m)) / n - shift < 0
            r = output_radius(n, m, 0.7, least)
            # n³ (m/α²)((r + s)² − s²) = λ₀/8
            assert n**3 * m * r * (r + 2 * shift) == pytest.approx(least / 8)


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
    c, layers, x = 1.7, 3, jnp.asarray(unit_points(6, 4))
    y = jnp.asarray([1.0, -1, 1, 1, -1, -1])
    model = fully_connected_network(jax.random.key(0), 4, 8, 1, layers, "he")

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
    x = jnp.asarray(unit_points(5, 4))
    first, second = (
        fully_connected_network(jax.random.key(k), 4, 16, 1, 4, "he").params for k in (0, 1)
    )
    model = fully_connected_network(jax.random.key(0), 4, 16, 1, 4, "he")
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
    n, m, d = 4, 4000, 6
    x, y = jnp.asarray(unit_points(n, d)), jnp.asarray([1.0, -1, 1, -1])
    # α = √m.
    least = float(np.linalg.eigvalsh(expected_hidden_kernel(np.asarray(x), m, 1.0))[0]) / m
    model = fully_connected_network(jax.random.key(3), d, m, 1, 2, (1.0, 1.0, 1.0))
    f = lambda w: model.apply(w, x)[:, 0] / m**0.5  # noqa: E731
    slope = jax.grad(lambda w: jnp.sum((f(w) - y) ** 2) / 2)
    rate, steps = 0.002, 1000
    w = jax.lax.fori_loop(
        0,
        steps,
        lambda _, w: jax.tree.map(lambda a, g: a - rate * g, w, slope(w)),
        model.params,
    )
    time, start = rate * steps, float(jnp.linalg.norm(f(model.params) - y))
    hidden = hidden_kernel(w[0], w[1][:, 0], x) / m
    assert float(jnp.linalg.eigvalsh(hidden)[0]) >= least / 2
    assert float(jnp.linalg.norm(f(w) - y)) ** 2 <= np.exp(-least * time) * start**2
    radii = [radius(n, m, 1.0, least, m**0.5) for radius in (output_radius, hidden_radius)]
    # R*_w(t) and R*_a(t).
    share = -np.expm1(-least * time / 2) * 2 * (n / m) ** 0.5 / least * start
    of_hidden = share * (n**0.5 + radii[0])
    of_output = share * (3 * np.log(m * n**2) ** 0.5 + radii[1])
    ways = jnp.linalg.norm(w[0] - model.params[0], axis=0), jnp.abs(w[1] - model.params[1])
    # |a_r(0)| ≤ √n β₂ is asked of every neuron: with n of 4 some are beyond.
    usual = jnp.abs(model.params[1][:, 0]) <= n**0.5
    assert not bool(usual.all())
    assert float(ways[0][usual].max()) <= of_hidden and float(ways[1].max()) <= of_output
    assert float(ways[0].max()) > 0.01 * of_hidden
    # At n = 10 and m = 2,000 lemma 9's event fails nearly always, with n e^(−n/2) = .07 printed.
    inside = norm.cdf(10**0.5) - norm.cdf(-(10**0.5))
    assert 1 - inside**2000 > 0.9 and 10 * np.exp(-5) < 0.07
