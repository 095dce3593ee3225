"""AutoAttack through PyTorch, on networks whose answers are known."""

import importlib.util
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.training.auto_attack import in_pytorch, right_after_autoattack
from ntkscore.training.evaluation import evaluate

SHAPE, CLASSES = (4, 4, 3), 5


def linear(classes: int = CLASSES) -> Model:
    weights = np.random.default_rng(0).normal(size=(48, classes))
    return Model(lambda w, x: x.reshape(len(x), -1) @ w, jnp.asarray(weights, jnp.float32))


def images(count: int) -> np.ndarray:
    """So grey that no attack meets the ends of the scale."""
    rng = np.random.default_rng(1)
    return rng.uniform(0.3, 0.7, (count, *SHAPE)).astype(np.float32)


@pytest.mark.skipif(bool(importlib.util.find_spec("torch")), reason="PyTorch is installed")
def test_without_its_packages_it_is_refused_at_once() -> None:
    told: list[str] = []
    with pytest.raises(InputError, match=r"^expected PyTorch .* got no .*; run pip install torch "):
        evaluate(linear(), images(3), np.arange(3), autoattack=True, report=told.append)
    assert not told


@pytest.mark.parametrize("count", [1, 3, 8])
def test_pytorch_is_given_the_logits_and_their_gradient(torch: ModuleType, count: int) -> None:
    model = linear()
    curved = model._replace(apply=lambda w, x: jnp.tanh(model.apply(w, x)))
    x, g = images(count), np.random.default_rng(2).normal(size=(count, CLASSES))
    tensor = torch.from_numpy(x.transpose(0, 3, 1, 2).copy()).requires_grad_(True)
    logits = in_pytorch(curved)(tensor)
    (slope,) = torch.autograd.grad((logits * torch.from_numpy(g)).sum(), tensor)
    expected, pull = jax.vjp(lambda x: curved.apply(curved.params, x), x)
    np.testing.assert_allclose(logits.detach().numpy(), expected, rtol=1e-6)
    back = pull(jnp.asarray(g, jnp.float32))[0]
    np.testing.assert_allclose(slope.numpy().transpose(0, 2, 3, 1), back, rtol=1e-5, atol=1e-6)


def test_of_a_linear_network_it_finds_all_that_there_is(torch: ModuleType) -> None:
    pytest.importorskip("autoattack", reason="the package autoattack is not installed")
    model, x, rho = linear(), images(40), 8 / 255
    weights = np.asarray(model.params)
    logits = x.reshape(len(x), -1) @ weights
    labels = logits.argmax(1)
    gaps = logits[np.arange(len(x)), labels][:, None] - logits
    # A step of ρ on every pixel moves a gap by ρ times the weights' absolute differences.
    ways = np.abs(weights.T[labels][:, None] - weights.T).sum(2)
    left = np.where(ways > 0, gaps - rho * ways, np.inf).min(1)
    sure = np.abs(left) > 0.01
    right = right_after_autoattack(model, x, labels, rho)
    assert 0 < right.sum() < len(x) and sure.sum() > 30
    np.testing.assert_array_equal(right[sure], (left > 0)[sure])
    rows = evaluate(model, x, labels, radii=(8,), autoattack=True)
    whole = rows[rows["class"] == -1].set_index("metric")["value"]
    assert whole["autoattack"] == right.mean() <= whole["pgd"]
    with pytest.raises(InputError, match=r"^expected at least 4 classes .* got 3; leave it out$"):
        right_after_autoattack(linear(3), x, labels, rho)
