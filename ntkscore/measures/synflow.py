"""SynFlow: how much of a signal the weights let through."""

from jaxtyping import Float

from ntkscore.lazy import Array, PyTree, jax, jnp
from ntkscore.measures.declaration import NETWORK, Measure, Quantity
from ntkscore.measures.forward import Pass
from ntkscore.trace.parameters import is_floating, is_scale, is_weight

TINY = 1e-30
"""The size of the ones, so that float32 holds every network's flow."""


def synflow(at: Pass) -> Float[Array, ""] | None:
    """ln Σ_θ |θ ∂R/∂θ|, R the summed logits at a point of ones, of the weights' absolute values.

    Normalisations and biases are left out. Where θ and ∂R/∂θ are nowhere negative, the sum is the
    derivative of R along θ itself, and takes no backward pass.
    None where it is not known which the network's normalisations are. Of the points shape and dtype
    alone count.
    """
    if at.model.coupled:
        return None
    weights, fixed = _absolute(at.model.params)
    one = jnp.full_like(at.points[:1], TINY)
    if jax.eval_shape(at.passes.unnormalized, at.model.params, one) is None:
        return None

    def log_flow(size: Float[Array, ""]) -> Float[Array, ""]:
        sized = lambda w, f: size.astype(w.dtype) * w + f if is_floating(w) else f  # noqa: E731
        logits = at.passes.unnormalized(jax.tree.map(sized, weights, fixed), one)
        assert logits is not None
        return jnp.log(jnp.sum(logits))

    along = jnp.ones((), at.points.dtype)
    level, rise = jax.jvp(log_flow, (along,), (along,))
    return jnp.log(rise) + level - jnp.log(TINY)


def _absolute(params: PyTree) -> tuple[PyTree, PyTree]:
    """The weights' absolute values, and ones for scales; zeros elsewhere in both.

    Integers, which are no parameters, stay in the second.
    """

    def weight(path: tuple, leaf: Array) -> Array:
        keep = is_floating(leaf) and is_weight(path, leaf)
        return jnp.abs(leaf) if keep else jnp.zeros_like(leaf)

    def scale(path: tuple, leaf: Array) -> Array:
        return jnp.full_like(leaf, is_scale(path, leaf)) if is_floating(leaf) else leaf

    by_path = jax.tree_util.tree_map_with_path
    return by_path(weight, params), by_path(scale, params)


MEASURES = (
    Measure(
        "synflow",
        +1,
        "ln Σ |θ ∂R/∂θ|, R of |θ| at ones",
        Quantity("synflow", (NETWORK,), synflow, float),
        source="Tanaka et al. (2020), Pruning neural networks without any data",
    ),
)
