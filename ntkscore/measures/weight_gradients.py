"""Measures of the gradients of convolutions' and linear layers' weights.

GradNorm, SNIP, ZiCo, Fisher and GraSP.
"""

from operator import itemgetter

from jaxtyping import Float

from attacks.lazy import Array, PyTree, jax, jnp
from ntkscore.kernels.joint import POINTS
from ntkscore.measures.cross_entropy import cross_entropy
from ntkscore.measures.forward_pass import Pass, kinds
from ntkscore.measures.registry import ATTACKED_ONCE, Measure, Quantity, identity
from ntkscore.model import LayerGradient
from ntkscore.trace.parameters import join_parameters, split_leaves


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


def fisher(at: Pass) -> Float[Array, ""]:
    """Σ over the layers' channels of ½ E(Σ_p a ∂ℓ/∂a)², a the channel at the places p of a point.

    a is a linear function of the channel's weights, so that Σ_p a ∂ℓ/∂a is Σ_θ θ ∂ℓ/∂θ over these
    weights. A layer's bias is no part of its a here.
    """
    return jnp.sum(at.layers(at.loss_cotangent, _of_channels))


def _of_channels(layer: LayerGradient) -> Float[Array, ""]:
    terms = (layer.kernel * layer.gradients).reshape(len(layer.gradients), -1)
    channels, count = _channels(layer)
    sums = jax.ops.segment_sum(terms.T, channels.ravel(), count)
    return jnp.sum(jnp.mean(jnp.square(sums), 1)) / 2


def _channels(layer: LayerGradient) -> tuple[Array, int]:
    """The number of the channel that each weight leads to, and how many there are."""
    if products := getattr(layer, "products", ()):  # a trace knows the layout of a kernel
        groups, features, after = (getattr(products[0], n) for n in ("batch", "before", "after"))
        numbers = jnp.arange(groups * after, dtype=layer.kernel.dtype).reshape(groups, 1, after)
        leads_to = products[0].weight(jnp.repeat(numbers, features, 1))
        return leads_to.astype(jnp.int32), groups * after
    count = layer.kernel.shape[-1]
    return jnp.broadcast_to(jnp.arange(count), layer.kernel.shape), count


def grasp(at: Pass) -> Float[Array, ""]:
    """−θᵀHg, g and H the gradient and the Hessian of the mean loss in the weights θ.

    Two forward derivatives of the loss, along g and along θ.
    """
    chosen = [kind == "weight" for kind in kinds(at)]
    weights, others = split_leaves(at.model.params, chosen)

    def loss(weights: PyTree) -> Float[Array, ""]:
        params = join_parameters(weights, others)
        return jnp.mean(cross_entropy(at.model.apply(params, at.points), at.labels))

    gradient = jax.grad(loss)(weights)
    along = lambda weights: jax.jvp(loss, (weights,), (gradient,))[1]  # noqa: E731
    return -jax.jvp(along, (weights,), (weights,))[1]


CHANNELS = Quantity("channels", POINTS[:1], fisher, float, own_passes=True)
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
    Measure(
        "fisher",
        +1,
        "Σ over channels ½ E(Σ a ∂ℓ/∂a)², a the channel's outputs",
        CHANNELS,
        source="Turner et al. (2020), BlockSwap, after Theis et al. (2018)",
    ),
    Measure(
        "grasp",
        +1,
        "−θᵀHg, g and H gradient and Hessian of the loss",
        Quantity("grasp", POINTS[:1], grasp, float, own_passes=True),
        source="Wang et al. (2020), GraSP, summed as by Abdelfattah et al. (2021)",
    ),
)
