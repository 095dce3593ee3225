"""Residual networks against equations 1 and 2 as plain loops, and what the spaces refuse."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from networks import error
from scipy import special
from tiny import refuses

from cells.residual import ACTIVATIONS, Residual, ResidualConvolutional, Skips
from ntkscore import Task
from ntkscore.kernels.ntk import ntk

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


def images(count: int = 3) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).uniform(size=(count, *TASK.image_shape)))


def equation_1(
    weights: list[Any], images: Any, pattern: str, names: Any, literal: bool = False
) -> np.ndarray:
    """The logits, one point after the other."""
    weights = [np.asarray(weight) for weight in weights]
    scale, layers = 1 if literal else np.sqrt(weights[0].shape[1]), len(weights)
    sigmas = [lambda z, name=name: PLAIN[name](scale * z) / scale for name in names]
    rows = []
    for image in np.asarray(images):
        x = image.ravel() / np.linalg.norm(image)
        f = sigmas[0](weights[0].T @ x)
        for weight, alpha, sigma in zip(weights[1:-1], pattern, sigmas[1:], strict=True):
            f = sigma(weight.T @ f) / layers + int(alpha) * f
        rows.append(weights[-1].T @ f)
    return np.array(rows)


def equation_2(weights: list[Any], images: Any, pattern: str) -> np.ndarray:
    """The logits of a convolutional network of ReLUs, channel by channel as printed."""
    weights, rows = [np.asarray(weight) for weight in weights], []
    size, _, m = weights[0].shape

    def convolved(w: np.ndarray, x: np.ndarray) -> np.ndarray:
        """(W ∗ X)[i, j] = Σ_u Σ_v W[u, i, v] X[v, j + u − (κ+1)/2], u from 1."""
        z = np.zeros((w.shape[2], x.shape[1]))
        for j in range(x.shape[1]):
            for u in range(1, size + 1):
                place = j + u - (size + 1) // 2
                if 0 <= place < x.shape[1]:
                    z[:, j] += w[u - 1].T @ x[:, place]
        return z

    for image in np.asarray(images):
        x = image.reshape(-1, image.shape[-1]).T / np.linalg.norm(image)
        f = np.maximum(convolved(weights[0], x), 0)
        for weight, alpha in zip(weights[1:-1], pattern, strict=True):
            f = np.maximum(convolved(weight, f), 0) / len(weights) + int(alpha) * f
        last = weights[-1].reshape(x.shape[1], m, -1)
        rows.append(np.einsum("ij,jio->o", f, last))
    return np.array(rows)


def network(pattern: str, activation: str = "relu", space: Any = None) -> Any:
    """The drawn network of a pattern in float64, as a model."""
    space = space or Residual(task=TASK, width=8, activation=activation)
    skips = space.parse(pattern)
    shape = space.shape(skips)
    weights = space.draw(shape, 1, jnp.float64)
    return space.model(shape, weights, jnp.asarray(space.encode(skips)), images())


@pytest.mark.parametrize(("pattern", "activation"), NETWORKS)
def test_logits_are_those_of_equation_1(double, pattern: str, activation: str) -> None:
    model = network(pattern, activation)
    assert [weight.shape for weight in model.params] == [(48, 8), *[(8, 8)] * len(pattern), (8, 5)]
    expected = equation_1(model.params, images(), pattern, [activation] * (len(pattern) + 1))
    assert error(jax.jit(model.logits)(images()), expected) < 1e-12


def test_every_layer_may_have_an_activation_of_its_own(double) -> None:
    names = ["swish", "relu", "tanh"]
    model = network(f"10:{','.join(names)}")
    expected = equation_1(model.params, images(), "10", names)
    assert error(jax.jit(model.logits)(images()), expected) < 1e-12


def test_scalings_as_printed_and_as_in_the_proofs(double) -> None:
    printed = network(
        "10", space=Residual(task=TASK, width=8, activation="tanh", activation_scaling="literal")
    )
    expected = equation_1(printed.params, images(), "10", ["tanh"] * 3, literal=True)
    assert error(jax.jit(printed.logits)(images()), expected) < 1e-12
    lazy = network("10", space=Residual(task=TASK, width=8, output_scale="sqrt_width"))
    usual = network("10").logits(images())
    assert error(lazy.logits(images()), np.sqrt(8) * usual) < 1e-12


@pytest.mark.parametrize("size", [1, 3, 5])
def test_convolutional_logits_are_those_of_equation_2(double, size: int) -> None:
    space = ResidualConvolutional(task=TASK, width=4, filter_size=size)
    model = network("10", space=space)
    shapes = [weight.shape for weight in model.params]
    assert shapes == [(size, 3, 4), (size, 4, 4), (size, 4, 4), (64, 5)]
    expected = equation_2(model.params, images(), "10")
    assert error(jax.jit(model.logits)(images()), expected) < 1e-12
    skips = space.parse("10")
    assert space.costs(skips)["params"] == sum(weight.size for weight in model.params)


def test_hidden_filters_have_the_variance_that_is_asked_for() -> None:
    for name, variance in (("1/m", 1 / 64), ("1/(κm)", 1 / 320)):
        space = ResidualConvolutional(task=TASK, width=64, filter_size=5, hidden_variance=name)
        first, hidden, last = space.draw(("relu", "relu"), 0, jnp.float32)
        assert float(jnp.var(hidden)) == pytest.approx(variance, rel=0.05)
        assert float(jnp.var(last)) == pytest.approx(1 / 64, rel=0.05)
        assert float(jnp.var(first)) == pytest.approx(1 / 64, rel=0.1)


def test_activations_are_what_their_constants_say() -> None:
    z = np.linspace(-30, 30, 600_001)
    step = z[1] - z[0]
    for name, sigma in ACTIVATIONS.items():
        np.testing.assert_allclose(sigma(z), PLAIN[name](z), atol=1e-12)
        slopes = np.diff(sigma(z)) / step
        steepest = max(np.abs(slopes).max(), abs(float(sigma(np.zeros(1))[0])))
        assert sigma.lipschitz == pytest.approx(steepest, rel=1e-4)
        if np.isfinite(sigma.curvature):
            assert sigma.curvature == pytest.approx(np.abs(np.diff(slopes)).max() / step, rel=1e-3)
        at_zero = float(jax.grad(lambda z, sigma=sigma: sigma(z))(0.0))
        assert sigma.slope_at_zero == pytest.approx(at_zero)


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
    shape = ("relu",) * 3
    weights = space.draw(shape, 0, jnp.float32)
    for weight in weights:
        assert float(jnp.std(weight)) == pytest.approx(1 / 16, rel=0.05)
        assert abs(float(jnp.mean(weight))) < 0.005
        assert float(jnp.max(jnp.abs(weight))) > 2.5 / 16
    for again, other, weight in zip(
        space.draw(shape, 0, jnp.float32), space.draw(shape, 1, jnp.float32), weights, strict=True
    ):
        np.testing.assert_array_equal(again, weight)
        assert np.all(other != weight)


def test_both_precisions_share_their_weights(double) -> None:
    space, shape = Residual(task=TASK, width=8), ("relu",) * 2
    for single, exact in zip(
        space.draw(shape, 0, jnp.float32), space.draw(shape, 0, jnp.float64), strict=True
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
    assert {space.shape(skips) for skips in space.architectures("all")} == {("relu",) * 4}
    with refuses("half", expected=("distinct", "all")):
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
        "activation_scaling": "width",
        "output_scale": "literal",
    }


def test_a_network_has_one_name() -> None:
    named = "10:relu,relu,relu"
    assert [Residual().key(Residual().parse(name)) for name in (named, "10")] == ["10", "10"]
    other = Residual(activation="tanh")
    assert other.key(other.parse(named)) == named and other.parse("10") != other.parse(named)


def test_activations_are_part_of_a_name() -> None:
    space = Residual(width=8, task=TASK)
    skips = space.parse("01: tanh, relu,relu")
    assert space.key(skips) == "01:tanh,relu,relu"
    assert space.parse(space.key(skips)) == skips
    assert space.activations_of(skips) == ("tanh", "relu", "relu")
    assert [str(near) for near in space.neighbours(skips)] == [
        "11:tanh,relu,relu",
        "00:tanh,relu,relu",
    ]


@pytest.mark.parametrize(
    ("text", "got", "expected"),
    [("01:tanh", (1, "01:tanh"), 3), ("01:tanh,gelu,relu", ("gelu",), ("relu", "softplus"))],
)
def test_activations_that_do_not_fit_are_refused(text: str, got: tuple, expected: Any) -> None:
    with refuses(*got, expected=expected):
        Residual().parse(text)


@pytest.mark.parametrize("text", ["", "0120", "01a", "0 1", 12])
def test_what_is_no_pattern_is_refused(text: Any) -> None:
    with refuses(text, expected="0110"):
        Residual().parse(text)


@pytest.mark.parametrize(
    ("choices", "got", "expected"),
    [
        ({"depth": 2}, 2, ("depth", 3)),
        ({"width": 0}, 0, ("width", 1)),
        ({"activation": "gelu"}, "gelu", ("activation", "relu", "softplus")),
    ],
)
def test_choices_outside_their_lines_are_refused(choices: dict, got: object, expected: Any) -> None:
    with refuses(got, expected=expected):
        Residual(**choices)


def test_an_even_filter_is_refused() -> None:
    with refuses(4, expected="filter_size"):
        ResidualConvolutional(filter_size=4)


def test_skips_of_another_depth_do_not_fit_the_weights() -> None:
    space = Residual(task=TASK, width=8)
    shape = ("relu",) * 3
    weights = space.draw(shape, 0, jnp.float32)
    model = space.model(shape, weights, jnp.asarray([1, 0, 1], jnp.int32), images())
    with pytest.raises(ValueError):
        model.logits(images().astype(jnp.float32))
