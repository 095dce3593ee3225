"""The choice of an operation by data, alone and side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cells.choice import choose
from ntkscore.space import SIDE_BY_SIDE

POINTS = jnp.linspace(0.2, 1.0, 5)
BRANCHES = (jnp.zeros_like, jnp.sin, jnp.exp, jnp.log)


def pick(digit: jax.Array, x: jax.Array) -> jax.Array:
    return choose(digit, BRANCHES, x)


@pytest.mark.parametrize("digits", [[0, 1, 2, 3], [2, 2, 2], [0, 0], [3, 1, 3, 0, 1]])
def test_side_by_side_as_one_by_one(digits: list[int]) -> None:
    together = jax.vmap(pick, (0, None), axis_name=SIDE_BY_SIDE)(jnp.array(digits), POINTS)
    expected = np.stack([BRANCHES[digit](POINTS) for digit in digits])
    np.testing.assert_array_equal(together, expected)


def test_slopes_side_by_side() -> None:
    def total(x: jax.Array) -> jax.Array:
        digits = jnp.array([1, 3, 1])
        return jax.vmap(pick, (0, None), axis_name=SIDE_BY_SIDE)(digits, x).sum()

    np.testing.assert_allclose(jax.grad(total)(POINTS), 2 * jnp.cos(POINTS) + 1 / POINTS, 1e-6)


def test_what_no_network_has_is_not_computed() -> None:
    ran: list[str] = []

    def branch(name: str, factor: float) -> object:
        def operate(x: jax.Array) -> jax.Array:
            jax.debug.callback(lambda: ran.append(name))
            return factor * x

        return operate

    branches = [jnp.zeros_like, *(branch(name, k) for k, name in enumerate("abc", 1))]
    together = jax.jit(
        jax.vmap(lambda digit: choose(digit, branches, POINTS), axis_name=SIDE_BY_SIDE)
    )
    for digits, expected in ([0, 2, 2], {"b"}), ([0, 0, 0], set()), ([1, 3, 0], {"a", "c"}):
        ran.clear()
        jax.block_until_ready(together(jnp.array(digits)))
        jax.effects_barrier()
        assert set(ran) == expected


def test_a_plain_batch_is_a_switch() -> None:
    """Whoever batches a network without the axis name gets what JAX makes of a batched switch."""
    digits = jnp.array([3, 0])
    np.testing.assert_array_equal(
        jax.vmap(pick, (0, None))(digits, POINTS), np.stack([jnp.log(POINTS), 0 * POINTS])
    )
