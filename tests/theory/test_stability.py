"""Perturbation stability of random networks: exact moments, and the same function trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ntkscore.errors import InputError
from ntkscore.measures.perturbations import displacements
from ntkscore.theory.networks import INITIALISATIONS, fully_connected_network
from ntkscore.theory.stability import (
    gain,
    lazy_bound,
    second_moment,
    stability_at_initialisation,
)


def test_a_gated_product_has_its_chi_squared_moments() -> None:
    q, rng = 12, np.random.default_rng(0)
    h1, h2 = rng.standard_normal((2, 5))
    w = rng.standard_normal((20_000, q, 5)) * np.sqrt(2 / q)
    v = (w @ h1 > 0) * (w @ h2)
    scaled = q * (v**2).sum(1) / (2 * h2 @ h2)
    assert scaled.mean() == pytest.approx(q / 2, rel=0.02)
    assert (scaled**2).mean() == pytest.approx(q**2 / 4 + 5 * q / 4, rel=0.03)


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
    # The bound's largest width is at L³/2, .38 L³/√o above its floor there.
    widths = np.arange(4, 400)
    floor = lazy_bound("ntk", 10, 10**6, 1, 4)
    values = [lazy_bound("ntk", 10, int(m), 1, 4) / floor for m in widths]
    assert widths[np.argmax(values)] == pytest.approx(32, abs=1)
    assert max(values) - 1 == pytest.approx(0.38 * 64 / 1, rel=0.02)


def test_scaled_weights_and_rates_train_the_same_function() -> None:
    c, rate = 1.7, 0.05
    with jax.enable_x64(True):
        model = fully_connected_network(jax.random.key(0), 4, 8, 1, 3, dtype=jnp.float64)
        x = jax.random.normal(jax.random.key(1), (6, 4), jnp.float64)
        y = jnp.sign(x[:, 0])

        def f(weights: list, factor: float) -> jax.Array:
            return factor**3 * model.apply(weights, x)[:, 0]

        def step(weights: list, factor: float) -> list:
            loss = lambda w: jnp.mean((f(w, factor) - y) ** 2)  # noqa: E731
            slopes = jax.grad(loss)(weights)
            return [w - rate / factor**2 * g for w, g in zip(weights, slopes, strict=True)]

        plain, scaled = model.params, [w / c for w in model.params]
        for _ in range(20):
            plain, scaled = jax.jit(step)(plain, 1.0), jax.jit(step)(scaled, c)
        np.testing.assert_allclose(f(plain, 1.0), f(scaled, c), atol=1e-13)


def test_networks_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2 layers, got 1"):
        fully_connected_network(jax.random.key(0), 4, 8, 1, 1)
    with pytest.raises(InputError, match="initialisation of lecun, he, ntk, got 'torch'"):
        fully_connected_network(jax.random.key(0), 4, 8, 1, 3, "torch")
