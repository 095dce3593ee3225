"""neural-tangents as an oracle that shares nothing with ours, and what is said without it."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.core
import jax.interpreters.ad
import jax.numpy as jnp
import numpy as np
import pytest
from tangents import MOVED, neural_tangents, snippets
from tiny import refuses

from cells.nasbench201.network import abstract_variables
from cells.nasbench201.space import NASBench201
from ntkscore import Task
from ntkscore.kernels.ntk import ntk

M, CLASSES = 3, 4


@pytest.fixture(scope="module")
def given() -> tuple[Any, Any, Any]:
    """A cell's network, images and labels."""
    rng = np.random.default_rng(2)
    task = Task((8, 8, 3), CLASSES, (0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
    space = NASBench201(task=task, channels=4, cells_per_stage=1, bn="init")
    images = jnp.asarray(rng.uniform(size=(M, 8, 8, 3)), jnp.float32)
    labels = jnp.asarray([0, 3, 1], jnp.int32)
    digits = jnp.asarray([3, 2, 4, 1, 3, 2], jnp.int32)
    variables = jax.tree.map(
        lambda leaf: jnp.asarray(rng.uniform(0.1, 0.6, leaf.shape), jnp.float32),
        abstract_variables(space),
    )
    return space.model((), variables, digits, images), images, labels


@pytest.fixture(scope="module")
def theirs(nt: ModuleType, given: tuple[Any, Any, Any]) -> Callable[[tuple[int, ...]], np.ndarray]:
    """Their kernel by the axes of the logits whose mean is taken; its compilation takes long."""
    model, images, _ = given
    apply, contraction = jax.jit(model.apply), nt.NtkImplementation.JACOBIAN_CONTRACTION

    @cache
    def kernel(trace_axes: tuple[int, ...]) -> np.ndarray:
        of = nt.empirical_ntk_fn(apply, trace_axes=trace_axes, implementation=contraction)
        return np.asarray(of(images, None, model.params), np.float64)

    return kernel


@pytest.mark.slow
def test_kernels_agree_with_jacobian_contraction(given: Any, theirs: Any) -> None:
    model, images, labels = given
    pairs = theirs(())  # one kernel for each pair of logits
    assert pairs.shape == (M, M, CLASSES, CLASSES)
    rows, columns = np.meshgrid(labels, labels, indexing="ij")
    expected = {
        "sum": pairs.sum((2, 3)),
        "trace": np.einsum("ijcc->ij", pairs) / CLASSES,
        "label": pairs[np.arange(M)[:, None], np.arange(M), rows, columns],
    }
    for output, reference in expected.items():
        kernel = ntk(model, images, labels=labels, output=output, implementation="layerwise")
        assert np.linalg.norm(kernel - reference) < 1e-4 * np.linalg.norm(reference)


@pytest.mark.thorough
def test_the_trace_is_their_default(theirs: Any) -> None:
    """It divides by the number of classes."""
    trace = np.einsum("ijcc->ij", theirs(())) / CLASSES
    np.testing.assert_allclose(theirs((-1,)), trace, rtol=1e-4)


def test_infinite_width_kernels_work(nt: ModuleType) -> None:
    *_, kernel = nt.stax.serial(nt.stax.Dense(8), nt.stax.Relu(), nt.stax.Dense(1))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5)), jnp.float32)
    gram = np.asarray(kernel(x, None, "ntk"))
    # Arc-cosine kernels of degree 1 and 0, by hand.
    norms = np.linalg.norm(x, axis=1)
    scale, angle = (
        norms[:, None] * norms / 5,
        np.arccos(np.clip(x @ x.T / np.outer(norms, norms), -1, 1)),
    )
    first = (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
    slope = (np.pi - angle) / (2 * np.pi)
    np.testing.assert_allclose(gram, scale * (first + slope * np.cos(angle)), rtol=1e-3, atol=1e-4)


def test_jax_is_left_as_it_was(nt: ModuleType) -> None:
    assert not set(MOVED) & set(vars(jax.core))
    assert "zeros_like_p" not in vars(jax.interpreters.ad)
    assert "jax.util" not in sys.modules
    assert neural_tangents() is nt


def test_without_the_extra_the_message_names_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "neural_tangents", None)
    with refuses("neural_tangents", remedy="'ntkscore[tangents]'"):
        neural_tangents()
    assert "jax.util" not in sys.modules


@pytest.mark.oracle
def test_what_others_write_has_the_same_numbers_here(nt: ModuleType) -> None:
    """Each thread of docs/neural-tangents.md, by their code and by ours."""
    import neural_tangents.predict  # noqa: F401

    names: dict[str, Any] = {"nt": nt}
    threads = set()
    with jax.numpy_dtype_promotion("standard"):
        for _, thread, code in snippets(Path(__file__).parents[2] / "docs" / "neural-tangents.md"):
            exec(code, names)
            threads |= {thread}
    for thread in sorted(threads - {""}):
        theirs, ours = (np.asarray(names[f"{who}_{thread}"]) for who in ("theirs", "ours"))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
    assert len(threads) == 7
