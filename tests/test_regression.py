"""Regression with a kernel, against its definitions, scikit-learn and neural-tangents."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator
from tiny import refuses

from ntkscore import regression
from ntkscore.regression import KernelRegression, alignment, distance

RNG = np.random.default_rng(0)
COUNT, NEW, ALPHA = 60, 9, 0.03


def kernel(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.exp(-np.square(x[:, None] - z[None]).sum(-1))


X, Z = RNG.normal(size=(COUNT, 2)), RNG.normal(size=(NEW, 2))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], 1) + 0.1 * RNG.normal(size=(COUNT, 2))
K, CROSS = kernel(X, X), kernel(Z, X)


@pytest.fixture
def by_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regression, "CHOLESKY_POINTS", 10)
    monkeypatch.setattr(regression, "TOLERANCE", 1e-12)


def test_predictions_are_those_of_scikit_learn() -> None:
    ridge = pytest.importorskip("sklearn.kernel_ridge")
    theirs = ridge.KernelRidge(alpha=ALPHA, kernel="precomputed").fit(K, Y)
    ours = KernelRegression(ALPHA).fit(K, Y)
    np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, rtol=1e-8)
    np.testing.assert_allclose(ours.predict(CROSS), theirs.predict(CROSS), rtol=1e-9)
    target = np.sin(Z)
    assert ours.score(CROSS, target) == pytest.approx(theirs.score(CROSS, target), rel=1e-9)
    processes = pytest.importorskip("sklearn.gaussian_process")
    process = processes.GaussianProcessRegressor(
        processes.kernels.RBF(0.5**0.5), alpha=ALPHA, optimizer=None
    ).fit(X, Y)
    mean, deviation = process.predict(Z, return_std=True)
    np.testing.assert_allclose(ours.predict(CROSS), mean, rtol=1e-8)
    variance = ours.variance(CROSS, np.ones(NEW))
    np.testing.assert_allclose(variance, deviation[:, 0] ** 2, rtol=1e-6)


@pytest.mark.usefixtures("by_gradients")
@pytest.mark.parametrize("given", [np.asarray, aslinearoperator])
def test_conjugate_gradients_solve_the_same_equations(given: Any) -> None:
    found = KernelRegression(ALPHA).fit(given(K), Y)
    want = np.linalg.solve(K + ALPHA * np.eye(COUNT), Y)
    np.testing.assert_allclose(found.dual_coef_, want, rtol=1e-7, atol=1e-8)
    with refuses(expected=10):
        found.leave_one_out()


def test_the_preconditioner_makes_gradients_few(monkeypatch: pytest.MonkeyPatch) -> None:
    x = RNG.normal(size=(800, 2))
    operator, shifted = aslinearoperator(kernel(x, x)), kernel(x, x) + 1e-4 * np.eye(800)
    near = regression.nystrom_preconditioner(operator, 1e-4, 200, 0)
    monkeypatch.setattr(regression, "TOLERANCE", 1e-8)
    columns = np.stack([x[:, 0], np.zeros(800), x[:, 1] ** 2], 1)
    (found, few), (_, many) = (
        regression.conjugate_gradients(shifted.__matmul__, columns, each)
        for each in (near, lambda v: v)
    )
    assert few < 60 < 300 < many
    np.testing.assert_allclose(shifted @ found, columns, atol=1e-6)
    assert (found[:, 1] == 0).all()


def test_leaving_a_point_out_is_fitting_without_it() -> None:
    fitted = KernelRegression(ALPHA).fit(K, Y)
    for out in (0, 7):
        rest = np.delete(np.arange(COUNT), out)
        without = KernelRegression(ALPHA).fit(K[np.ix_(rest, rest)], Y[rest])
        error = Y[out] - without.predict(K[out, rest][None])[0]
        np.testing.assert_allclose(fitted.leave_one_out()[out], error, rtol=1e-8)
        np.testing.assert_allclose(fitted.leave_one_out(K)[out], error, rtol=1e-8)
        near = kernel(X + 0.1, X)
        moved = 2 * Y[out] - without.predict(near[out, rest][None])[0]
        np.testing.assert_allclose(fitted.leave_one_out(near, 2 * Y)[out], moved, rtol=1e-8)
    hat = K @ np.linalg.inv(K + ALPHA * np.eye(COUNT))
    errors = np.mean(np.square(Y - hat @ Y), 0) / np.mean(1 - np.diag(hat)) ** 2
    assert fitted.generalized_cross_validation() == pytest.approx(errors.mean(), rel=1e-8)


def test_gradient_flow_starts_at_the_networks_outputs_and_ends_at_the_targets() -> None:
    start, there = RNG.normal(size=Y.shape), RNG.normal(size=(NEW, 2))
    fitted = KernelRegression(1e-8).fit(K, Y, start)
    np.testing.assert_allclose(fitted.predict(CROSS, there, time=0.0), there, atol=1e-12)
    # Euler's steps of ḟ = −K (f − y).
    f, step = start.copy(), 1e-4
    new = there.copy()
    for _ in range(1000):
        new -= step * CROSS @ (f - Y)
        f -= step * K @ (f - Y)
    np.testing.assert_allclose(fitted.predict(CROSS, there, time=0.1), new, atol=1e-2)
    late = KernelRegression(1e-8).fit(K, Y).predict(K, time=1e12)
    np.testing.assert_allclose(late, Y, atol=1e-2)


def test_predictions_are_those_of_neural_tangents(nt: ModuleType) -> None:
    import neural_tangents.predict

    theirs = neural_tangents.predict.gradient_descent_mse(K, Y, diag_reg=0.0)
    ours, time = KernelRegression(0.0 + 1e-9).fit(K, Y), 3.0
    _, want = theirs(time * Y.size, 0.0, 0.0, CROSS)  # their loss is divided by the targets' number
    np.testing.assert_allclose(ours.predict(CROSS, time=time), want, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_solved_is_refused() -> None:
    with refuses(0, remedy="alpha"):
        KernelRegression(0.0).fit(np.ones((3, 3)), np.ones(3))
    with refuses((3, 2), expected=3):
        KernelRegression().fit(np.ones((3, 2)), np.ones(3))


@pytest.mark.parametrize(
    ("kernel", "y", "outputs", "got", "expected"),
    [
        (K, Y[:, 0], Y[:, :1], [(60, 1)], ("outputs", (60,))),
        (K, np.full(COUNT, np.nan), 0.0, [60], "targets"),
        (K * np.inf, Y, 0.0, [3600], "kernel"),
        (kernel(X, X[::-1]), Y, 0.0, [], "symmetric"),
    ],
)
def test_what_would_be_another_regression_is_refused(
    kernel: Any, y: Any, outputs: Any, got: list, expected: Any
) -> None:
    with np.errstate(invalid="ignore"), refuses(*got, expected=expected):
        KernelRegression(ALPHA).fit(kernel, y, outputs)


def test_predictions_take_the_shapes_of_what_was_fitted() -> None:
    fitted, column = KernelRegression(ALPHA).fit(K, Y[:, 0]), np.zeros((NEW, 1))
    for ask, shape in (
        (lambda: fitted.predict(CROSS, column), (NEW, 1)),
        (lambda: fitted.predict(CROSS, column, time=1.0), (NEW, 1)),
        (lambda: fitted.score(CROSS, column), (NEW, 1)),
        (lambda: fitted.variance(CROSS, column), (NEW, 1)),
        (lambda: fitted.leave_one_out(K, Y), Y.shape),
    ):
        with refuses(shape, expected=(shape[:1],)):
            ask()
    for cross in (CROSS.T, CROSS[0]):
        with refuses(cross.shape, expected="(m, 60)"):
            fitted.predict(cross)
    for time in (-1.0, np.inf):
        with refuses(f"{time:g}", expected="time"):
            fitted.predict(CROSS, time=time)
    np.testing.assert_allclose(
        KernelRegression(ALPHA).fit(K.tolist(), Y).predict(CROSS.tolist()),
        KernelRegression(ALPHA).fit(K, Y).predict(CROSS),
    )


@pytest.mark.usefixtures("by_gradients")
@pytest.mark.parametrize("alpha", [0.0, -1.0])
def test_gradients_need_a_ridge(alpha: float) -> None:
    with refuses(f"{alpha:g}", expected="alpha"):
        KernelRegression(alpha).fit(K, Y)


@pytest.mark.usefixtures("by_gradients")
def test_columns_of_nan_are_never_solved() -> None:
    broken = np.where(np.eye(COUNT) > 0, np.nan, K)
    columns = np.ones((COUNT, 1))
    _, steps = regression.conjugate_gradients(broken.__matmul__, columns, lambda v: v)
    assert steps == regression.STEPS


def test_targets_that_are_all_equal_score_as_scikit_learn_says() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    one_class = np.stack([np.zeros(NEW), np.sin(Z[:, 0])], 1)
    fitted = KernelRegression(ALPHA).fit(K, Y)
    found = fitted.predict(CROSS)
    assert fitted.score(CROSS, one_class) == pytest.approx(metrics.r2_score(one_class, found))
    zero = KernelRegression(ALPHA).fit(K, np.zeros(COUNT))
    assert zero.score(CROSS, np.zeros(NEW)) == 1


def test_alignment_is_of_two_kernels_of_the_same_points() -> None:
    y = np.sign(X[:, :1])
    for other in (y, K[:5], K[:5, :5]):
        for call in (alignment, distance):
            with refuses(K.shape, other.shape, remedy="np.outer(y, y)"):
                call(K, other)
    assert np.isnan(alignment(K, np.ones_like(K)))


def test_alignment_is_a_cosine() -> None:
    y = np.sign(X[:, 0])
    assert alignment(np.outer(y, y), 3 * np.outer(y, y) + 2) == pytest.approx(1)
    assert alignment(K, np.eye(COUNT), centred=False) == pytest.approx(
        np.trace(K) / np.linalg.norm(K) / np.sqrt(COUNT)
    )
    assert distance(K, 5 * K) == pytest.approx(0, abs=1e-12)
    assert 0 < distance(K, np.eye(COUNT)) < 1
