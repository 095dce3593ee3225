"""What a two-layer network can express close to its start: its kernel, and random features.

The kernel is K_σ(x, x′) = E ⟨x σ′(w·x), x′ σ′(w·x′)⟩, on points of length 1. A function
h(x) = Σ a_t K_σ(x, x_t) is E c(w)·x σ′(w·x) with c(w) = Σ a_t x_t σ′(w·x_t), and
E ‖c(w)‖² = aᵀ K a = ‖h‖², its squared norm in the kernel's space.

Source: Gao et al. (2019), "Convergence of adversarial training in overparametrized neural
networks", definition 5.1 and appendix C.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from attacks import project_to_sphere
from cells.residual.activations import ACTIVATIONS
from experiments.theory.gaussian import moments


def tangent_kernel(activation: str, inner: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """K_σ of points with these inner products.

    Example:
        >>> tangent_kernel("relu", np.array([1.0, 0.0]))
        array([0.5, 0. ])
    """
    t = np.clip(inner, -1, 1)
    return t * moments(ACTIVATIONS[activation], 1.0, 1.0, t)[1]


def random_sum(
    dimension: int, points: int, terms: int
) -> tuple[Float[Array, "n d"], Float[Array, "t d"], Float[Array, " t"]]:
    """Uniform points, and uniform centres x_t and random signs a_t of a sum of kernel functions."""
    first, second, third = jax.random.split(jax.random.key(dimension), 3)
    return (
        project_to_sphere(jax.random.normal(first, (points, dimension))),
        project_to_sphere(jax.random.normal(second, (terms, dimension))),
        jax.random.rademacher(third, (terms,), jnp.float32),
    )


def random_features(
    key: PRNGKeyArray,
    x: Float[Array, "n d"],
    centres: Float[Array, "t d"],
    signs: Float[Array, " t"],
    count: int,
    activation: str,
) -> Float[Array, " n"]:
    """h_M(x) = 1/M Σ c(w_r)·x σ′(w_r·x) of one draw of M features.

    Args:
        key: of the draw.
        x, centres, signs: as `random_sum` has them.
        count: M.
        activation: σ.
    """
    w = jax.random.normal(key, (count, x.shape[1]))
    prime = jax.grad(lambda z: jnp.sum(ACTIVATIONS[activation](z)))
    c = (prime(w @ centres.T) * signs) @ centres
    return jnp.mean(prime(x @ w.T) * (x @ c.T), 1)
