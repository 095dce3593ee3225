"""Networks of the theory as models: two-layer and plain ones.

Of points with d dimensions, with m features a hidden layer; weights have JAX's default precision.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cells.residual.activations import ACTIVATIONS
from ntkscore.errors import InputError
from ntkscore.model import Model


def draw_two_layer(
    key: PRNGKeyArray, dimension: int, width: int
) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
    """W and a of `two_layer`: rows of W are N(0, I), a_r = ±1.

    Example:
        >>> model = two_layer(*draw_two_layer(jax.random.key(0), 3, 8))
        >>> model.apply(model.params, jnp.ones((5, 3))).shape
        (5, 1)
    """
    rows, signs = jax.random.split(key)
    weights = jax.random.normal(rows, (width, dimension))
    return weights, jax.random.rademacher(signs, (width,), weights.dtype)


def two_layer(
    weights: Float[Array, "m d"], a: Float[Array, " m"], activation: str = "relu"
) -> Model:
    """f = m^−1/2 Σ a_r σ(w_r·x) with σ of `cells.residual.ACTIVATIONS`; W is trained, a_r stays.

    Source: Gao et al. (2019), equation 4, and Wang et al. (2022), "Adversarial robustness is at
    odds with lazy training", definition 2.1.

    Example:
        >>> model = two_layer(jnp.eye(2), jnp.asarray([1.0, -1.0]))
        >>> model.apply(model.params, jnp.asarray([[2.0, 1.0]])).round(4)
        Array([[0.7071]], dtype=float32)
    """
    if activation not in ACTIVATIONS:
        raise InputError(
            f"an activation of {', '.join(ACTIVATIONS)}", repr(activation), "choose one of them"
        )
    sigma = ACTIVATIONS[activation]

    def apply(weights: Array, points: Array) -> Array:
        return _product(sigma(_product(points, weights.T)), a[:, None]) / len(a) ** 0.5

    return Model(apply, weights)


INITIALISATIONS: dict[str, Callable[[int, int], tuple[float, float, float]]] = {
    "lecun": lambda d, m: ((1 / d) ** 0.5, (1 / m) ** 0.5, (1 / m) ** 0.5),
    "he": lambda d, m: ((2 / d) ** 0.5, (2 / m) ** 0.5, (2 / m) ** 0.5),
    "ntk": lambda d, m: ((2 / m) ** 0.5, (2 / m) ** 0.5, 1.0),
}
"""Standard deviations of W_1, of W_2 … W_{L−1} and of W_L, of the dimension and the width; not the
schemes of `cells.initializers`, whose `ntk` is another.

Source: Zhu et al. (2022), "Robustness in deep learning: the good (width), the bad (depth), and the
ugly (initialization)", whose table is read so that its bounds and its claims agree.
"""


def fully_connected_network(
    key: PRNGKeyArray,
    dimension: int,
    width: int,
    outputs: int,
    layers: int,
    initialisation: str | tuple[float, float, float] = "he",
) -> Model:
    """f = W_L h_{L−1} with h_l = relu(W_l h_{l−1}) and h_0 = x, all of it trained, L ≥ 2.

    The initialisation is one of `INITIALISATIONS`, or three standard deviations as they have.

    Source: Zhu et al. (2022), appendix B and C.

    Example:
        >>> model = fully_connected_network(jax.random.key(0), 5, 8, outputs=3, layers=4)
        >>> [w.shape for w in model.params]
        [(5, 8), (8, 8), (8, 8), (8, 3)]
    """
    if layers < 2:
        raise InputError("at least 2 layers", layers, "raise it")
    if isinstance(initialisation, str):
        if initialisation not in INITIALISATIONS:
            raise InputError(
                f"an initialisation of {', '.join(INITIALISATIONS)}",
                repr(initialisation),
                "choose one of them",
            )
        initialisation = INITIALISATIONS[initialisation](dimension, width)
    first, between, last = initialisation
    deviations = [first, *[between] * (layers - 2), last]
    sizes = [(dimension, width), *[(width, width)] * (layers - 2), (width, outputs)]
    keys = jax.random.split(key, layers)
    weights = [
        jax.random.normal(k, size) * std
        for k, size, std in zip(keys, sizes, deviations, strict=True)
    ]

    return Model(fully_connected, weights)


def fully_connected(
    weights: list[Float[Array, "_ _"]], points: Float[Array, "n d"]
) -> Float[Array, "n o"]:
    """W_L h_{L−1} with h_l = relu(W_l h_{l−1}) and h_0 = x; weights are (in, out).

    Example:
        >>> fully_connected([jnp.eye(2), jnp.ones((2, 1))], jnp.asarray([[1.0, -3.0]]))
        Array([[1.]], dtype=float32)
    """
    h = points
    for weight in weights[:-1]:
        h = jax.nn.relu(_product(h, weight))
    return _product(h, weights[-1])


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")
