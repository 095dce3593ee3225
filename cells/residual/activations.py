"""Activations of the residual networks, with the constants that the theory uses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attacks.lazy import Array, jnp


@dataclass(frozen=True)
class Activation:
    """A Lipschitz function σ of a number, elementwise.

    Attributes:
        function: σ of (an array, the module to compute with: NumPy or `jax.numpy`).
        lipschitz: C, for which |σ(z) − σ(z′)| ≤ C |z − z′| and |σ(0)| ≤ C.
        curvature: sup |σ″|, infinite for a kink.
        slope_at_zero: σ′(0).
        negative_slope: s, where σ(z) is z above zero and s·z below; None where σ is another one.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", assumption 2.

    Example:
        >>> ACTIVATIONS["leaky_relu"](np.array([-1.0, 2.0]))
        array([-0.01,  2.  ])
    """

    function: Callable[[Any, Any], Any]
    lipschitz: float
    curvature: float
    slope_at_zero: float
    negative_slope: float | None = None

    def __call__(self, z: Array | np.ndarray) -> Any:
        """σ of every entry."""
        return self.function(z, np if isinstance(z, np.ndarray) else jnp)

    @property
    def homogeneous(self) -> bool:
        """Whether σ(c z) = c σ(z) for every c > 0."""
        return self.negative_slope is not None


def rectifier(negative_slope: float) -> Activation:
    """z above zero and s·z below; at zero its slope is s.

    Example:
        >>> rectifier(0.5)(np.array([-3.0, 3.0]))
        array([-1.5,  3. ])
    """
    return Activation(
        lambda z, of: of.where(z > 0, z, negative_slope * z),
        lipschitz=1.0,
        curvature=float("inf"),
        slope_at_zero=negative_slope,
        negative_slope=negative_slope,
    )


def _sigmoid(z: Any, of: Any) -> Any:
    return (1 + of.tanh(z / 2)) / 2


ACTIVATIONS: dict[str, Activation] = {
    "relu": rectifier(0.0),
    "leaky_relu": rectifier(0.01),
    "tanh": Activation(lambda z, of: of.tanh(z), 1.0, 4 / 27**0.5, 1.0),
    # The bound is |σ(0)| = 1/2, which is larger than the slope 1/4.
    "sigmoid": Activation(_sigmoid, 0.5, 1 / 108**0.5, 0.25),
    "swish": Activation(lambda z, of: z * _sigmoid(z, of), 1.0998393194, 0.5, 0.5),
    "softplus": Activation(lambda z, of: of.logaddexp(z, 0.0), 1.0, 0.25, 0.5),
}
"""Activations by name, to which users may add."""
