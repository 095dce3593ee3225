"""Attacks on points of the unit sphere, whose allowed set is a cap: points near x of length 1.

Radii are chords, in units of the points' length: ‖x̂ − x‖ = ρ means ⟨x, x̂⟩ = 1 − ρ²/2.
"""

from dataclasses import dataclass
from numbers import Real

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from attacks.core import Gradient, Images, project_to_sphere
from ntkscore.errors import InputError


def project_to_cap(z: Images, x: Images, rho: float | Array) -> Images:
    """The nearest point of the sphere within the chord ρ of x.

    Args:
        z: points to project, of any shape and length; zero goes to x.
        x: the caps' centres, of length 1.
        rho: radius from 0 to 2.

    Example:
        >>> project_to_cap(jnp.asarray([[0.0, 3.0]]), jnp.asarray([[1.0, 0.0]]), 1.0).round(4)
        Array([[0.5  , 0.866]], dtype=float32)
    """
    z, least = project_to_sphere(z), 1 - rho**2 / 2
    along = _inner(z, x)
    tangent = project_to_sphere(z - along * x)
    edge = least * x + jnp.sqrt(jnp.maximum(1 - least**2, 0)) * tangent
    # Opposite x, or at zero, there is no direction to go.
    edge = jnp.where(_inner(tangent, tangent) > 0, edge, x)
    return jnp.where(along >= least, z, edge)


def _inner(a: Images, b: Images) -> Float[Array, "n ..."]:
    return jnp.sum(a * b, tuple(range(1, a.ndim)), keepdims=True)


@dataclass(frozen=True)
class CapAttack:
    """Projected gradient ascent on the sphere, within a cap around each point.

    Attributes:
        rho: radius of the cap, a chord from 0 to 2; it may be traced.
        steps: number of gradient steps, each of length 2.5 ρ / steps along the gradient's tangent
            part.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", section 4.1, has the set;
    the ascent is Madry et al.'s (2018), moved to the sphere.

    Example:
        >>> towards = lambda x: jnp.asarray([[0.0, 1.0]])
        >>> CapAttack(1.0)(towards, jnp.asarray([[1.0, 0.0]])).round(2)
        Array([[0.5 , 0.87]], dtype=float32)
    """

    rho: float | Array
    steps: int = 10

    def __post_init__(self) -> None:
        if isinstance(self.rho, Real) and not 0 <= self.rho <= 2:
            raise InputError(
                "a radius from 0 to 2, a chord of the unit sphere",
                f"{self.rho:g}",
                "divide it by the points' length",
            )
        if self.steps < 1:
            raise InputError("at least one step", self.steps, "raise it")

    def __call__(self, gradient: Gradient, x: Images, key: Array | None = None) -> Images:
        """The attacked points, inside the cap around x.

        Args:
            gradient: of the loss in the points; each point's loss must depend on that point alone.
            x: points of length 1.
            key: of no use; attacks are called with one.
        """
        length = 2.5 * self.rho / self.steps

        def advance(z: Images) -> Images:
            slope = gradient(z)
            tangent = slope - _inner(slope, z) * z
            return project_to_cap(z + length * project_to_sphere(tangent), x, self.rho)

        z = advance(x)
        return z if self.steps == 1 else lax.fori_loop(1, self.steps, lambda _, z: advance(z), z)
