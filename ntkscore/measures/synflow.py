"""SynFlow: the sensitivity of the output to the absolute values of the weights."""

from jaxtyping import Float

from ntkscore.lazy import Array, jax, jnp
from ntkscore.measures.declaration import NETWORK, Measure, Quantity
from ntkscore.measures.forward import Pass, with_weights

TINY = 1e-30
"""The size of the ones, so that float32 holds every network's flow."""


def synflow(at: Pass) -> Float[Array, ""] | None:
    """ln Σ_θ |θ ∂R/∂θ|, R the summed logits at a point of ones, of the weights' absolute values.

    Normalisations and biases are left out. Where θ and ∂R/∂θ are nowhere negative, the sum is the
    derivative of R along θ itself, and takes no backward pass.
    None where the network's normalisations are not known. Only the shape and dtype of the points
    count.
    """
    if at.model.coupled:
        return None
    params, one = at.model.params, jnp.full_like(at.points[:1], TINY)
    if jax.eval_shape(at.passes.unnormalized, params, one) is None:
        return None

    def log_flow(size: Float[Array, ""]) -> Float[Array, ""]:
        weights = with_weights(at, lambda leaf: size.astype(leaf.dtype) * jnp.abs(leaf))
        logits = at.passes.unnormalized(weights, one)
        assert logits is not None
        return jnp.log(jnp.sum(logits))

    along = jnp.ones((), at.points.dtype)
    level, rise = jax.jvp(log_flow, (along,), (along,))
    return jnp.log(rise) + level - jnp.log(TINY)


MEASURES = (
    Measure(
        "synflow",
        +1,
        "ln Σ |θ ∂R/∂θ|, R of |θ| at ones",
        Quantity("synflow", (NETWORK,), synflow, float),
        source="Tanaka et al. (2020), Pruning neural networks without any data",
    ),
)
