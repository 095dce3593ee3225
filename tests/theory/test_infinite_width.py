"""Kernels of infinite width against reference values, wide networks and neural-tangents."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cells import Task
from cells.residual import Residual, ResidualConvolutional
from cells.residual.networks import ResidualSpace
from experiments.theory.infinite_width import deep_ntk, infinite_ntk
from experiments.theory.networks import deep_network
from experiments.theory.tasks import on_sphere
from ntkscore.errors import InputError
from ntkscore.kernels.gram import ntk

# k(t) of unit inputs with inner product t = 1, 0.5, 0, −0.5, from an independent computation.
REFERENCE = {
    ("relu", "1"): (1.158360, 0.583733, 0.253229, 0.055744),
    ("relu", "0"): (0.083333, 0.037541, 0.019047, 0.009552),
    ("relu", "101"): (0.034474, 0.016902, 0.009762, 0.006031),
    ("relu", "111"): (1.262090, 0.681920, 0.348905, 0.149923),
    ("leaky_relu", "1"): (1.156987, 0.582943, 0.248315, 0.044207),
    ("tanh", "1"): (0.94570, 0.415813, 0, -0.415813),
    ("sigmoid", "1"): (0.536519, 0.490914, 0.447495, 0.404077),
    ("swish", "1"): (0.784351, 0.367510, 0.057189, -0.154676),
    ("relu", "10:swish,relu,tanh"): (0.046362, 0.022050, 0.005261, -0.006415),
}
# (κ, variance): k(X, X), k(X, X′), k(X′, X′).
CONVOLUTIONAL = {
    (1, "1/m"): (1.158360, 0.720761, 1.158360),
    (3, "1/m"): (3.344070, 2.116202, 3.280651),
    (3, "1/(κm)"): (2.975519, 1.852527, 2.919940),
    (5, "1/m"): (5.037886, 3.122858, 4.974158),
}


def at_angle(t: float) -> np.ndarray:
    return np.array([[1.0, 0.0], [t, np.sqrt(1 - t**2)]])


def unit_points(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return on_sphere(np.random.default_rng(seed).standard_normal((count, *shape)))


@pytest.mark.parametrize(("activation", "name"), REFERENCE)
def test_fully_connected_kernels_are_the_reference(activation: str, name: str) -> None:
    space = Residual(activation=activation)
    got = [infinite_ntk(space, name, at_angle(t))[0, 1] for t in (1, 0.5, 0, -0.5)]
    np.testing.assert_allclose(got, REFERENCE[activation, name], atol=5e-6)


@pytest.mark.parametrize(("size", "variance"), CONVOLUTIONAL)
def test_convolutional_kernels_are_the_reference(size: int, variance: str) -> None:
    first, second = np.full((2, 4), 1 / np.sqrt(8)), np.array([[3, 1, 2, -1], [-1, 2, 1, 1]])
    points = np.stack([first.T, second.T / np.sqrt(22)])
    space = ResidualConvolutional(filter_size=size, hidden_variance=variance)
    kernel = infinite_ntk(space, "1", points)
    got = (kernel[0, 0], kernel[0, 1], kernel[1, 1])
    np.testing.assert_allclose(got, CONVOLUTIONAL[size, variance], atol=6e-7)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("space", "name"),
    [
        (Residual(activation="tanh"), "11"),
        (Residual(), "010:swish,relu,tanh,softplus"),
        (Residual(activation="sigmoid"), "1"),
        (ResidualConvolutional(filter_size=3), "10"),
        (ResidualConvolutional(filter_size=3, hidden_variance="1/(κm)", activation="swish"), "1"),
    ],
)
def test_wide_networks_come_to_it(space: ResidualSpace, name: str) -> None:
    """The mean over draws of the width-m kernel, whose deviation shrinks as 1/√m."""
    points = unit_points(4, 5, 3)
    points[0, 2] = 0  # an empty pixel, for those that have pixels
    points[0] /= np.linalg.norm(points[0])
    limit = infinite_ntk(space, name, points)

    def deviation(width: int, draws: int) -> tuple[float, float]:
        wide = type(space)(**(space.choices() | {"width": width})).on(Task((5, 3), 1))
        kernels = []
        for seed in range(draws):
            model = wide.network(name, points, seed)
            kernels.append(np.asarray(ntk(model, points.astype(np.float32))))
        size = np.linalg.norm(limit)
        each = np.mean([np.linalg.norm(k - limit) for k in kernels]) / size
        return float(each), float(np.linalg.norm(np.mean(kernels, 0) - limit) / size)

    narrow, _ = deviation(32, 12)
    wide, bias = deviation(512, 12)
    assert wide < 0.45 * narrow  # 1/4 in expectation
    assert bias < 0.6 * wide  # 1/√12 of it in expectation


def test_neural_tangents_agrees_where_there_are_no_skips(nt) -> None:
    from neural_tangents import stax

    layers = [stax.Dense(1, W_std=2**0.5), stax.Relu(), stax.Dense(1), stax.Relu()]
    *_, kernel = stax.serial(*layers, stax.Dense(1, W_std=1 / 3))
    points = unit_points(5, 2)
    expected = np.asarray(kernel(points, points, "ntk"))
    np.testing.assert_allclose(infinite_ntk(Residual(), "0", points), expected, rtol=1e-4)


def test_points_off_the_sphere_are_refused() -> None:
    points = unit_points(3, 4)
    points[1] *= 2
    with pytest.raises(InputError, match=r"^expected points of length 1, got 1 of 3 .* length 2;"):
        infinite_ntk(Residual(), "1", points)


def test_activations_as_printed_have_no_limit() -> None:
    space = Residual(activation="tanh", activation_scaling="literal")
    with pytest.raises(InputError, match=r"^expected activations scaled by the width, got tanh"):
        infinite_ntk(space, "1", unit_points(2, 3))
    printed = infinite_ntk(Residual(activation_scaling="literal"), "1", unit_points(2, 3))
    np.testing.assert_array_equal(printed, infinite_ntk(Residual(), "1", unit_points(2, 3)))


@pytest.mark.parametrize("hidden", [1, 2, 3])
def test_the_deep_network_s_kernel_approaches_its_limit(hidden: int) -> None:
    points = unit_points(6, 4)
    limit = deep_ntk(points, hidden)

    @partial(jax.jit, static_argnames="width")
    def kernel(key: jax.Array, width: int) -> jax.Array:
        model = deep_network(key, 4, width, hidden)
        return ntk(model, jnp.asarray(points, jnp.float32)) / width

    far = {}
    for width in (32, 512):
        drawn = [kernel(jax.random.key(seed), width) for seed in range(12)]
        apart = [np.linalg.norm(each - limit) / np.linalg.norm(limit) for each in drawn]
        far[width] = np.mean(apart)
        assert np.linalg.norm(np.mean(drawn, 0) - limit) / np.linalg.norm(limit) < 4 * far[width]
    # A sixteenth of the width, four times as far.
    assert far[32] / far[512] == pytest.approx(4, rel=0.4)
    with pytest.raises(InputError, match="points of length 1"):
        deep_ntk(2 * points, hidden)
