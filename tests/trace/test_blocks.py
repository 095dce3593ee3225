"""Points in blocks: any number of them, in bounded memory, with the same numbers."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import naive
import numpy as np
import pytest
from networks import EXACT, error, perceptron, perceptron_params, points, small, small_params
from tiny import printed_on_devices, refuses

from ntkscore import ntk
from ntkscore.kernels.ntk import opened
from ntkscore.kernels.stack import stack
from ntkscore.model import Model
from ntkscore.trace import blocks
from ntkscore.trace.blocks import BlockPasses
from ntkscore.trace.compiled import with_passes
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
@pytest.mark.parametrize("output", ["trace", "loss"])
def test_blocks_have_the_kernel_of_all_points(output: str) -> None:
    x, y = points(COUNT)
    model = Model(perceptron, perceptron_params(int(np.prod(x.shape[1:]))))
    expected = naive.kernel(model.apply, model.params, x, y, output)
    assert error(ntk(model, x, labels=y, output=output), expected) < EXACT


@pytest.mark.parametrize("output", ["trace", "loss"])
def test_few_points_of_a_small_network_are_one_program(double, monkeypatch, output: str) -> None:
    x, y = points(COUNT)
    model = Model(perceptron, perceptron_params(int(np.prod(x.shape[1:]))))
    piecewise = ntk(model, x, labels=y, output=output, memory=LITTLE)
    monkeypatch.setattr(BlockPasses, "kernel", None)
    for _ in range(2):
        assert error(ntk(model, x, labels=y, output=output), piecewise) < EXACT
    infinite = Model(lambda w, x: perceptron(w, x) / jnp.zeros(()), model.params)
    with refuses([np.inf, -np.inf, -np.inf], remedy="div"):
        ntk(infinite, x, labels=y, output=output)
    batched = Model(lambda w, x: perceptron(w, x - x.mean(0)), model.params)
    with refuses(remedy="coupled=True"):
        ntk(batched, x, labels=y, output=output)


@pytest.mark.usefixtures("blocks_of_three")
def test_little_memory_takes_the_disk_and_leaves_the_numbers(monkeypatch) -> None:
    x, _ = points(COUNT)
    files, read = [], np.fromfile
    monkeypatch.setattr(
        np, "fromfile", lambda *array, **at: files.append(array) or read(*array, **at)
    )
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


def test_a_full_disk_is_a_sentence(monkeypatch) -> None:
    def full(path: Path, *mode: str, **named: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with refuses("No space left on device", remedy="TMPDIR"):
        ntk(convolutional(), points(COUNT)[0], memory=LITTLE)


@pytest.mark.thorough
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
    assert isinstance(with_passes(model, x).passes, BlockPasses)
    assert with_passes(model, x).passes is with_passes(model, x + 1).passes
    assert isinstance(opened(model, x)[0].model.passes, BlockPasses)
    jax.eval_shape(lambda x: seen.append(opened(model, x)[0].model.passes), x)
    assert isinstance(seen[0], TracedPasses) and isinstance(passes_of(model, x), TracedPasses)


@pytest.mark.usefixtures("blocks_of_three")
def test_long_work_says_how_far_it_is(monkeypatch, caplog) -> None:
    monkeypatch.setattr(blocks, "PATIENCE", 0.0)
    caplog.set_level("INFO", "ntkscore")
    ntk(convolutional(), points(COUNT)[0])
    assert "2 of 3 blocks forward and back" in caplog.messages
    layers = [message for message in caplog.messages if message.endswith("layers")]
    assert layers[-1].split()[0] == layers[-1].split()[2]


@pytest.mark.usefixtures("blocks_of_three")
def test_as_many_gram_matrices_as_memory_allows_are_computed_at_once(monkeypatch) -> None:
    counts, computed = [], blocks.in_threads

    def counting(function, items, count):
        counts.append(count)
        return computed(function, items, count)

    monkeypatch.setattr(blocks, "in_threads", counting)
    monkeypatch.setattr(blocks, "usable_cores", lambda: 64)
    x, _ = points(COUNT)
    for memory in (2**36, 2**30, 2**10):  # the last has factors on disk
        ntk(convolutional(), x, memory=memory)
    assert counts == [blocks.MOST_THREADS, 1, 2]


DEVICES = """
import jax, numpy as np
import ntkscore
from ntkscore.trace import blocks

blocks.BLOCK = 2
rng = np.random.default_rng(0)
params = [rng.normal(size=size) for size in ((12, 8), (8, 3))]
model = ntkscore.Model(lambda w, x: jax.nn.relu(x @ w[0]) @ w[1], params)
x, y = rng.uniform(size=(7, 12)), np.arange(7) % 3
kernels = ntkscore.stack(model, x, y, "fgsm", [0.1], memory=MEMORY)
full = ntkscore.ntk(model, x[:4], x[4:], output="full", memory=MEMORY)
squares = ntkscore.ntk(model, x, diagonal=True, memory=MEMORY)
features = ntkscore.gradient_features(model, x, 16, memory=MEMORY)
everything = [ntkscore.ntk(model, x), full, squares, features, kernels]
sizes = [float(np.sum(np.square(each))) for each in jax.tree.leaves(everything)]
print(jax.local_device_count(), *sizes)
"""


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("memory", ["None", "2**10"])
def test_devices_share_the_blocks(memory: str) -> None:
    found = []
    for count in (1, 3):
        program = DEVICES.replace("MEMORY", memory)
        devices, *numbers = printed_on_devices(count, program, JAX_ENABLE_X64="1").split()
        assert int(devices) == count
        found.append([float(number) for number in numbers])
    np.testing.assert_allclose(*found, rtol=1e-10)
