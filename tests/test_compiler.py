"""Options of the compiler, and where they count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ntkscore import compiler
from ntkscore.compiler import GRAMS, OPTION, Jit, compiler_options, for_any_layout


def test_options_are_those_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever XLA knows of them, a program compiles.
    assert jax.jit(lambda: 1, compiler_options=compiler_options())() == 1
    assert compiler_options(GRAMS) in ({}, {OPTION: GRAMS})
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    assert compiler_options() == {}
    monkeypatch.undo()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert compiler_options() == {}


def test_options_count_where_a_program_is_no_part_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def options(fusions: str) -> dict[str, str]:
        asked.append(fusions)
        return compiler_options(fusions)

    monkeypatch.setattr(compiler, "compiler_options", options)
    power = Jit(lambda x, *, k: x**k, GRAMS, static=("k",))
    x = jnp.arange(3.0)
    inside = jax.jit(lambda x: power(x, k=2) + 1)(x)
    slope = jax.vmap(jax.grad(lambda x: power(x, k=2)))(x)
    with for_any_layout():
        same = power(x, k=2)
    assert not asked
    alone = power(x, k=2)
    assert asked == [GRAMS]
    for found in (alone, same, inside - 1, slope**2 / 4):
        np.testing.assert_array_equal(found, x**2)
