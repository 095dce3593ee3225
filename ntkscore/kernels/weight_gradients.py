"""What measures of the gradients of a network's weights are taken from.

The weights are those of convolutions and linear layers. `ntkscore.kernels.proxies` declares the
measures.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ntkscore.kernels.implementations import PRECISION, Forward, one_by_one
from ntkscore.kernels.probes import cross_entropy
from ntkscore.model import LayerGradient

OF_GRADIENTS = ("grad_norm", "snip", "zico")


def of_gradients(forward: Forward, params: PyTree, labels: Int[Array, "n"]) -> dict[str, Array]:
    """Measures of the weights' gradients: `grad_norm`, `snip` and `zico`.

    Of convolutions and linear layers alone.

    Source: Abdelfattah et al. (2021), "Zero-cost proxies"; Lee et al. (2019), SNIP;
    Li et al. (2023), ZiCo, each point a batch of its own.

    Args:
        forward: a forward pass over one set of points.
        params: the weights that it was run at.
        labels: the points' classes, of which the loss is.
    """
    (logits,), (kept,) = forward.logits, forward.kept
    slope = jax.grad(lambda logits: jnp.sum(cross_entropy(logits, labels)))(logits)
    seen = forward.passes.layers(params, kept, slope, _of_slope)
    return {name: jnp.sum(seen[name]) for name in OF_GRADIENTS}


def _of_slope(slope: LayerGradient) -> dict[str, Float[Array, ""]]:
    each = slope.gradients
    each = each.reshape(len(each), -1)
    # Gradients that are equal deviate by nothing, and by rounding if their mean is looked at.
    deviation = jnp.std(each - each[:1], 0)
    moments = jnp.mean(each, 0), jnp.mean(jnp.abs(each), 0), deviation
    return _of_layer(slope.kernel.ravel(), *moments)


def _of_layer(
    weights: Float[Array, "e"],
    mean: Float[Array, "e"],
    size: Float[Array, "e"],
    deviation: Float[Array, "e"],
) -> dict[str, Float[Array, ""]]:
    """A layer's part of the measures, from its weights and the moments of their gradients."""
    ratio = jnp.sum(jnp.where(deviation == 0, 0, size / jnp.where(deviation == 0, 1, deviation)))
    return {
        "grad_norm": jnp.linalg.norm(mean),
        "snip": jnp.sum(jnp.abs(weights * mean)),
        # A layer that no gradient reaches is not part of the network; NaN stays.
        "zico": jnp.log(jnp.where(ratio == 0, 1, ratio)),
    }


def _first(slope: LayerGradient) -> Float[Array, "n"]:
    return slope.first


def fisher(forward: Forward, params: PyTree) -> Float[Array, "p p"]:
    """The Fisher information of one weight of every convolution and linear layer, their first.

    The mean over the points of Jᵀ(diag π − ππᵀ)J, J the logits' derivatives and π their softmax.
    A layer whose first weight moves no logit leaves zeros.

    Source: Týbl and Neumann (2025), "Training-free neural architecture search through variance of
    knowledge of deep network weights", VKDNW, where the labels are the network's own.

    Args:
        forward: a forward pass over one set of points, as many as one likes; the matrix has a rank
            of at most (classes − 1) for each.
        params: the weights that it was run at.

    Example:
        >>> from ntkscore.model import Model
        >>> from ntkscore.trace.passes import passes_of
        >>> linear, x = Model(lambda w, x: x @ w, jnp.zeros((3, 2))), jnp.ones((1, 3))
        >>> passes = passes_of(linear, x)
        >>> logits, kept = passes.forward(linear.params, x)
        >>> fisher(Forward(passes, [logits], [kept]), linear.params)  # π = (½, ½)
        Array([[0.25]], dtype=float32)
    """
    (logits,), (kept,) = forward.logits, forward.kept

    def derivatives(chosen: Float[Array, "o"]) -> Float[Array, "p n"]:
        """Of one logit."""
        slope = jnp.broadcast_to(chosen, logits.shape)
        return forward.passes.layers(params, kept, slope, _first)

    classes = jnp.eye(logits.shape[1], dtype=logits.dtype)
    jacobian = one_by_one(forward.passes, derivatives, classes)
    chance = jax.nn.softmax(logits).T
    product = partial(jnp.einsum, precision=PRECISION)
    mean = product("on,opn->pn", chance, jacobian)
    centred = jacobian - mean
    return product("on,opn,oqn->pq", chance, centred, centred) / logits.shape[0]
