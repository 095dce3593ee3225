"""Measures of the change by an attack: of the states of rectifiers and of the loss's gradients."""

from jaxtyping import Float

from attacks.lazy import Array, jnp
from ntkscore.kernels.joint import ASYMMETRIC
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.registry import Measure, Quantity
from ntkscore.model import Points


def flips(before: Pass, after: Pass) -> Float[Array, ""] | None:
    """The share of rectifiers, over all points, in another state than before the attack."""
    if before.activations is None or after.activations is None:
        return None
    changed, units, dtype = [], [], jnp.zeros(()).dtype
    pairs = zip(before.activations.rectified, after.activations.rectified, strict=True)
    for (count, x), (_, other) in pairs:
        share = jnp.mean((x > 0) != (other > 0), tuple(range(1, x.ndim)), dtype)
        units.append(jnp.sum(count.astype(dtype)) * x[0].size)
        changed.append(jnp.sum(count.astype(dtype) * share) * x[0].size)
    return jnp.asarray(sum(changed) / sum(units))


def curvature(before: Pass, after: Pass) -> Float[Array, ""]:
    """The mean of ‖∇ℓ(x_ρ) − ∇ℓ(x)‖²/‖x_ρ − x‖² over the points that the attack moves."""

    def squared(a: Points) -> Float[Array, " n"]:
        return jnp.sum(jnp.square(a.reshape(len(a), -1)), 1)

    change = squared(after.loss_gradient - before.loss_gradient)
    distance = squared(after.points - before.points)
    moved = distance > 0
    return jnp.sum(jnp.where(moved, change / jnp.where(moved, distance, 1), 0)) / jnp.sum(
        moved, dtype=distance.dtype
    )


MEASURES = (
    Measure(
        "flips",
        -1,
        "share of rectifiers whose state the attack changes",
        Quantity("flips", ASYMMETRIC, flips, float),
        source="ours, after the states of Mellor et al. (2021)",
    ),
    Measure(
        "curvature",
        -1,
        "mean of ‖∇ℓ(x_ρ) − ∇ℓ(x)‖²/‖x_ρ − x‖² over the images that move",
        Quantity("curvature", ASYMMETRIC[:1], curvature, float),
        source="Moosavi-Dezfooli et al. (2019), Robustness via curvature regularization",
    ),
)
