"""What a two-layer network can express close to its start: its kernel, by degree, and features.

The kernel is K_σ(x, x′) = E ⟨x σ′(w·x), x′ σ′(w·x′)⟩, on points of length 1. A function
h(x) = Σ a_t K_σ(x, x_t) is E c(w)·x σ′(w·x) with c(w) = Σ a_t x_t σ′(w·x_t), and
E ‖c(w)‖² = aᵀ K a = ‖h‖², its squared norm in the kernel's space.

Source: Gao et al. (2019), "Convergence of adversarial training in overparametrized neural
networks", definition 5.1 and appendix C.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import gammaln, roots_legendre

from attacks import project_to_sphere
from cells.residual.activations import ACTIVATIONS
from experiments.theory.gaussian import moments

SQUARED_RELU = "squared relu"
"""σ(z) = relu(z)², with rows of W uniform on the sphere of radius √d."""
NODES = 400
"""Nodes of the quadrature over the angle between two points."""

Inner = Float[np.ndarray, "..."]


def tangent_kernel(activation: str, inner: Inner) -> Inner:
    """K_σ of points with these inner products.

    σ = relu² has σ′ = 2 relu, which is homogeneous: rows on the sphere of radius √d give what
    Gaussian ones give.

    Example:
        >>> tangent_kernel("squared relu", np.array([1.0, 0.0]))
        array([2., 0.])
    """
    t = np.clip(inner, -1, 1)
    if activation == SQUARED_RELU:
        return 4 * t * moments(ACTIVATIONS["relu"], 1.0, 1.0, t)[0]
    return t * moments(ACTIVATIONS[activation], 1.0, 1.0, t)[1]


def eigenvalues(
    kernel: Callable[[Inner], Inner], dimension: int, degrees: int
) -> Float[np.ndarray, " k"]:
    """A zonal kernel's eigenvalues λ_0, λ_1, … for uniform points on the sphere, by degree.

    λ_k = E K(t) P_k(t) with P_k(1) = 1 the polynomial of degree k that is orthogonal for
    t = ⟨x, x′⟩ (Funk and Hecke). A function of degree k is in the kernel's space where λ_k > 0.

    Args:
        kernel: K of the inner product.
        dimension: d ≥ 3, of the space around the sphere.
        degrees: how many.

    Example:
        >>> found = eigenvalues(lambda t: t**2, dimension=3, degrees=4)
        >>> (found.round(6) + 0).tolist()  # −0 is 0
        [0.333333, 0.0, 0.133333, 0.0]
    """
    nodes, weights = roots_legendre(NODES)
    angle = np.pi * (nodes + 1) / 2
    t, power = np.cos(angle), dimension - 2
    log_mass = gammaln(dimension / 2) - gammaln(power / 2 + 0.5) - np.log(np.pi) / 2
    measure = np.exp(log_mass) * np.sin(angle) ** power * weights * np.pi / 2
    values, before, now = kernel(t) * measure, np.ones_like(t), t
    found = [values.sum()]
    for k in range(1, degrees):
        found.append(values @ now)
        # (k + d − 2) P_{k+1} = (2k + d − 2) t P_k − k P_{k−1}
        before, now = now, ((2 * k + power) * t * now - k * before) / (k + power)
    return np.array(found)


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
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """h_M(x) = 1/M Σ c(w_r)·x σ′(w_r·x) of one draw of M features, and the mean of ‖c(w_r)‖².

    Args:
        key: of the draw.
        x, centres, signs: as `random_sum` has them.
        count: M.
        activation: σ.
    """
    w = jax.random.normal(key, (count, x.shape[1]))
    if activation == SQUARED_RELU:
        w, prime = x.shape[1] ** 0.5 * project_to_sphere(w), lambda z: 2 * jax.nn.relu(z)
    else:
        prime = jax.grad(lambda z: jnp.sum(ACTIVATIONS[activation](z)))
    c = (prime(w @ centres.T) * signs) @ centres
    return jnp.mean(prime(x @ w.T) * (x @ c.T), 1), jnp.mean(jnp.sum(c**2, 1))


def mean_square_bound(norm_squared: float, dimension: int, count: int) -> float:
    """E ‖h − h_M‖² ≤ 6 ‖h‖²/((d + 2) M) for σ = relu², over uniform points and draws of M features.

    h_M = 1/M Σ c(w_r)·x σ′(w_r·x). For every w, E_x (c·x)² σ′(w·x)² is 2 E_x (c·x)² (w·x)², as
    (c·x)² is even, which is (2 ‖c‖² d + 4 (c·w)²)/(d (d + 2)), at most 6 ‖c‖²/(d + 2).

    Source: derived; lemma C.2 of Gao et al. (2019) has exp(Ω(d)) and a logarithm there.

    Example:
        >>> mean_square_bound(1.0, dimension=4, count=100)
        0.01
    """
    return 6 * norm_squared / ((dimension + 2) * count)
