"""Two-layer and plain networks of the theory, of d-dimensional points, with m features a layer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cells.residual.activations import ACTIVATIONS
from experiments.theory.tasks import on_sphere
from ntkscore.model import Model

INITIALISATIONS: dict[str, Any] = {
    "lecun": lambda d, m: ((1 / d) ** 0.5, (1 / m) ** 0.5, (1 / m) ** 0.5),
    "he": lambda d, m: ((2 / d) ** 0.5, (2 / m) ** 0.5, (2 / m) ** 0.5),
    "ntk": lambda d, m: ((2 / m) ** 0.5, (2 / m) ** 0.5, 1.0),
}
"""Standard deviations of W_1, of W_2 … W_{L−1} and of W_L, of the dimension and the width.

Source: Zhu et al. (2022), "Robustness in deep learning: the good (width), the bad (depth), and the
ugly (initialization)", whose table is read so that its bounds and its claims agree.
"""


def unit_points(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Points of length 1 in random directions."""
    return on_sphere(np.random.default_rng(seed).standard_normal((count, *shape)))


def draw_two_layer(key: jax.Array, dimension: int, width: int) -> tuple[jax.Array, jax.Array]:
    """W (m, d) and a (m,) of `two_layer`: rows of W are N(0, I), a_r = ±1."""
    rows, signs = jax.random.split(key)
    weights = jax.random.normal(rows, (width, dimension))
    return weights, jax.random.rademacher(signs, (width,), weights.dtype)


def two_layer(weights: jax.Array, a: jax.Array, activation: str = "relu") -> Model:
    """f = m^−1/2 Σ a_r σ(w_r·x); W is trained, a_r stays.

    Source: Gao et al. (2019), equation 4, and Wang et al. (2022), definition 2.1.
    """
    sigma = ACTIVATIONS[activation]

    def apply(weights: jax.Array, points: jax.Array) -> jax.Array:
        return product(sigma(product(points, weights.T)), a[:, None]) / len(a) ** 0.5

    return Model(apply, weights)


def fully_connected_network(
    key: jax.Array, dimension: int, width: int, outputs: int, layers: int, initialisation: Any
) -> Model:
    """f = W_L h_{L−1} with h_l = relu(W_l h_{l−1}) and h_0 = x, all of it trained, L ≥ 2.

    The initialisation is one of `INITIALISATIONS`, or three standard deviations as they have.

    Source: Zhu et al. (2022), appendix B and C.
    """
    if isinstance(initialisation, str):
        initialisation = INITIALISATIONS[initialisation](dimension, width)
    first, between, last = initialisation
    deviations = [first, *[between] * (layers - 2), last]
    sizes = [dimension, *[width] * (layers - 1), outputs]
    drawn = zip(jax.random.split(key, layers), sizes, sizes[1:], deviations, strict=False)
    weights = [jax.random.normal(k, (i, o)) * std for k, i, o, std in drawn]
    return Model(fully_connected, weights)


def fully_connected(weights: list[jax.Array], points: jax.Array) -> jax.Array:
    """W_L h_{L−1} with h_l = relu(W_l h_{l−1}) and h_0 = x; weights are (in, out)."""
    h = points
    for weight in weights[:-1]:
        h = jax.nn.relu(product(h, weight))
    return product(h, weights[-1])


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")
