"""Networks of the convergence theory as models: deep and two-layer, some of whose layers stay."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from cells.errors import InputError
from cells.model import Model
from cells.residual.activations import ACTIVATIONS


def deep_network(
    key: PRNGKeyArray, dimension: int, width: int, hidden: int, dtype: Any = None
) -> Model:
    """f = aᵀ x_H with x_h = relu(W_h x_{h−1}) and x_0 = A x, of which W_1 … W_H are trained.

    Entries of A and W_h are N(0, 2/m), those of a N(0, 1).

    Args:
        key: of the weights.
        dimension: d of the points.
        width: m.
        hidden: H, trained layers.
        dtype: of the weights.

    Source: Gao et al. (2019), "Convergence of adversarial training in overparametrized neural
    networks", equation 1.

    Example:
        >>> model = deep_network(jax.random.key(0), dimension=3, width=8, hidden=2)
        >>> [w.shape for w in model.params], model.apply(model.params, jnp.ones((5, 3))).shape
        ([(8, 8), (8, 8)], (5, 1))
    """
    first, last, *keys = jax.random.split(key, hidden + 2)
    scale = (2 / width) ** 0.5
    enter = jax.random.normal(first, (dimension, width), dtype) * scale
    leave = jax.random.normal(last, (width, 1), dtype)
    weights = [jax.random.normal(k, (width, width), dtype) * scale for k in keys]

    def apply(weights: list[Array], points: Array) -> Array:
        x = _product(points, enter)
        for weight in weights:
            x = jax.nn.relu(_product(x, weight))
        return _product(x, leave)

    return Model(apply, weights)


def two_layer_network(
    key: PRNGKeyArray,
    dimension: int,
    width: int,
    activation: str = "relu",
    antisymmetric: bool = False,
    dtype: Any = None,
) -> Model:
    """f = m^−1/2 Σ a_r σ(w_r·x), of which W, (m, d), is trained; a_r = ±1 stays.

    Rows of W are N(0, I).

    Args:
        key: of the weights.
        dimension: d of the points.
        width: m.
        activation: σ, of `cells.residual.ACTIVATIONS`.
        antisymmetric: whether the second half of the neurons begins as the first with a_r of the
            other sign, so that f begins as zero.
        dtype: of the weights.

    Raises:
        InputError: if an antisymmetric network has an odd width, or σ is unknown.

    Source: Gao et al. (2019), equation 4, and Wang et al. (2022), "Adversarial robustness is at
    odds with lazy training", definition 2.1.

    Example:
        >>> model = two_layer_network(jax.random.key(0), 3, 8, "tanh", antisymmetric=True)
        >>> bool(abs(model.apply(model.params, jnp.ones((5, 3)))).max() < 1e-6)
        True
    """
    if activation not in ACTIVATIONS:
        raise InputError(
            f"expected an activation of {', '.join(ACTIVATIONS)}, got {activation!r}; choose one "
            "of them"
        )
    if antisymmetric and width % 2:
        raise InputError(f"expected an even width, got {width}; neurons come in pairs")
    rows, signs = jax.random.split(key)
    count = width // 2 if antisymmetric else width
    weights = jax.random.normal(rows, (count, dimension), dtype)
    a = jax.random.rademacher(signs, (count,), weights.dtype)
    if antisymmetric:
        weights, a = jnp.concatenate([weights, weights]), jnp.concatenate([a, -a])
    sigma = ACTIVATIONS[activation]

    def apply(weights: Array, points: Array) -> Array:
        return _product(sigma(_product(points, weights.T)), a[:, None]) / width**0.5

    return Model(apply, weights)


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")
