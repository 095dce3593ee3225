"""Zen: the change of a network of Gaussian weights under a small change of its input."""

from jaxtyping import Float

from attacks.lazy import Array, jax, jnp
from ntkscore.measures.forward_pass import Pass, with_weights
from ntkscore.measures.registry import NETWORK, Measure, Quantity

NOISE = 0.01
"""Zen's step, in standard deviations of its input."""


def zen(at: Pass) -> Float[Array, ""] | None:
    """ln E‖f(x) − f(x + 0.01 x′)‖₁ + Σ ln σ, x and x′ Gaussian, f before the mean over the pixels.

    Weights are Gaussian too; σ² is a normalisation's variance at x, averaged over its channels.
    Only the shapes of weights and points count.
    """
    params, points = at.model.params, at.points
    # Trainability has the second half of the key.
    draw, first, second = jax.random.split(jax.random.split(at.noise)[0], 3)
    tree = jax.tree.structure(params)
    keys = jax.tree.unflatten(tree, list(jax.random.split(draw, tree.num_leaves)))
    normal = lambda leaf, key: jax.random.normal(key, leaf.shape, leaf.dtype)  # noqa: E731
    weights = with_weights(at, normal, keys)
    x, other = (jax.random.normal(k, points.shape, points.dtype) for k in (first, second))
    if (found := at.passes.standardized(weights, x, x + NOISE * other)) is None:
        return None
    here, there, deviations = found
    change = jnp.sum(jnp.abs(here - there).reshape(len(here), -1), 1)
    return jnp.log(jnp.mean(change)) + deviations


MEASURES = (
    Measure(
        "zen",
        +1,
        "ln E‖f(x) − f(x + 0.01 x′)‖₁ + Σ ln σ, all Gaussian",
        Quantity("zen", (NETWORK,), zen, float, own_passes=True),
        source="Lin et al. (2021), Zen-NAS, algorithm 1, with the norm of NASLib",
    ),
)
