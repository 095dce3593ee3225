"""SynFlow: the sensitivity of the output to the absolute values of the weights."""

from jaxtyping import Float

from attacks.lazy import Array, as_one, jax, jnp
from ntkscore.measures.forward_pass import Pass, with_weights
from ntkscore.measures.registry import NETWORK, Measure, Quantity

SIZES = (1.0, 2.0**-90, 2.0**-100)
"""Sizes of the ones: float32 does not hold every network's flow at the first."""
SAME = 0.1
"""Flows that differ by less at the small sizes are those of a network of degree 1 in its image."""


def synflow(at: Pass) -> Float[Array, ""] | None:
    """ln Σ_θ |θ ∂R/∂θ|, R the summed logits at a point of ones, of the weights' absolute values.

    Normalisations and biases are left out. Where θ and ∂R/∂θ are nowhere negative, the sum is the
    derivative of R along θ itself, and takes no backward pass. Where it is too large for the dtype,
    it is that at tiny ones, scaled, if R is of degree 1 in the point, and infinite otherwise.
    None where the network's normalisations are not known. Only the shape and dtype of the points
    count.
    """
    if at.model.coupled:
        return None
    sizes = jnp.asarray(SIZES, at.points.dtype)
    shape = (len(SIZES), *at.points.shape[1:])
    ones = jnp.broadcast_to(jnp.expand_dims(sizes, range(1, len(shape))), shape)
    if jax.eval_shape(at.passes.unnormalized, at.model.params, ones) is None:
        return None

    def log_flow(size: Float[Array, ""]) -> Float[Array, " sizes"]:
        weights = with_weights(at, lambda leaf: size.astype(leaf.dtype) * jnp.abs(leaf))
        logits = at.passes.unnormalized(weights, ones)
        assert logits is not None
        return jnp.log(jnp.sum(logits, 1))

    along = jnp.ones((), at.points.dtype)
    levels, rises = jax.jvp(log_flow, (along,), (along,))
    return as_one(_flow)(levels, rises, sizes)


def _flow(
    levels: Float[Array, " sizes"], rises: Float[Array, " sizes"], sizes: Float[Array, " sizes"]
) -> Float[Array, ""]:
    """ln Σ_θ |θ ∂R/∂θ|, from ln R and its derivative at each size of the ones."""
    flow, less, least = jnp.log(rises) + levels - jnp.log(sizes)
    scaled = jnp.where(jnp.abs(less - least) < SAME, least, jnp.inf)
    return jnp.where(jnp.isfinite(flow), flow, scaled)


MEASURES = (
    Measure(
        "synflow",
        +1,
        "ln Σ |θ ∂R/∂θ|, R of |θ| at ones",
        Quantity("synflow", (NETWORK,), synflow, float),
        source="Tanaka et al. (2020), Pruning neural networks without any data",
    ),
)
