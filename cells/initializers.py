"""Initialisers of weights.

Convolution kernels are (height, width, in, out), the linear kernel is (in, out); fan-in is
everything but the last axis. Normalisation scales start at 1 and shifts at 0 in every scheme.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attacks.lazy import Array, jax

Draw = Callable[[Array, tuple[int, ...], Any], Array]


@dataclass(frozen=True)
class Initializer:
    """A scheme that draws kernels and the linear bias, and scales kernels in the forward pass.

    Attributes:
        kernel: draws a convolution or linear kernel.
        bias_bound: half-width of the uniform linear bias, as a function of its fan-in.
        gain: factor on kernels in the forward pass, as a function of their fan-in.
    """

    kernel: Draw
    bias_bound: Callable[[int], float] = lambda fan_in: 0.0
    gain: Callable[[int], float] = lambda fan_in: 1.0


def _scaling(scale: float, mode: str, distribution: str) -> Draw:
    def draw(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        scaling = jax.nn.initializers.variance_scaling(scale, mode, distribution)  # type: ignore[arg-type]
        return scaling(key, shape, dtype)

    return draw


_TORCH = _scaling(1 / 3, "fan_in", "uniform")
_FAN_OUT = _scaling(2.0, "fan_out", "normal")


def _by_layer(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    return (_FAN_OUT if len(shape) > 2 else _TORCH)(key, shape, dtype)


INITIALIZERS = {
    "torch": Initializer(_TORCH, bias_bound=lambda fan_in: 1 / math.sqrt(fan_in)),
    "he": Initializer(_scaling(2.0, "fan_in", "normal")),
    "he_fan_out": Initializer(_FAN_OUT),
    "he_conv": Initializer(_by_layer),
    "xavier": Initializer(_scaling(1.0, "fan_avg", "uniform")),
    "ntk": Initializer(
        lambda key, shape, dtype: jax.random.normal(key, shape, dtype),
        gain=lambda fan_in: 1 / math.sqrt(fan_in),
    ),
}
"""Schemes by name: PyTorch's default U(±1/√fan_in); He normal by fan-in or fan-out; He by fan-out
for convolutions and PyTorch's for a linear layer, with no bias, as residual networks often have;
Xavier uniform; and the NTK parametrisation, N(0, 1) weights with 1/√fan_in in the forward pass."""


def gain(init: str, shape: tuple[int, ...]) -> float:
    """The factor on a kernel of this shape in the forward pass."""
    return INITIALIZERS[init].gain(math.prod(shape[:-1]))


def bias_init(init: str, fan_in: int) -> Draw:
    """The initialiser of the linear bias, for a number of inputs."""
    bound = INITIALIZERS[init].bias_bound(fan_in)
    return lambda key, shape, dtype: jax.random.uniform(key, shape, dtype, -bound, bound)
