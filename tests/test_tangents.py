"""neural-tangents as an oracle that shares nothing with ours, and what is said without it."""

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import jax
import jax.core
import jax.interpreters.ad
import jax.numpy as jnp
import numpy as np
import pytest

from cells.network import Network
from ntkscore import kernels
from ntkscore.errors import InputError
from ntkscore.tangents import MOVED, neural_tangents

M, CLASSES = 3, 4


@pytest.fixture(scope="module", autouse=True)
def quick_compilation() -> Iterator[None]:
    """Compiling costs more than running here, so let XLA do little of it."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def nt() -> ModuleType:
    if importlib.util.find_spec("neural_tangents") is None:
        pytest.skip("neural-tangents is not installed: pip install 'ntkscore[tangents]'")
    return neural_tangents()


def test_kernels_agree_with_jacobian_contraction(nt) -> None:
    random = np.random.default_rng(2)
    network = Network(channels=4, cells_per_stage=1, num_classes=CLASSES)
    images = jnp.asarray(random.uniform(size=(M, 8, 8, 3)), jnp.float32)
    labels = jnp.asarray([0, 3, 1], jnp.int32)
    digits = jnp.asarray([3, 2, 4, 1, 3, 2], jnp.int32)
    shapes = jax.eval_shape(network.init, jax.random.key(0), images, digits)
    variables = jax.tree.map(
        lambda leaf: jnp.asarray(random.uniform(0.1, 0.6, leaf.shape), jnp.float32), shapes
    )
    apply = jax.jit(
        lambda params, images, grams=None: network.apply(
            {**variables, "params": params}, images, digits, grams
        )
    )

    def theirs(trace_axes: tuple[int, ...]) -> np.ndarray:
        contraction = nt.NtkImplementation.JACOBIAN_CONTRACTION
        kernel = nt.empirical_ntk_fn(apply, trace_axes=trace_axes, implementation=contraction)
        return np.asarray(kernel(images, None, variables["params"]), np.float64)

    # One kernel for each pair of logits; `trace` is their default, which divides by the classes.
    pairs = theirs(())
    assert pairs.shape == (M, M, CLASSES, CLASSES)
    rows, columns = np.meshgrid(labels, labels, indexing="ij")
    expected = {
        "sum": pairs.sum((2, 3)),
        "trace": theirs((-1,)),
        "label": pairs[np.arange(M)[:, None], np.arange(M), rows, columns],
    }
    np.testing.assert_allclose(expected["trace"], np.einsum("ijcc->ij", pairs) / CLASSES, rtol=1e-4)

    @jax.jit
    def ours(images):
        tapped = lambda images, grams: apply(variables["params"], images, grams)  # noqa: E731
        return {
            output: kernels.jacobian(tapped, images, labels, output)  # type: ignore[arg-type]
            for output in expected
        }

    for output, kernel in ours(images).items():
        assert np.linalg.norm(kernel - expected[output]) < 1e-4 * np.linalg.norm(expected[output])


def test_infinite_width_kernels_work(nt) -> None:
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


def test_jax_is_left_as_it_was(nt) -> None:
    assert not set(MOVED) & set(vars(jax.core))
    assert "zeros_like_p" not in vars(jax.interpreters.ad)
    assert "jax.util" not in sys.modules
    assert neural_tangents() is nt


def test_without_the_extra_the_message_names_the_command(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "neural_tangents", None)
    message = (
        r"expected neural-tangents to be installed, got no module named 'neural_tangents'; "
        r"run pip install 'ntkscore\[tangents\]'"
    )
    with pytest.raises(InputError, match=message):
        neural_tangents()
    assert "jax.util" not in sys.modules
