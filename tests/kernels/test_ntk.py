"""Kernels of two sets of points, of whole outputs and by leaf, and features, against Jacobians."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from networks import EXACT, error, perceptron, perceptron_params, points, small, small_params
from tiny import refuses
from zoo import NETWORKS
from zoo.networks import images_of

from ntkscore import Model, gradient_features, ntk
from ntkscore.kernels import plain
from ntkscore.trace import blocks, pairs, product_kernels

LITTLE = 2**14
"""Bytes that hold neither what a forward pass leaves nor what the kernel is made of."""
READINGS = {
    "sum": lambda f, y: f.sum()[None],
    "trace": lambda f, y: f / len(f) ** 0.5,
    "label": lambda f, y: f[y][None],
    "loss": lambda f, y: -jax.nn.log_softmax(f)[y][None],
    "classes": lambda f, y: f,
}


def leaves_of(model: Model, x: Any, y: Any, output: str = "classes") -> list[np.ndarray]:
    """The Jacobian of an output at each point, leaf by leaf: (m, k, parameters)."""

    def read(params: Any, point: Any, label: Any) -> Any:
        return READINGS[output](model.apply(params, point[None])[0], label)

    rows = jax.jit(jax.vmap(jax.jacrev(read), (None, 0, 0)))(model.params, x, y)
    return [np.asarray(row).reshape(*row.shape[:2], -1) for row in jax.tree.leaves(rows)]


def parts_of(model: Model, one: Any, other: Any, output: str = "classes") -> Any:
    """The Jacobians at two sets of points with labels, which are compiled together."""
    rows = leaves_of(model, *map(jnp.concatenate, zip(one, other, strict=True)), output)
    return [row[: len(one[0])] for row in rows], [row[len(one[0]) :] for row in rows]


def full(one: list[np.ndarray], other: list[np.ndarray]) -> Any:
    """The kernel of each two outputs at each two points, (m, n, o, o)."""
    return sum(np.einsum("iap,jbp->ijab", a, b) for a, b in zip(one, other, strict=True))


def convolutional() -> Model:
    return Model(lambda w, x: small(w, x, jnp.asarray(1)), small_params())


def dense() -> Model:
    return Model(perceptron, perceptron_params(8 * 8 * 3))


@pytest.fixture
def blocks_of_three(double: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seven points are three blocks, of which the last is filled up."""
    monkeypatch.setattr(blocks, "BLOCK", 3)
    yield


@pytest.mark.usefixtures("blocks_of_three")
@pytest.mark.parametrize("output", READINGS)
@pytest.mark.parametrize("network", [convolutional, dense])
def test_two_sets_of_points_have_the_kernel_of_their_jacobians(network: Any, output: str) -> None:
    (x, y), (z, u) = points(7), points(12)
    z, u, model = z[7:], u[7:], network()
    one, other = parts_of(model, (x, y), (z, u), output)
    want = np.einsum("ijkk->kij", full(one, other))
    want = want if output == "classes" else want.sum(0)
    got = ntk(model, x, z, labels=(y, u), output=output)
    assert got.shape == want.shape and error(got, want) < EXACT
    by_disk = ntk(model, x, z, labels=(y, u), output=output, memory=LITTLE)
    assert error(by_disk, want) < EXACT
    squares = np.einsum("iikk->ki", full(one, one))
    squares = squares if output == "classes" else squares.sum(0)
    assert error(ntk(model, x, labels=y, output=output, diagonal=True), squares) < EXACT
    plain = ntk(model, x, z, labels=(y, u), output=output, implementation="contraction")
    assert error(plain, want) < EXACT


@pytest.mark.usefixtures("blocks_of_three")
@pytest.mark.parametrize("network", [convolutional, dense])
def test_full_outputs_are_the_products_of_whole_jacobians(network: Any) -> None:
    (x, y), model = points(7), network()
    one, other = parts_of(model, (x, y), (x[:4] / 2, y[:4]))
    want = full(one, other)
    for memory in (None, LITTLE):
        got = ntk(model, x, x[:4] / 2, output="full", memory=memory)
        assert got.shape == want.shape and error(got, want) < EXACT
    square = ntk(model, x, output="full")
    assert error(square, full(one, one)) < EXACT
    inside = jax.jit(lambda w, z: ntk(model._replace(params=w), x, z, output="full"))
    assert error(inside(model.params, x[:4] / 2), want) < EXACT


