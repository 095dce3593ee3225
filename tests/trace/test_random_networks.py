"""Kernels of networks drawn at random are those of the plain Jacobian, in float64."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from random_networks import IMAGES, VECTORS, Network, network

from ntkscore import Model, ntk

EXACT = 1e-9
drawn = st.builds(
    network,
    st.lists(st.sampled_from(sorted(IMAGES)), max_size=2),
    st.lists(st.sampled_from(sorted(VECTORS)), min_size=1, max_size=4),
    st.integers(0, 99),
)


def plain_kernel(net: Network) -> np.ndarray:
    """Σ over the parameters, one point after the other."""
    slope = jax.jit(jax.grad(lambda params, x: net.apply(params, x[None]).sum()))
    rows = []
    for point in net.points:
        leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(slope(net.params, point)))
        rows.append(np.concatenate([a.ravel() for k, a in leaves if k[-1].key not in net.held]))
    return np.stack(rows) @ np.stack(rows).T


WAYS: list[dict[str, Any]] = [{}, {"implementation": "contraction"}, {"memory": 1}]


def compare(net: Network, ways: list[dict[str, Any]] = WAYS) -> None:
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        want = plain_kernel(net)
        for options in ways:
            got: Any = ntk(Model(net.apply, net.params), net.points, check=False, **options)
            scale = np.abs(want).max()
            assert np.abs(got - want).max() <= EXACT * scale, (net.names, options)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.slow
@seed(0)
@settings(max_examples=20)
@given(drawn, st.sampled_from(WAYS))
def test_kernels_of_random_networks_are_the_jacobians(net: Network, way: dict[str, Any]) -> None:
    compare(net, [way])


@pytest.mark.thorough
@seed(1)
@settings(max_examples=300)
@given(drawn)
def test_kernels_of_many_random_networks_are_the_jacobians(net: Network) -> None:
    compare(net)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*IMAGES, *VECTORS])
def test_the_kernel_of_one_operation_is_the_jacobians(name: str) -> None:
    compare(network([name], ["dense"], 0) if name in IMAGES else network([], [name], 0))
