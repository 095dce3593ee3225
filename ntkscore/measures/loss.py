"""The loss, which is measured beside the scores of kernels."""

from jaxtyping import Float

from ntkscore.kernels.joint import POINTS
from ntkscore.lazy import Array, jnp
from ntkscore.measures.declaration import Measure, Quantity
from ntkscore.measures.forward import Pass, cross_entropy

LOSS = "loss"


def mean_loss(at: Pass) -> Float[Array, ""]:
    """The mean cross-entropy at the points, in nats."""
    return jnp.mean(cross_entropy(at.logits, at.labels))


MEASURES = (Measure(LOSS, 0, "mean cross-entropy, nats", Quantity(LOSS, POINTS, mean_loss, float)),)
