"""Kernels of networks that nothing here was written for, against plain Jacobians."""

import jax
import jax.numpy as jnp
import pytest
from networks import EXACT, error
from zoo import NETWORKS
from zoo.networks import images_of, plain_kernel

from ntkscore.kernels.ntk import ntk

pytestmark = pytest.mark.slow

# Steps of a loop, one for each pixel: few enough to unroll, and too many.
SIDES = {"pixel-lstm": (3, 9)}
# Of networks that differ in their library, their normalisation or the order of their layers, one is
# enough for most days.
THOROUGH = (
    *("resnet18-batch", "nnx-resnet18", "wide-resnet", "wide-resnet-batch", "scanned-vit"),
    *("repeated", "standardised", "row-gru", "equinox-gru", "mixer"),
)
CASES = [
    pytest.param(name, side, marks=[pytest.mark.thorough] * (name in THOROUGH))
    for name in NETWORKS
    for side in SIDES.get(name, (8,))
]


@pytest.mark.parametrize(("name", "side"), CASES)
def test_the_kernel_is_that_of_the_jacobian(double, name: str, side: int) -> None:
    # Flax's normalisations ask which type float32 and float64 share.
    with jax.numpy_dtype_promotion("standard"):
        points = images_of(3, side, jnp.float64)
        model = NETWORKS[name](points)
        assert error(ntk(model, points), plain_kernel(model, points)) < EXACT
