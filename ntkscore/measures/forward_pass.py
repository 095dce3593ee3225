"""A network at some points, which measures are computed from, and its loss."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from jaxtyping import Float, Int

from attacks.lazy import Array, PyTree, jax, jnp
from ntkscore.kernels.joint import POINTS
from ntkscore.measures.cross_entropy import attack_cotangent, cross_entropy, loss_cotangent
from ntkscore.measures.registry import Measure, Quantity
from ntkscore.model import Activations, Logits, Model, Points, Visit
from ntkscore.trace.parameters import FIXED, kinds_by_name

LOSS = "loss"


class Pass:
    """A forward pass over some points, and the backward passes from its residuals.

    Args:
        model: the network, with its passes or without.
        noise: key of random draws; None where measures with passes of their own are left out.

    Attributes:
        passes: of the network, which is traced if it has none.
        logits: (n, o), of the points.
        residuals: of the forward pass, for the backward passes.

    Example:
        >>> linear = Model(lambda w, x: x @ w, jnp.eye(2))
        >>> at = Pass(linear, jnp.ones((1, 2)), jnp.array([1]))
        >>> at.logits, at.loss_gradient
        (Array([[1., 1.]], dtype=float32), Array([[ 0.5, -0.5]], dtype=float32))
    """

    def __init__(
        self,
        model: Model,
        points: Points,
        labels: Int[Array, " n"],
        noise: Array | None = None,
    ) -> None:
        from ntkscore.trace.passes import passes_of

        self.model, self.points, self.labels = model, points, labels
        self.noise: Any = noise
        self.passes = passes_of(model, points)
        self.logits, self.residuals = self.passes.forward(model.params, points)

    @cached_property
    def activations(self) -> Activations | None:
        """Inputs of the rectifiers and outputs of the blocks, where there are any."""
        return self.passes.activations(self.model.params, self.residuals)

    def pullback(self, cotangent: Logits) -> Points:
        """The gradient in the points (n, …), from the cotangent (n, o) of the logits."""
        return self.passes.gradient(self.model.params, self.residuals, cotangent)

    def layers(self, cotangent: Logits, visit: Visit) -> PyTree:
        """Apply a function to each layer's gradients, as `Passes.layers` does."""
        return self.passes.layers(self.model.params, self.residuals, cotangent, visit)

    @cached_property
    def loss_cotangent(self) -> Logits:
        """The gradient of the summed cross-entropy in the logits."""
        return loss_cotangent(self.logits, self.labels)

    @cached_property
    def _attack(self) -> tuple[Points, Float[Array, " n"]]:
        """The gradient in the points that an attack follows, and its factor to the loss's own."""
        cotangent, factor = attack_cotangent(self.logits, self.labels, self.model.coupled)
        return self.pullback(cotangent), factor

    @property
    def attack_gradient(self) -> Points:
        """The gradient in the points that an attack follows, never too small for its numbers.

        It has the direction of `loss_gradient`, of which it is a multiple for each point (of
        coupled ones for all).
        """
        return self._attack[0]

    @cached_property
    def loss_gradient(self) -> Points:
        """The gradient of the summed cross-entropy in the points, per unit of a pixel in [0, 1]."""
        gradient, factor = self._attack
        return gradient * factor.reshape(-1, *[1] * (gradient.ndim - 1))


def kinds(at: Pass) -> list[str]:
    """The kind of each leaf of the params: by its use where a trace tells it, else by its name."""
    return [*(at.passes.kinds_of(at.model.params) or kinds_by_name(at.model.params))]


def with_weights(at: Pass, weight: Callable[..., Array], *others: PyTree) -> PyTree:
    """Params with ones for scales, zeros for shifts, and weights that a function gives."""

    def replaced(kind: str, leaf: Array, *rest: Array) -> Array:
        if kind == FIXED:
            return leaf
        return weight(leaf, *rest) if kind == "weight" else jnp.full_like(leaf, kind == "scale")

    params = at.model.params
    tree = jax.tree.structure(params)
    return jax.tree.map(replaced, jax.tree.unflatten(tree, kinds(at)), params, *others)


def mean_loss(at: Pass) -> Float[Array, ""]:
    """The mean cross-entropy at the points, in nats."""
    return jnp.mean(cross_entropy(at.logits, at.labels))


MEASURES = (Measure(LOSS, 0, "mean cross-entropy, nats", Quantity(LOSS, POINTS, mean_loss, float)),)
"""The loss, which is measured beside the scores of kernels."""
