"""The loss and the gradient that attacks follow, for networks that are sure of their answer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import refuses, scored

import ntkscore
from attacks import Victim, fgsm, pgd, twice
from ntkscore import Config, Model
from ntkscore.kernels.attacks import ATTACKS
from ntkscore.kernels.joint import POINTS
from ntkscore.kernels.stack import stack
from ntkscore.measures.cross_entropy import (
    attack_cotangent,
    cross_entropy,
    loss_cotangent,
)
from ntkscore.measures.forward_pass import Pass
from ntkscore.trace.passes import passes_of

N, D, CLASSES = 6, 12, 4
SCALES = (1.0, 20.0, 1e3)
rng = np.random.default_rng(0)
X = rng.uniform(0.2, 0.8, size=(N, D))
W = [rng.normal(size=(D, 16)) / 3, rng.normal(size=(16, CLASSES))]
Y = (np.tanh(X @ W[0]) @ W[1]).argmax(1)


def apply(w: Any, x: Any) -> Any:
    return w["running_scale"] * (jnp.tanh(x @ w["first"]) @ w["last"])


def network(scale: float, dtype: Any = jnp.float32, classes: int = CLASSES) -> Model:
    """A network whose decisions do not depend on the scale of its logits.

    The scale is no parameter, by its name, and one program serves all of them.
    """
    arrays = {"first": W[0], "last": W[1][:, :classes], "running_scale": scale}
    return Model(apply, {name: jnp.asarray(each, dtype) for name, each in arrays.items()})


def expected(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Loss and softmax − one-hot in float64, by sums over the other classes alone."""
    others = np.exp(logits - logits[np.arange(len(labels)), labels][:, None])
    others[np.arange(len(labels)), labels] = 0
    total = others.sum(1)
    cotangent = others / (1 + total)[:, None]
    cotangent[np.arange(len(labels)), labels] = -cotangent.sum(1)
    return np.log1p(total), cotangent


@pytest.mark.parametrize("margin", [0.0, 5.0, 18.0, 60.0, -60.0])
def test_no_digit_is_lost_at_a_margin(margin: float) -> None:
    logits = np.random.default_rng(1).normal(size=(5, 3))
    labels = np.array([0, 1, 2, 0, 1])
    logits[np.arange(5), labels] += margin
    given = jnp.asarray(logits, jnp.float32), jnp.asarray(labels)
    loss, cotangent = expected(np.asarray(given[0], np.float64), labels)
    np.testing.assert_allclose(cross_entropy(*given), loss, rtol=2e-5)
    np.testing.assert_allclose(loss_cotangent(*given), cotangent, rtol=2e-5)
    direction, factor = attack_cotangent(*given)
    np.testing.assert_allclose(direction * factor[:, None], cotangent, rtol=2e-5)
    np.testing.assert_allclose(jnp.abs(direction).sum(1), 2, rtol=1e-5)


def test_points_that_depend_on_each_other_have_one_factor() -> None:
    """The sum of their losses is raised, so a point that is surer counts less."""
    logits = jnp.asarray([[30.0, 0.0], [25.0, 0.0], [400.0, 0.0]])
    labels = jnp.zeros(3, int)
    direction, factor = attack_cotangent(logits, labels, together=True)
    np.testing.assert_allclose(direction[:, 1], [np.exp(-5), 1, 0], rtol=1e-4)
    np.testing.assert_allclose(factor, np.exp(-25.0), rtol=1e-4)
    surer = attack_cotangent(logits + jnp.asarray([400.0, 0.0]), labels, together=True)[0]
    np.testing.assert_allclose(surer, direction, rtol=1e-4)


