"""Points in blocks: any number of them, in bounded memory, with the same numbers."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import naive
import numpy as np
import pytest
from networks import EXACT, error, perceptron, perceptron_params, points, small, small_params

from ntkscore import ntk
from ntkscore.kernels.stack import stack
from ntkscore.model import Model
from ntkscore.trace import blocks
from ntkscore.trace.blocks import BlockPasses, passes_at
from ntkscore.trace.passes import TracedPasses, passes_of

COUNT, RADII = 7, (0.02, 0.05)
LITTLE = 2**14
"""Bytes that hold neither what a forward pass leaves nor what the kernel is made of."""


def convolutional() -> Model:
    return Model(lambda w, x: small(w, x, jnp.asarray(1)), small_params())


@pytest.fixture
def blocks_of_three(double: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seven points are three blocks, of which the last is filled up."""
    monkeypatch.setattr(blocks, "BLOCK", 3)
    yield


@pytest.mark.usefixtures("blocks_of_three")
@pytest.mark.parametrize("output", naive.OUTPUTS)
def test_blocks_have_the_kernel_of_all_points(output: str) -> None:
    x, y = points(COUNT)
    model = Model(perceptron, perceptron_params(int(np.prod(x.shape[1:]))))
    expected = naive.kernel(model.apply, model.params, x, y, output)
    assert error(ntk(model, x, y, output), expected) < EXACT


@pytest.mark.usefixtures("blocks_of_three")
def test_little_memory_takes_the_disk_and_leaves_the_numbers(monkeypatch) -> None:
    x, _ = points(COUNT)
    files, save = [], np.save
    monkeypatch.setattr(np, "save", lambda file, array: (files.append(file), save(file, array)))
    model = convolutional()
    much = ntk(model, x)
    assert not files
    little = ntk(model, x, memory=LITTLE)
    assert files
    assert error(little, much) < EXACT
    assert (
        error(much, naive.kernel(model.apply, model.params, x, y := jnp.zeros(COUNT, int))) < EXACT
    )
    assert y.shape == (COUNT,)


@pytest.mark.slow
@pytest.mark.usefixtures("blocks_of_three")
@pytest.mark.parametrize("memory", [None, LITTLE])
def test_a_stack_in_blocks_is_that_of_the_traced_passes(memory: int | None) -> None:
    """Measures too: the traced passes run inside of one compiled program."""
    x, y = points(COUNT)
    model, key = convolutional(), jax.random.key(0)

    def compiled(params: Any, x: Any, y: Any) -> Any:
        return tuple(stack(model._replace(params=params), x, y, "fgsm", RADII, noise=key))

    expected = jax.jit(compiled)(model.params, x, y)
    got = tuple(stack(model, x, y, "fgsm", RADII, noise=key, memory=memory))
    for each, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(each, other, rtol=1e-8, atol=1e-9)


@pytest.mark.usefixtures("double")
def test_passes_are_in_blocks_where_points_have_values() -> None:
    x, _ = points(COUNT)
    model, seen = convolutional(), []
    assert isinstance(passes_at(model, x), BlockPasses)
    assert passes_at(model, x) is passes_at(model, x + 1)
    jax.eval_shape(lambda x: seen.append(passes_at(model, x)), x)
    assert isinstance(seen[0], TracedPasses) and isinstance(passes_of(model, x), TracedPasses)
