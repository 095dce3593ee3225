"""Weights that networks use in unusual ways: each implementation gives the Jacobian's kernel."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tiny import refuses, scored

import ntkscore
from attacks.core import direction
from ntkscore import Model, gradient_features, ntk, stack

RNG = np.random.default_rng(0)


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


@partial(jax.jit, static_argnums=0)
def jacobian_kernel(apply: Callable, params: Any, points: jax.Array) -> jax.Array:
    one = lambda x: jax.grad(lambda p: apply(p, x[None]).sum())(params)  # noqa: E731
    leaves = jax.tree.leaves(jax.vmap(one)(points))
    rows = jnp.concatenate([leaf.reshape(len(points), -1) for leaf in leaves], 1)
    return jnp.matmul(rows, rows.T, precision="highest")


X, SQUARE, WIDE = draw(4, 6), draw(6, 6), draw(6, 3)
IMAGES = jnp.asarray(RNG.uniform(size=(3, 8, 8, 3)), jnp.float32)


def pointwise(kernel: jax.Array, x: jax.Array) -> jax.Array:
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=names)


def image_and_patches(kernel: jax.Array, x: jax.Array) -> jax.Array:
    """The same kernel at an image, and at its four strips as if they were images."""
    strips = jnp.tanh(pointwise(kernel, x)).reshape(4 * len(x), 2, 8, 3)
    return pointwise(kernel, strips).reshape(len(x), -1, 3).mean(1)


def barred(w: jax.Array, x: jax.Array) -> jax.Array:
    weight, other = lax.optimization_barrier((w, jnp.ones_like(w)))
    return x @ weight + jnp.tanh(x @ other)


def no_layers(p: dict, x: jax.Array) -> jax.Array:
    after, _ = lax.scan(lambda x, layer: (x @ layer, x), x, p["layers"])
    return after @ p["head"]


CASES = {
    "frozen": (
        lambda p, x: jnp.tanh(x @ lax.stop_gradient(p["a"])) @ p["b"],
        {"a": SQUARE, "b": WIDE},
    ),
    "left and right": (lambda w, x: (w @ jnp.tanh(x @ w).T).T, SQUARE),
    "rounded": (
        lambda p, x: jnp.tanh(x @ p["a"].astype(jnp.int8).astype(jnp.float32)) @ p["b"],
        {"a": 3 * SQUARE, "b": WIDE},
    ),
    "mask": (
        lambda p, x: jnp.where(p["mask"] > 0, x @ p["w"], jnp.float32(0)),
        {"mask": WIDE[0], "w": WIDE},
    ),
    "times zero": (
        lambda p, x: x @ (jnp.float32(0) * p["a"]) + jnp.tanh(x @ p["b"]),
        {"a": WIDE, "b": WIDE + 1},
    ),
    "barrier": (barred, WIDE),
    "no layers": (no_layers, {"layers": jnp.zeros((0, 6, 6)), "head": WIDE}),
}


@pytest.mark.parametrize("implementation", ["layerwise", "contraction", "ntvp"])
@pytest.mark.parametrize("case", CASES)
def test_kernels_are_the_jacobians(case: str, implementation: str) -> None:
    apply, params = CASES[case]
    got = ntk(Model(apply, params), X, implementation=implementation)
    np.testing.assert_allclose(got, jacobian_kernel(apply, params, X), rtol=1e-5, atol=1e-5)


def test_a_kernel_that_meets_an_image_and_its_patches() -> None:
    kernel = draw(1, 1, 3, 3)
    got = ntk(Model(image_and_patches, kernel), IMAGES)
    want = jacobian_kernel(image_and_patches, kernel, IMAGES)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_weight_times_zero_gives_every_measure_a_number() -> None:
    apply, params = CASES["times zero"]
    pixels, config = RNG.uniform(size=(4, 6)), ntkscore.Config(proxies=True)
    rows = scored(Model(apply, params), pixels, np.array([0, 1, 2, 0]), config)
    assert "not_finite" not in set(rows["status"])


def test_running_statistics_are_no_parameters_for_any_implementation() -> None:
    def apply(p: dict, x: jax.Array) -> jax.Array:
        return jax.nn.relu((x @ p["w"] - p["mean"]) * lax.rsqrt(p["var"] + 1e-5))

    params = {"w": WIDE, "mean": WIDE[0], "var": jnp.abs(WIDE[1]) + 1}
    alone = jacobian_kernel(lambda w, x: apply({**params, "w": w}, x), WIDE, X)
    for implementation in ("layerwise", "contraction", "ntvp"):
        got = ntk(Model(apply, params), X, implementation=implementation)
        np.testing.assert_allclose(got, alone, rtol=1e-5, atol=1e-5)


def test_an_empty_set_of_parameters_has_a_kernel_of_zeros() -> None:
    model = Model(lambda p, x: x * p["scale"], {"scale": draw(6)})
    for implementation in ("layerwise", "contraction", "ntvp"):
        got = ntk(model, X, parameters="conv_linear", implementation=implementation)
        np.testing.assert_array_equal(got, np.zeros((4, 4)))
    features = gradient_features(model, X, 8, parameters="conv_linear")
    np.testing.assert_array_equal(features, np.zeros((4, 8)))


def test_each_set_of_coupled_points_is_a_batch_of_its_own() -> None:
    model = Model(lambda w, x: (x - x.mean(0)) @ w, WIDE, coupled=True)
    pixels, labels = RNG.uniform(size=(4, 6)).astype(np.float32), np.array([0, 1, 2, 0])
    clean = stack(model, pixels, labels, "fgsm", [8 / 255, 0.1]).kernel("clean", radius=1)
    np.testing.assert_allclose(clean, ntk(model, pixels), rtol=1e-5)


def test_whole_numbers_are_pixels_and_one_radius_is_enough() -> None:
    model = Model(lambda w, x: jnp.tanh(x @ w), WIDE)
    pixels, labels = RNG.integers(0, 2, (4, 6)), np.array([0, 1, 2, 0])
    whole = stack(model, pixels, labels, "fgsm", 0.1)
    float_ = stack(model, pixels.astype(np.float32), labels, "fgsm", [0.1])
    np.testing.assert_array_equal(whole.gram, float_.gram)
    assert (whole.kernel("robust") != whole.kernel("clean")).any()


def test_what_does_not_exist_is_refused() -> None:
    model = Model(lambda w, x: x @ w, WIDE)
    pixels, labels = RNG.uniform(size=(4, 6)), np.array([0, 1, 2, 0])
    for name in ("output", "parameters", "implementation"):
        with refuses("x", expected=name):
            stack(model, pixels, labels, "fgsm", [0.1], **{name: "x"})
    found = stack(model, pixels, labels, "fgsm", [0.1])
    with refuses(1, expected=("radius", 0)):
        found.kernel("clean", radius=1)
    with refuses("clean", expected=("joint_clean", "joint_robust")):
        ntkscore.joint_kernel(np.asarray(found.gram[0]), "clean", 0.5, 4)
    with refuses(1, expected="cross-entropy"):
        scored("323133", np.asarray(IMAGES), np.zeros(3, int))


def test_a_direction_of_the_smallest_gradients_has_length_one() -> None:
    gradient = jnp.asarray([[3e-30, -4e-30], [0, 0], [3e30, 4e30]], jnp.float32)
    unit = [[0.6, -0.8], [0, 0], [0.6, 0.8]]
    np.testing.assert_allclose(direction(gradient, "l2"), unit, rtol=1e-6)


@pytest.mark.parametrize("implementation", ["auto", "contraction"])
def test_one_point_does_not_hide_that_others_matter(implementation: str) -> None:
    model = Model(lambda w, x: (x - x.mean(0)) @ w, WIDE)
    alone = ntk(model, X[:1], implementation=implementation)
    assert alone.shape == (1, 1)
    with refuses(remedy="coupled=True"):
        ntk(model, X, implementation=implementation)
    with refuses(remedy="coupled=True"):
        ntk(model, X[jnp.array([0, 0, 1])], implementation=implementation)


def test_nothing_is_refused() -> None:
    model = Model(lambda w, x: x.reshape(len(x), -1) @ w, draw(192, 3))
    with refuses((0, 8, 8, 3), expected="points"):
        ntk(model, IMAGES[:0])
    with refuses("none", expected="radius"):
        stack(model, IMAGES, np.arange(3), "fgsm", [])
