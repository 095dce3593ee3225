"""Products with the kernel, and its scores without a matrix."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from networks import EXACT, error, perceptron, perceptron_params, points, small, small_params
from scipy.sparse.linalg import eigsh
from tiny import refuses

from ntkscore import Model, ntk, ntk_operator
from ntkscore.kernels import operator

OUTPUTS = ("sum", "trace", "label", "loss", "full")


def convolutional() -> Model:
    return Model(lambda w, x: small(w, x, jnp.asarray(1)), small_params())


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("output", "parameters"),
    [*((output, "all") for output in OUTPUTS), ("full", "conv_linear"), ("loss", "head/*")],
)
def test_products_are_those_of_the_matrix(monkeypatch, output: str, parameters: str) -> None:
    monkeypatch.setattr(operator, "BLOCK", 3)
    (x, y), model = points(7), convolutional()
    choices: Any = {"labels": y, "output": output, "parameters": parameters}
    matrix = np.asarray(ntk(model, x, **choices))
    if output == "full":
        matrix = matrix.transpose(0, 2, 1, 3).reshape(7 * 3, 7 * 3)
    got = ntk_operator(model, x, **choices)
    vectors = np.random.default_rng(0).normal(size=(len(matrix), 2))
    assert got.shape == matrix.shape
    assert error(got @ vectors, matrix @ vectors) < EXACT
    assert error(got.product(jnp.asarray(vectors[:, 0])), matrix @ vectors[:, 0]) < EXACT
    assert error(eigsh(got, 1)[0], [np.linalg.eigvalsh(matrix)[-1]]) < EXACT


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("parameters", ["all", "weights", "conv_linear", "1"])
def test_leaves_without_names_count_by_their_use(parameters: str) -> None:
    rng = np.random.default_rng(1)
    params = [jnp.asarray(rng.normal(size=size)) for size in ((192, 6), 6, 6, (6, 3))]

    def apply(w: Any, x: Any) -> Any:
        return jnp.tanh(x.reshape(len(x), -1) @ w[0] * w[1] + w[2]) @ w[3]

    (x, _), model = points(5), Model(apply, params)
    matrix = np.asarray(ntk(model, x, parameters=parameters))
    got = ntk_operator(model, x, parameters=parameters) @ np.eye(5)
    assert error(got, matrix) < EXACT


@pytest.mark.usefixtures("double")
def test_points_that_meet_each_other_have_products_too() -> None:
    x, _ = points(5)
    coupled = Model(
        lambda w, x: perceptron(w, x - x.mean(0)), perceptron_params(8 * 8 * 3), coupled=True
    )
    vector = np.arange(5.0)
    assert error(ntk_operator(coupled, x) @ vector, ntk(coupled, x) @ vector) < EXACT


@pytest.mark.usefixtures("double")
def test_scores_without_a_matrix_err_no_more_than_they_say() -> None:
    (x, _), model = points(24), convolutional()
    values = np.linalg.eigvalsh(ntk(model, x))
    found = ntk_operator(model, x).scores(probes=200)
    assert found["trace"].value == pytest.approx(values.sum(), rel=1e-10)
    norm = found["frobenius"]
    assert abs(norm.value - np.linalg.norm(values)) < 4 * norm.error
    for name, place in (("lambda_max", -1), ("lambda_min", 0)):
        value, residual = found[name]
        assert abs(value - values[place]) <= max(residual, 1e-9 * values[-1])
        assert residual < 1e-3 * values[-1]


def test_operators_of_what_has_no_values_are_refused() -> None:
    (x, _), model = points(3), convolutional()
    with refuses("classes", expected=("output", "sum", "full")):
        ntk_operator(model, x, output="classes")
    with refuses(1, expected="probes"):
        ntk_operator(model, x).scores(probes=1)
    with refuses("jax.jit", expected="points"):
        jax.jit(lambda x: ntk_operator(model, x).product(jnp.ones(3)))(x)
