"""Kernels of infinite width against reference values, wide networks and neural-tangents."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from theory_networks import unit_points
from tiny import refuses

from cells.residual import Residual, ResidualConvolutional
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.sphere import CapAttack
from experiments.theory.studies.setting import network
from experiments.theory.tasks import on_sphere
from experiments.theory.training import input_gradient
from ntkscore.kernels.ntk import ntk
from ntkscore.model import Model

# k(t) of unit inputs with inner product t = 1, 0.5, 0, −0.5, from an independent computation.
REFERENCE = {
    ("relu", "1"): (1.158360, 0.583733, 0.253229, 0.055744),
    ("relu", "101"): (0.034474, 0.016902, 0.009762, 0.006031),
    ("sigmoid", "1"): (0.536519, 0.490914, 0.447495, 0.404077),
    ("relu", "10:swish,relu,tanh"): (0.046362, 0.022050, 0.005261, -0.006415),
}
# (κ, variance): k(X, X), k(X, X′), k(X′, X′).
CONVOLUTIONAL = {
    (1, "1/m"): (1.158360, 0.720761, 1.158360),
    (3, "1/m"): (3.344070, 2.116202, 3.280651),
    (3, "1/(κm)"): (2.975519, 1.852527, 2.919940),
    (5, "1/m"): (5.037886, 3.122858, 4.974158),
}


@pytest.mark.parametrize(("activation", "name"), REFERENCE)
def test_fully_connected_kernels_are_the_reference(activation: str, name: str) -> None:
    space = Residual(activation=activation)
    t = np.array([1, 0.5, 0, -0.5])
    got = infinite_ntk(space, name, np.stack([t, np.sqrt(1 - t**2)], 1))[0]
    np.testing.assert_allclose(got, REFERENCE[activation, name], atol=5e-6)


@pytest.mark.parametrize(("size", "variance"), CONVOLUTIONAL)
def test_convolutional_kernels_are_the_reference(size: int, variance: str) -> None:
    first, second = np.full((2, 4), 1 / np.sqrt(8)), np.array([[3, 1, 2, -1], [-1, 2, 1, 1]])
    points = np.stack([first.T, second.T / np.sqrt(22)])
    space = ResidualConvolutional(filter_size=size, hidden_variance=variance)
    kernel = infinite_ntk(space, "1", points)
    got = (kernel[0, 0], kernel[0, 1], kernel[1, 1])
    np.testing.assert_allclose(got, CONVOLUTIONAL[size, variance], atol=6e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "name"),
    [
        (Residual(width=512), "1"),
        (Residual(width=512), "010:swish,relu,tanh,softplus"),
        (Residual(width=512, activation="sigmoid"), "1"),
        (ResidualConvolutional(width=256, filter_size=3), "10"),
        (ResidualConvolutional(width=256, hidden_variance="1/(κm)", activation="swish"), "1"),
    ],
)
def test_wide_networks_are_within_three_standard_errors_of_it(space: Residual, name: str) -> None:
    """At attacked points too."""
    points = unit_points(3, 5, 3)
    points[0, 2] = 0  # an empty pixel, for those that have pixels
    points[0] /= np.linalg.norm(points[0])
    x, y, off = jnp.asarray(points, jnp.float32), jnp.asarray([1.0, -1.0, 1.0]), []

    @jax.jit
    def measured(start: Any) -> tuple[jax.Array, jax.Array]:
        model = Model(*start)
        attacked = CapAttack(0.3, 2)(input_gradient(model, model.params, y), x)
        stack = jnp.concatenate([x, attacked])
        return stack, ntk(model, stack)

    for seed in range(8):
        stack, kernel = map(np.asarray, measured(network(space, name, points, seed)))
        off.append(kernel - infinite_ntk(space, name, on_sphere(stack)))
    traces = np.trace(off, axis1=1, axis2=2)
    assert abs(traces.mean()) <= 3 * traces.std(ddof=1) / len(traces) ** 0.5


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
    with refuses(1, 3, 2, expected=1):
        infinite_ntk(Residual(), "1", points)


def test_activations_as_printed_have_no_limit() -> None:
    space = Residual(activation="tanh", activation_scaling="literal")
    with refuses("tanh", remedy="activation_scaling='width'"):
        infinite_ntk(space, "1", unit_points(2, 3))
    printed = infinite_ntk(Residual(activation_scaling="literal"), "1", unit_points(2, 3))
    np.testing.assert_array_equal(printed, infinite_ntk(Residual(), "1", unit_points(2, 3)))