@pytest.mark.usefixtures("double")
def test_sides_need_not_be_multiples_of_a_block(monkeypatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 10)
    (x, y), model = points(100), convolutional()
    rows = leaves_of(model, x, y)
    want = full([row[:47] for row in rows], [row[47:] for row in rows])
    assert error(ntk(model, x[:47], x[47:], output="full", memory=2**20), want) < EXACT


@pytest.mark.usefixtures("double")
def test_kernels_by_leaf_are_those_of_each_leafs_jacobian(monkeypatch) -> None:
    (x, y), model = points(5), convolutional()
    one, other = parts_of(model, (x, y), (x[:2] / 2, y[:2]), "sum")
    for way in ("by rows", "by positions"):
        by_positions = way == "by positions"
        monkeypatch.setattr(
            product_kernels, "cheaper_by_positions", lambda *of, way=by_positions: way
        )
        monkeypatch.setattr(pairs, "CHUNK_BYTES", 2**12)
        product_kernels.gram.clear_cache()
        got = ntk(model, x, x[:2] / 2, per_leaf=True)
        squares = ntk(model, x, per_leaf=True, diagonal=True)
        assert jax.tree.structure(got) == jax.tree.structure(model.params)
        for a, b, gram, own in zip(one, other, *map(jax.tree.leaves, (got, squares)), strict=True):
            assert error(gram, full([a], [b])[..., 0, 0]) < EXACT
            assert error(own, np.einsum("ikp,ikp->i", a, a)) < EXACT
    product_kernels.gram.clear_cache()


@pytest.mark.usefixtures("double")
def test_parameters_are_chosen_by_their_paths() -> None:
    (x, y), model = points(4), convolutional()
    by_leaf = dict(
        zip(
            [
                jax.tree_util.keystr(path, simple=True, separator="/")
                for path, _ in jax.tree_util.tree_leaves_with_path(model.params)
            ],
            leaves_of(model, x, y, "sum"),
            strict=True,
        )
    )
    for chosen in ("head/*", "*/kernel", lambda path: path in ("stem/scale", "head/bias")):
        is_in = chosen if callable(chosen) else lambda path, p=chosen: p.strip("*") in path
        rows = [row for path, row in by_leaf.items() if is_in(path)]
        want = full(rows, rows)[..., 0, 0]
        assert (
            0 < len(rows) < len(by_leaf) and error(ntk(model, x, parameters=chosen), want) < EXACT
        )
        plainly = ntk(model, x, parameters=chosen, implementation="contraction")
        assert error(plainly, want) < EXACT
    with refuses("heads/*", expected="parameters", remedy="head/bias"):
        ntk(model, x, parameters="heads/*")


