"""Measures of the gradients of convolutions' and linear layers' weights: GradNorm, SNIP, ZiCo."""

from operator import itemgetter

from jaxtyping import Float

from ntkscore.lazy import Array, jnp
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.registry import ATTACKED_ONCE, Measure, Quantity, identity
from ntkscore.model import LayerGradient


def of_gradients(at: Pass) -> dict[str, Float[Array, ""]]:
    """GradNorm, SNIP and ZiCo, summed over the layers, from the gradients of each point's loss."""
    by_layer = at.layers(at.loss_cotangent, _of_layer)
    return {name: jnp.sum(each) for name, each in by_layer.items()}


def _of_layer(layer: LayerGradient) -> dict[str, Float[Array, ""]]:
    """One layer's terms of GradNorm, SNIP and ZiCo."""
    gradients = layer.gradients.reshape(len(layer.gradients), -1)
    # A power of two, which rounds nothing: squares of small gradients would underflow.
    _, exponent = jnp.frexp(jnp.max(jnp.abs(gradients)))
    gradients = jnp.ldexp(gradients, -exponent)
    mean, size = jnp.mean(gradients, 0), jnp.mean(jnp.abs(gradients), 0)
    # Equal gradients have a deviation of exactly zero this way; about their mean it is rounding.
    deviation = jnp.std(gradients - gradients[:1], 0)
    ratio = jnp.sum(jnp.where(deviation == 0, 0, size / jnp.where(deviation == 0, 1, deviation)))
    return {
        "grad_norm": jnp.ldexp(jnp.linalg.norm(mean), exponent),
        "snip": jnp.ldexp(jnp.sum(jnp.abs(layer.kernel.ravel() * mean)), exponent),
        # A layer that no gradient reaches is not part of the network; NaN stays.
        "zico": jnp.log(jnp.where(ratio == 0, 1, ratio)),
    }


GRADIENTS = Quantity("gradients", ATTACKED_ONCE, of_gradients, identity, own_passes=True)

MEASURES = (
    Measure(
        "grad_norm",
        +1,
        "Σ over layers ‖∇‖, ∇ the loss's mean gradient",
        GRADIENTS,
        itemgetter("grad_norm"),
        source="Abdelfattah et al. (2021), Zero-cost proxies",
    ),
    Measure("snip", +1, "Σ |θ ∇|", GRADIENTS, itemgetter("snip"), source="Lee et al. (2019), SNIP"),
    Measure(
        "zico",
        +1,
        "Σ over layers ln Σ E|∇|/std ∇ over the images",
        GRADIENTS,
        itemgetter("zico"),
        source="Li et al. (2023), ZiCo, with batches of one image",
    ),
)
