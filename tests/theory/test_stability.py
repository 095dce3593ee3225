"""Perturbation stability of random networks, and two trained layers: kernels and bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