SIDES = {"pixel-lstm": 3}
DAILY = {"resnet18", "vit", "pixel-lstm", "weight-normed", "equinox-convnet", "arrays"}
"""Enough for most days: tests/trace/test_zoo.py has the square kernel of each."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.thorough] * (n not in DAILY)) for n in NETWORKS]
)
def test_networks_of_others_have_the_kernel_of_two_sets(double, monkeypatch, name: str) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 2)
    with jax.numpy_dtype_promotion("standard"):
        x = images_of(5, SIDES.get(name, 8), jnp.float64)
        model, y = NETWORKS[name](x), jnp.zeros(5, int)
        jacobian = [np.delete(row, range(3, row.shape[1]), 1) for row in leaves_of(model, x, y)]

        def three(params: Any, points: Any) -> Any:
            return model.apply(params, points)[:, :3]

        want = full([row[:3] for row in jacobian], [row[3:] for row in jacobian])
        got = ntk(model._replace(apply=three), x[:3], x[3:], output="full")
        assert error(got, want) < EXACT


def test_what_does_not_fit_is_refused() -> None:
    (x, y), model = points(3), dense()
    with refuses((3,), expected="(m, 8, 8, 3)", remedy="labels=…"):
        ntk(model, x, y)
    choices: Any
    for choices in ({"output": "full"}, {"others": x}):
        with refuses(choices.get("output", "sum"), expected="diagonal"):
            ntk(model, x, diagonal=True, **choices)
    for choices in ({"others": x}, {"per_leaf": True}, {"output": "classes"}):
        with refuses("coupled=True"):
            ntk(model._replace(coupled=True), x, **choices)
    with refuses(3, expected="labels"):
        ntk(model, x, x, labels=y, output="label")
    with refuses(0, expected="size"):
        gradient_features(model, x, 0)
    with refuses("jax.jit", expected="weights"):
        jax.jit(lambda x: gradient_features(model, x, 8))(x)


@pytest.mark.usefixtures("double")
def test_a_wrong_trace_is_found_and_the_jacobian_taken(monkeypatch, caplog) -> None:
    (x, y), model = points(3), dense()
    rows = leaves_of(model, x, y)
    want = full(rows, [row[:2] for row in rows])
    monkeypatch.setattr(plain, "wrong_leaves", lambda *of: ["['head']"])
    assert error(ntk(model, x, x[:2], output="full", check=True), want) < EXACT
    assert "another kernel than its Jacobian for params['head']" in caplog.text


@pytest.mark.usefixtures("blocks_of_three")
@pytest.mark.parametrize("factored", [False, True])
@pytest.mark.parametrize("output", ["sum", pytest.param("trace", marks=pytest.mark.thorough)])
def test_features_are_right_in_the_mean_and_err_as_they_say(output: str, factored: bool) -> None:
    (x, _), size, draws = points(7), 16 if factored else 64, 30
    model = dense() if factored or output == "trace" else convolutional()
    exact = np.asarray(ntk(model, x, output=output))
    options = {"output": output, "factored": factored}
    drawn = [gradient_features(model, x, size, seed=seed, **options) for seed in range(draws)]
    squares = np.diag(exact)
    # Of several outputs each has draws of its own, and the errors partly cancel.
    bound = np.sqrt((np.outer(squares, squares) + exact**2) / size)
    if factored:  # sixteen numbers are four before and four after
        bound = np.sqrt((1 + 2 / 4) ** 2 - 1) * np.sqrt(np.outer(squares, squares))
    errors = np.stack([each @ each.T for each in drawn]) - exact
    assert (abs(errors.mean(0)) < 4 * bound / np.sqrt(draws)).all()
    # A standard deviation from 30 draws has an error of an eighth.
    spread = np.sqrt((errors**2).mean(0))
    assert (spread < 1.4 * bound).all() and (spread > 0.1 * bound).any()
    few = gradient_features(model, x[2:5], size, seed=0, **options)
    assert error(few, drawn[0][2:5]) < EXACT


@pytest.mark.usefixtures("double")
def test_features_are_of_the_parameters_that_are_asked_for() -> None:
    (x, _), model = points(3), dense()
    for parameters in ("weights", "conv_linear"):
        features = gradient_features(model, x, 2**16, parameters=parameters)
        assert error(features @ features.T, ntk(model, x, parameters=parameters)) < 0.03
    flat, (size, weights) = x.reshape(3, -1), jnp.full((2, 192, 3), 0.1)
    together = Model(
        lambda w, x: x @ (w["size"] * w["weights"]), {"size": size, "weights": 2 * weights}
    )
    features = gradient_features(together, flat, 2**16, parameters="size")
    assert error(features @ features.T, ntk(together, flat, parameters="size")) < 0.03


def test_features_in_a_folder_are_computed_once(tmp_path, monkeypatch) -> None:
    from ntkscore.kernels import features

    monkeypatch.setattr(features, "PART", 3)
    (x, _), model = points(8), dense()
    want = gradient_features(model, x, 16)
    assert error(gradient_features(model, x, 16, out=tmp_path), want) < 1e-6
    (tmp_path / "000000003.npz").unlink()
    kept = (tmp_path / "000000000.npz").stat().st_mtime_ns
    assert error(gradient_features(model, x, 16, out=tmp_path), want) < 1e-6
    assert (tmp_path / "000000000.npz").stat().st_mtime_ns == kept
    for what, given in (("settings", {"seed": 1}), ("points", {"points": x / 2})):
        with refuses(what, expected=tmp_path):
            gradient_features(**{"model": model, "points": x, "size": 16, "out": tmp_path} | given)
    other = model._replace(apply=lambda params, x: jnp.tanh(model.apply(params, x)))
    with refuses("logits", expected=tmp_path):
        gradient_features(other, x, 16, out=tmp_path)