def test_a_pass_goes_back_once_for_both_gradients() -> None:
    model, labels = network(1.0), jnp.asarray(Y)
    x = jnp.asarray(X, jnp.float32)
    passes, calls = passes_of(model, x), []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return lambda *given: calls.append(name) or getattr(passes, name)(*given)

    counting: Any = Counting()
    at = Pass(model._replace(passes=counting), x, labels)
    plain = jax.grad(lambda x: jnp.sum(cross_entropy(model.logits(x), labels)))(x)
    np.testing.assert_allclose(at.loss_gradient, plain, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(jnp.sign(at.attack_gradient), jnp.sign(at.loss_gradient))
    assert calls == ["forward", "gradient"]


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", ["fgsm", "pgd", "apgd", "random start"])
def test_a_sure_network_is_attacked_like_an_unsure_one(name: str, norm: str) -> None:
    """For two classes the attack does not depend on the scale of the logits."""

    def make(rho: Any) -> Any:
        if name == "random start":
            return pgd(rho, 3, random_start=True, norm=norm)  # type: ignore[arg-type]
        return ATTACKS[name](rho, norm=norm)

    labels = (np.tanh(X @ W[0]) @ W[1][:, :2]).argmax(1)
    key = jax.random.key(0) if name == "random start" else None
    images = jnp.asarray(X, jnp.float32)
    points, kernels = [], []
    for scale in SCALES:
        model = network(scale, classes=2)
        gradient = Victim(model.logits, jnp.asarray(labels))
        points.append(twice(make(0.05), gradient, images, key)[1])
        found = stack(model, images, labels, make, [0.05], key=key)
        kernels.append(found.kernel("twice") / scale**2)
        assert np.isfinite(found.quantities["cross"]["curvature"]).all()
    for other, kernel in zip(points[1:], kernels[1:], strict=True):
        np.testing.assert_allclose(other, points[0], atol=1e-4)
        np.testing.assert_allclose(kernel, kernels[0], rtol=1e-4)
    assert float(jnp.abs(points[0] - X).max()) > 0.01


@pytest.mark.parametrize("scale", [5.0, 20.0, 100.0])
def test_single_precision_attacks_the_same_points(scale: float) -> None:
    least = []
    for dtype in (jnp.float32, jnp.float64):
        with jax.enable_x64(dtype == jnp.float64):
            found = stack(network(scale, dtype), jnp.asarray(X, dtype), Y, "fgsm", [8 / 255])
            kernels = [np.asarray(found.kernel(name), float) for name in POINTS]
        least.append([np.linalg.eigvalsh(kernel)[0] for kernel in kernels])
    np.testing.assert_allclose(*least, rtol=1e-3)


def test_the_kernel_of_the_loss_has_the_labels_part() -> None:
    """softmax − one-hot at the label is minus the sum of the others, however small."""
    model = network(20.0)
    x = jnp.asarray(X, jnp.float32)
    with jax.enable_x64(True):
        exact = network(20.0, jnp.float64)
        rows = []
        for point, label in zip(X, Y, strict=True):
            of = lambda w, point=point: exact.apply(exact.params | w, point[None])[0]  # noqa: E731
            jacobian = jax.jacrev(of)({name: exact.params[name] for name in ("first", "last")})
            _, cotangent = expected(
                np.asarray(exact.logits(jnp.asarray(point[None]))), np.array([label])
            )
            parts = [np.tensordot(cotangent[0], leaf, 1).ravel() for leaf in jacobian.values()]
            rows.append(np.concatenate(parts))
    kernel = np.stack(rows) @ np.stack(rows).T
    found = ntkscore.ntk(model, x, labels=jnp.asarray(Y), output="loss")
    np.testing.assert_allclose(found, kernel, rtol=1e-3, atol=1e-4 * np.abs(kernel).max())


def test_an_attack_is_a_function_of_a_gradient_images_and_a_key() -> None:
    """One of one's own serves `twice`, `stack` and rows alike, without norm, steps or step size."""
    images, labels = jnp.asarray(X, jnp.float32), jnp.asarray(Y)
    asked = []

    def own(rho: Any) -> Any:
        def attack(gradient: Any, x: Any, key: Any = None) -> Any:
            asked.append(x)
            return jnp.clip(x + rho * jnp.sign(gradient(x)), 0, 1)

        return attack

    gradient = Victim(network(1.0).logits, labels)
    _, again = twice(own(0.1), gradient, images)
    np.testing.assert_allclose(again, twice(fgsm(0.1), gradient, images)[1], atol=1e-6)
    by_own, by_fgsm = (stack(network(1.0), X, Y, make, [0.1]).gram for make in (own, "fgsm"))
    np.testing.assert_array_equal(by_own, by_fgsm)
    ATTACKS["own"] = own
    try:
        rows = scored(network(1.0), X, Y, Config(attack="own", rhos=(0.1,)))
        with refuses(8, expected=("linf", 0, 1)):
            Config(attack="own", rhos=(8.0,))
    finally:
        del ATTACKS["own"]
    assert set(rows["steps"]) == {0} and rows["step_size"].isna().all()
