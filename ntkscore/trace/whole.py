"""The passes of a network that takes a batch as a whole."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import Array, PyTree

from ntkscore.grams import Taps
from ntkscore.model import Logits, Model, Points


class WholePasses:
    """The passes of a network whose points meet each other: forward, and the gradient.

    A point's gradient in the weights is not its own there, and what goes on inside is of the batch.

    Args:
        model: the network.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def forward(self, params: PyTree, points: Points) -> tuple[Logits, Any]:
        """Logits of points, and what the way back needs."""
        return jax.vjp(lambda points: self.model.apply(params, points), points)

    def gradient(self, params: PyTree, kept: Any, cotangent: Logits) -> Points:
        """The gradient in the points, from the cotangent of their logits."""
        return kept(cotangent)[0]

    def parts(
        self, params: PyTree, kept: Sequence[Any], cotangent: Logits, taps: Taps
    ) -> tuple[Points, Taps]:
        """No way to the kernel: `ntvp` computes it."""
        raise NotImplementedError("a network whose points meet each other has no parts")

    def layers(
        self, params: PyTree, kept: Any, cotangent: Logits, look: Callable[..., PyTree]
    ) -> PyTree:
        """No gradients of single points."""
        raise NotImplementedError("a network whose points meet each other has no layers")

    def activations(self, params: PyTree, kept: Any) -> None:
        """None."""

    def pullbacks(self, params: PyTree, kept: Any, key: Array) -> list[tuple[Array, Array]]:
        """An empty list."""
        return []

    def unnormalized(self, params: PyTree, points: Points) -> None:
        """None."""

    def standardized(self, params: PyTree, points: Points, others: Points) -> None:
        """None."""
