"""Residual networks against equation 1 as a plain loop, and what the space refuses."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from networks import error
from scipy import special

from cells import Task
from cells.errors import InputError
from cells.residual import ACTIVATIONS, Residual, Skips, logits
from ntkscore.kernels.gram import ntk

TASK = Task((4, 4, 3), 5)
NETWORKS = [
    *((pattern, "relu") for pattern in ("0", "1", "010", "0110", "1111")),
    *(("01", activation) for activation in ACTIVATIONS),
]
PLAIN = {
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "swish": lambda z: z * special.expit(z),
    "softplus": lambda z: np.log1p(np.exp(z)),
}

pytestmark = pytest.mark.usefixtures("quick_compilation")


def images(count: int = 3) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).uniform(size=(count, *TASK.image_shape)))


def equation_1(weights: list[Any], images: Any, pattern: str, activation: str) -> np.ndarray:
    """The logits, one point after the other."""
    weights = [np.asarray(weight) for weight in weights]
    width, layers = weights[0].shape[1], len(weights)
    sigma = lambda z: PLAIN[activation](np.sqrt(width) * z) / np.sqrt(width)  # noqa: E731
    rows = []
    for image in np.asarray(images):
        x = image.ravel() / np.linalg.norm(image)
        f = sigma(weights[0].T @ x)
        for weight, alpha in zip(weights[1:-1], pattern, strict=True):
            f = sigma(weight.T @ f) / layers + int(alpha) * f
        rows.append(weights[-1].T @ f)
    return np.array(rows)


def network(pattern: str, activation: str = "relu", width: int = 8) -> Any:
    """The drawn network of a pattern in float64, as a model."""
    space = Residual(task=TASK, width=width, activation=activation)
    skips = space.parse(pattern)
    shape = space.shape(skips)
    weights = space.draw(shape, 1, jnp.float64)
    return space.model(shape, weights, jnp.asarray(space.encode(skips)), images())


@pytest.mark.parametrize(("pattern", "activation"), NETWORKS)
def test_logits_are_those_of_equation_1(double, pattern: str, activation: str) -> None:
    model = network(pattern, activation)
    assert [weight.shape for weight in model.params] == [(48, 8), *[(8, 8)] * len(pattern), (8, 5)]
    expected = equation_1(model.params, images(), pattern, activation)
    assert error(jax.jit(model.logits)(images()), expected) < 1e-12


def test_every_skip_counts(double) -> None:
    seen = {
        tuple(np.asarray(network("".join(bits)).logits(images())).ravel())
        for bits in itertools.product("01", repeat=3)
    }
    assert len(seen) == 8


def test_a_points_length_does_not_matter(double) -> None:
    model = network("01")
    assert error(model.logits(7 * images()), model.logits(images())) < 1e-12


@pytest.mark.parametrize("activation", ["relu", "tanh", "swish"])
def test_a_black_image_has_zero_logits_and_a_finite_gradient(double, activation: str) -> None:
    model, black = network("01", activation), jnp.zeros((2, *TASK.image_shape))
    black = black.at[1].set(images(1)[0])
    np.testing.assert_array_equal(model.logits(black)[0], 0)
    loss = lambda x, weights: jnp.sum(jnp.sin(model.apply(weights, x)))  # noqa: E731
    slope, in_weights = jax.jit(jax.grad(loss, argnums=(0, 1)))(black, model.params)
    for leaf in (slope, *in_weights):
        assert np.all(np.isfinite(leaf)) and np.any(leaf != 0)


@pytest.mark.slow
def test_weights_are_normal_with_variance_1_over_the_width() -> None:
    space = Residual(task=TASK, width=256)
    weights = space.draw(4, 0, jnp.float32)
    for weight in weights:
        assert float(jnp.std(weight)) == pytest.approx(1 / 16, rel=0.05)
        assert abs(float(jnp.mean(weight))) < 0.005
        assert float(jnp.max(jnp.abs(weight))) > 2.5 / 16
    for again, other, weight in zip(
        space.draw(4, 0, jnp.float32), space.draw(4, 1, jnp.float32), weights, strict=True
    ):
        np.testing.assert_array_equal(again, weight)
        assert np.all(other != weight)


def test_both_precisions_share_their_weights(double) -> None:
    space = Residual(task=TASK, width=8)
    for single, exact in zip(
        space.draw(3, 0, jnp.float32), space.draw(3, 0, jnp.float64), strict=True
    ):
        assert (single.dtype, exact.dtype) == (jnp.float32, jnp.float64)
        np.testing.assert_array_equal(single, exact)


def test_the_kernel_counts_every_layer(double) -> None:
    model = network("10")
    reading = lambda weights: jnp.sum(model.apply(weights, images()), 1)  # noqa: E731
    jacobian = jax.jit(jax.jacrev(reading))(model.params)
    rows = np.concatenate([np.reshape(leaf, (3, -1)) for leaf in jacobian], 1)
    assert error(ntk(model, images()), rows @ rows.T) < 1e-10


def test_architectures_are_all_patterns_of_the_depth() -> None:
    space = Residual(depth=5, task=TASK)
    patterns = [skips.pattern for skips in space.architectures("all")]
    assert patterns == ["".join(bits) for bits in itertools.product("01", repeat=3)]
    assert space.architectures("distinct") == space.architectures("all")
    assert {space.shape(skips) for skips in space.architectures("all")} == {5}
    with pytest.raises(InputError, match="got 'half'; name them, or write a method"):
        space.architectures("half")


def test_names_costs_and_encoding_of_a_pattern() -> None:
    space = Residual(width=8, task=TASK)
    skips = space.parse(" 0110 ")
    assert skips == Skips("0110") == space.parse(skips)
    assert skips.layers == 6
    assert space.identity(skips) == {"skips": "0110"}
    assert space.parse(space.key(skips)) == skips
    params = sum(weight.size for weight in space.draw(space.shape(skips), 0, jnp.float32))
    assert space.costs(skips) == {"params": params, "flops": params, "shortcuts": 2}
    np.testing.assert_array_equal(space.encode(skips), [0, 1, 1, 0])
    assert space.columns == {
        "space": "residual",
        "depth": 6,
        "width": 8,
        "activation": "relu",
    }


@pytest.mark.parametrize("text", ["", "0120", "01a", "0 1", 12])
def test_what_is_no_pattern_is_refused(text: Any) -> None:
    with pytest.raises(
        InputError,
        match=rf"^expected a skip pattern of zeros and ones such as 0110, got '{text}'; write one "
        "digit for each layer between the first and the last$",
    ):
        Residual().parse(text)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"depth": 2}, "expected depth to be at least 3, got 2; raise it"),
        ({"width": 0}, "expected width to be at least 1, got 0; raise it"),
        (
            {"activation": "gelu"},
            "expected activation to be one of relu, leaky_relu, tanh, sigmoid, swish, softplus, "
            "got 'gelu'; choose one of them",
        ),
    ],
)
def test_choices_outside_their_lines_are_refused(choices: dict, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        Residual(**choices)


def test_skips_of_another_depth_do_not_fit_the_weights() -> None:
    weights = Residual(task=TASK, width=8).draw(4, 0, jnp.float32)
    with pytest.raises(ValueError):
        logits(weights, images().astype(jnp.float32), jnp.asarray([1, 0, 1], jnp.int32))
