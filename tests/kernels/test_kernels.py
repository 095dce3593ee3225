"""Every implementation against whole Jacobians in float64, and the public `ntk`."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import naive
import numpy as np
import pytest
from networks import (
    CLASSES,
    EXACT,
    M,
    error,
    perceptron,
    perceptron_params,
    points,
    small,
    small_model,
    small_params,
)
from tiny import refuses

from cells import layers
from ntkscore import grams
from ntkscore.convolutions import CPU_IMAGES, Window, convolve, kernel_gradients
from ntkscore.grams import CPU_BYTES, CPU_COLUMNS, self_product
from ntkscore.kernels import implementations as kernels
from ntkscore.kernels.implementations import evaluate
from ntkscore.kernels.ntk import ntk
from ntkscore.kernels.readouts import IMPLEMENTATIONS, READOUTS
from ntkscore.model import Model, Passes
from ntkscore.trace.parameters import (
    PARAMETER_SETS,
    join_parameters,
    kind_of,
    split_parameters,
    total,
)
from ntkscore.trace.passes import passes_of

Array = jax.Array
READINGS = tuple((output, parameters) for output in READOUTS for parameters in PARAMETER_SETS)
QUICK = (("sum", "all"), ("trace", "weights"), ("label", "conv_linear"), ("loss", "all"))
"""Every output and every parameter set; the other readings are as many programs again."""
GROUPS = 2


def branch(index: int) -> Array:
    return jnp.asarray(index, jnp.int32)


small_compiled = jax.jit(small)


@pytest.fixture(scope="module")
def small_kernels() -> dict[int, dict]:
    """The oracle's kernels of the small network, by branch."""
    with jax.enable_x64(True):
        run = jax.jit(lambda p, x, y, i: naive.kernels(lambda p, x: small(p, x, i), p, x, y))
        return {i: run(small_params(), *points(), branch(i)) for i in (0, 1)}


@lru_cache
def kernels_by_reading(
    implementation: str, readings: tuple[tuple[str, str], ...]
) -> dict[int, dict]:
    """Kernels and logits of the small network by branch and reading, in one program."""

    @jax.jit
    def run(params: Any, images: Array, labels: Array, index: Array) -> dict:
        model = small_model(params, index)
        return {
            reading: evaluate(model, images, labels, *reading, implementation)[:2]
            for reading in readings
        }

    with jax.enable_x64(True):
        return {i: run(small_params(), *points(), branch(i)) for i in (0, 1)}


@pytest.mark.parametrize(
    "reading",
    [pytest.param(r, marks=() if r in QUICK else pytest.mark.thorough) for r in READINGS],
    ids="-".join,
)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_every_kernel_of_every_layer(
    double, small_kernels, implementation: str, reading: tuple[str, str]
) -> None:
    params, (images, _) = small_params(), points()
    others = tuple(r for r in READINGS if r not in QUICK)
    found = kernels_by_reading(implementation, QUICK if reading in QUICK else others)
    for index, expected in small_kernels.items():
        gram, logits = found[index][reading]
        assert gram.shape == (1, M, M)
        assert error(gram[0], expected[reading]) < EXACT
        assert error(logits, small_compiled(params, images, branch(index))) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_groups_have_their_first_images_in_common(double, implementation: str) -> None:
    params, (images, labels) = small_params(), points(2 * (1 + 2 * GROUPS))

    @jax.jit
    def run(params: Any, images: Array) -> tuple[Array, Array]:
        model = small_model(params, branch(1))
        compute = partial(evaluate, model, images, labels, "loss", "weights", implementation)
        return compute(groups=GROUPS)[0], compute()[0]

    grouped, whole = run(params, images)
    for group, gram in enumerate(grouped):
        members = np.r_[0:2, 2 + 4 * group : 6 + 4 * group]
        assert error(gram, whole[0][np.ix_(members, members)]) < EXACT


def test_one_pass_for_several_outputs_gives_each_and_the_logits(double, small_kernels) -> None:
    params, (images, labels) = small_params(), points()
    outputs = ("label", "trace", "sum")

    @jax.jit
    def together(images: Array, labels: Array) -> Any:
        return kernels.layerwise_by_kind(small_model(params, branch(1)), images, labels, outputs)

    grams, logits, _ = together(images, labels)
    assert error(logits, small_compiled(params, images, branch(1))) < EXACT
    for output, by_kind in zip(outputs, grams, strict=True):
        for parameters in PARAMETER_SETS:
            got = total(by_kind, parameters)[0]
            assert error(got, small_kernels[1][output, parameters]) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 3, M])
def test_any_number_of_columns_at_once(double, monkeypatch, small_kernels, chunk: int) -> None:
    monkeypatch.setattr(kernels, "COLUMNS", chunk)
    run = jax.jit(
        lambda params, images, labels: evaluate(
            small_model(params, branch(1)), images, labels, "trace", "weights", "ntvp"
        )
    )
    gram, *_ = run(small_params(), *points())
    assert error(gram[0], small_kernels[1]["trace", "weights"]) < EXACT


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_float32_stays_float32(small_kernels, implementation: str) -> None:
    params, images = jax.tree.map(lambda a: a.astype(jnp.float32), (small_params(), points()[0]))
    model, (_, labels) = small_model(params, branch(1)), points()
    got = ntk(model, images, labels=labels, output="loss", implementation=implementation)
    assert got.dtype == jnp.float32
    assert error(got, small_kernels[1]["loss", "all"]) < 1e-4


@pytest.mark.parametrize("index", [0, 1])
def test_an_empty_mapping_asks_for_the_gradient_in_the_images(double, index: int) -> None:
    images, cotangent = points()[0], jnp.eye(M, CLASSES)
    zeros = {kind: jnp.zeros((1, M, M)) for kind in PARAMETER_SETS["all"]}

    @jax.jit
    def pulled(params: Any, images: Array, index: Array) -> list[Array]:
        model = small_model(params, index)
        passes = passes_of(model, images)
        _, residuals = passes.forward(params, images)
        alone, by_kind = passes.gram_by_kind(params, [residuals], cotangent, {})
        assert not by_kind
        # It is also right beside the Gram matrices, and where nothing else is asked for.
        beside, _ = passes.gram_by_kind(params, [residuals], cotangent, zeros)
        plain = jax.vjp(model.logits, images)[1](cotangent)[0]
        return [plain, alone, beside, passes.gradient(params, residuals, cotangent)]

    plain, *got = pulled(small_params(), images, branch(index))
    for each in got:
        assert error(each, plain) < EXACT


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("columns", [1, 7, 2 * CPU_COLUMNS, CPU_COLUMNS + 1])
@pytest.mark.parametrize("whole", [0, CPU_BYTES])
def test_the_gram_matrix_of_rows(double, monkeypatch, count: int, columns: int, whole: int) -> None:
    monkeypatch.setattr(grams, "CPU_BYTES", whole)
    rows = jnp.asarray(np.random.default_rng(columns).normal(size=(count, columns)))
    (got,) = self_product(rows, 1)
    assert error(got, rows @ rows.T) < EXACT


SHAPES = [(3, 1), (3, 2), (1, 1)]
"""Kernel size and stride of every convolution that the network has."""


def convolution_data(count: int, size: int, stride: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(size + stride)
    height, width = 6, 4
    x = rng.normal(size=(count, height, width, 2))
    g = rng.normal(size=(count, height // stride, width // stride, 3))
    kernel = rng.normal(size=(size, size, 2, 3))
    return jnp.asarray(x), jnp.asarray(g), jnp.asarray(kernel)


@pytest.mark.parametrize("count", [1, 3, CPU_IMAGES, 2 * CPU_IMAGES + 3])
@pytest.mark.parametrize(("size", "stride"), SHAPES)
def test_kernel_gradients_of_each_image(double, count: int, size: int, stride: int) -> None:
    x, g, kernel = convolution_data(count, size, stride)
    window = Window.square(size, stride)

    @jax.jit
    @jax.vmap
    def expected(x: Array, g: Array) -> Array:
        one = lambda kernel: convolve(x[None], kernel, window)[0]  # noqa: E731
        return jax.vjp(one, kernel)[1](g)[0]

    compute = jax.jit(kernel_gradients, static_argnums=(2, 3, 4))
    for channels_first in (False, True):
        got = compute(x, g, (size,) * 2, window, channels_first)
        assert got.shape == (count, size, 2, size, 3)
        assert error(got.swapaxes(2, 3), expected(x, g)) < EXACT


@pytest.mark.parametrize(("size", "stride"), SHAPES)
def test_a_convolution_is_pulled_back(double, size: int, stride: int) -> None:
    x, g, kernel = convolution_data(2, size, stride)
    window = Window.square(size, stride)
    (expected,) = jax.vjp(lambda x: convolve(x, kernel, window), x)[1](g)
    (got,) = jax.vjp(lambda x: layers.pulled_convolve(x, kernel, window), x)[1](g)
    assert error(got, expected) < EXACT


@lru_cache
def perceptron_kernels() -> dict:
    with jax.enable_x64(True):
        return jax.jit(partial(naive.kernels, perceptron))(perceptron_params(), *points(5, 4))


@pytest.mark.slow
@pytest.mark.parametrize("parameters", PARAMETER_SETS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_kernels_of_a_network_that_is_not_ours(
    double, implementation: str, parameters: str
) -> None:
    model, (images, labels) = Model(perceptron, perceptron_params()), points(5, 4)
    for output in READOUTS:
        got = ntk(
            model,
            images,
            labels=labels,
            output=output,
            parameters=parameters,
            implementation=implementation,
        )
        assert error(got, perceptron_kernels()[output, parameters]) < EXACT


class Equinox(eqx.Module):
    """The same perceptron, whose leaves are attributes."""

    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __call__(self, x: Array) -> Array:
        return self.out(jnp.tanh(self.hidden(jnp.tanh(x.ravel()))))


def test_an_equinox_module_has_the_kernels_of_its_parameters(double) -> None:
    def linear(layer: dict[str, Array]) -> eqx.nn.Linear:
        inputs, outputs = layer["kernel"].shape
        module = eqx.nn.Linear(inputs, outputs, key=jax.random.key(0))
        leaves = lambda module: (module.weight, module.bias)  # noqa: E731
        return eqx.tree_at(leaves, module, (layer["kernel"].T, layer["bias"]))

    module = Equinox(**{name: linear(layer) for name, layer in perceptron_params().items()})
    params, static = eqx.partition(module, eqx.is_array)
    model = Model(lambda params, x: jax.vmap(eqx.combine(params, static))(x), params)
    for parameters in PARAMETER_SETS:
        x, y = points(5, 4)
        got = ntk(model, x, labels=y, output="label", parameters=parameters)
        assert error(got, perceptron_kernels()["label", parameters]) < EXACT


def test_parameters_are_split_and_joined_without_loss() -> None:
    one = jnp.ones((2, 2))
    params = {
        "a": {"kernel": 1 * one, "scale": 2 * one, "shift": 3 * one},
        "b": {"kernel": 4 * one, "bias": 5 * one},
    }
    for parameters, names in naive.LEAVES.items():
        inside, outside = split_parameters(params, parameters)
        assert {path[-1].key for path, _ in jax.tree.leaves_with_path(inside)} == set(names)
        chex.assert_trees_all_equal(join_parameters(inside, outside), params)


def test_the_last_telling_name_gives_a_parameters_kind() -> None:
    norm = eqx.filter(eqx.nn.LayerNorm(3), eqx.is_array)
    linear = eqx.filter(eqx.nn.Linear(2, 3, key=jax.random.key(0)), eqx.is_array)
    tree = {
        "kernel": jnp.ones(3),
        "norm": norm,
        "linear": linear,
        "embedding": {"table": jnp.ones((2, 2))},
        "head": {"scale": jnp.ones(1), "shift": jnp.ones(1), "bias": (jnp.ones(1), jnp.ones(1))},
    }
    leaves = jax.tree.leaves_with_path(tree)
    assert {jax.tree_util.keystr(path): kind_of(path, leaf) for path, leaf in leaves} == {
        "['kernel']": "weight",
        "['norm'].weight": "scale",
        "['norm'].bias": "shift",
        "['linear'].weight": "weight",
        "['linear'].bias": "shift",
        "['embedding']['table']": "weight",
        "['head']['scale']": "scale",
        "['head']['shift']": "shift",
        "['head']['bias'][0]": "shift",
        "['head']['bias'][1]": "shift",
    }


@pytest.mark.parametrize(
    ("params", "came"),
    [
        (jnp.ones((3, 2)), "array"),
        ([jnp.ones((3, 2))], "[0]"),
        ({"w": jnp.ones((3, 2))}, "['w']"),
    ],
)
def test_without_a_trace_parameters_need_a_telling_name(params: Any, came: str) -> None:
    model = Model(lambda params, x: x @ jax.tree.leaves(params)[0], params)
    whole = ntk(model, jnp.eye(3))
    for implementation in ("layerwise", "contraction", "ntvp"):
        weights = ntk(model, jnp.eye(3), parameters="weights", implementation=implementation)
        np.testing.assert_allclose(weights, whole)
    # A network with passes of its own is not traced.
    own: Any = type("Own", (Passes,), {})()
    model = model._replace(passes=own)
    for implementation in ("contraction", "ntvp"):
        with refuses(came, expected=("kernel", "weight", "bias"), remedy="'all'"):
            ntk(model, jnp.eye(3), parameters="weights", implementation=implementation)


@pytest.mark.parametrize("parameters", PARAMETER_SETS)
def test_layerwise_tells_parameters_without_names_by_their_use(double, parameters: str) -> None:
    named, (images, labels) = perceptron_params(), points(5, 4)
    named["out"] |= {"scale": jnp.linspace(0.5, 2, CLASSES)}
    leaves, tree = jax.tree.flatten(named)

    def scaled(params: Any, x: Array) -> Array:
        return perceptron(params, x) * params["out"]["scale"]

    model = Model(lambda params, x: scaled(jax.tree.unflatten(tree, params), x), leaves)
    got = ntk(
        model,
        images,
        labels=labels,
        output="label",
        parameters=parameters,
        implementation="layerwise",
    )
    expected = naive.kernel(scaled, named, images, labels, "label", parameters)
    assert error(got, expected) < EXACT


def linear(weights: Array, points: Array) -> Array:
    return points.reshape(len(points), -1) @ weights


@pytest.mark.parametrize(
    ("choices", "got", "expected"),
    [
        ({"output": "mean"}, "mean", ("output", "classes", "full")),
        ({"parameters": "bias"}, "bias", ("parameters", "conv_linear")),
        ({"implementation": "jacobian"}, "jacobian", ("implementation", "ntvp")),
        ({"output": "label"}, "labels", ("output", "label")),
        ({"output": "loss"}, "labels", ("output", "loss")),
    ],
)
def test_choices_that_do_not_fit_are_refused(
    choices: dict[str, str], got: str, expected: tuple
) -> None:
    with refuses(got, expected=expected):
        ntk(Model(linear, jnp.ones((3, 2))), jnp.eye(3), **choices)


@pytest.mark.parametrize("implementation", ["layerwise", "contraction"])
def test_coupled_points_are_refused_by_what_takes_them_for_single(implementation: str) -> None:
    model = Model(linear, jnp.ones((3, 2)), coupled=True)
    with refuses(implementation, expected="ntvp", remedy="ntvp"):
        ntk(model, jnp.eye(3), implementation=implementation)
    assert ntk(model, jnp.eye(3)).shape == (3, 3)


def test_auto_is_the_fastest_that_is_exact() -> None:
    for model in (Model(linear, jnp.ones((3, 2))), small_model(small_params(), branch(0))):
        assert kernels.implementation_for(model) == "layerwise"
        assert kernels.implementation_for(model._replace(coupled=True)) == "ntvp"
        for name in IMPLEMENTATIONS:
            assert kernels.implementation_for(model, name) == name


def test_points_and_labels_may_be_plain_arrays() -> None:
    model = Model(linear, jnp.ones((3, 2)))
    points = np.eye(3, dtype=np.float32)
    labels = jnp.asarray([0, 1, 1])
    expected = ntk(model, jnp.asarray(points), labels=labels, output="label")
    np.testing.assert_array_equal(ntk(model, points, labels=[0, 1, 1], output="label"), expected)


@pytest.mark.parametrize("implementation", ["auto", "ntvp"])
def test_the_kernel_is_compiled_once_for_functions_and_shapes(implementation: str) -> None:
    traces = []

    def counted(weights: Array, points: Array) -> Array:
        traces.append(points.shape)
        return linear(weights, points)

    model, x = Model(counted, jnp.ones((3, 2))), jnp.eye(3)[:2]
    for scale in range(1, 5):
        kernel = ntk(
            model._replace(params=scale * model.params), scale * x, implementation=implementation
        )
        np.testing.assert_array_equal(kernel, 2 * scale**2 * np.eye(2))
        if scale == 1:
            first = len(traces)
        # Each call traces the function once, to know whether it is as it was.
        assert len(traces) == first + scale - 1
    ntk(model, jnp.eye(3), implementation=implementation)
    assert len(traces) >= first + 4


def test_a_models_logits_are_those_of_its_passes() -> None:
    images = points()[0].astype(jnp.float32)
    params = jax.tree.map(lambda a: a.astype(jnp.float32), small_params())
    model = small_model(params, branch(1))
    passes = passes_of(model, images)

    def read(logits_of: Callable[[Array], Array]) -> Any:
        """Logits, and the gradient of a reading of them in the images."""

        def loss(x: Array) -> tuple[Array, Array]:
            logits = logits_of(x)
            return jnp.sum(jnp.sin(logits)), logits

        slope, logits = jax.jit(jax.grad(loss, has_aux=True))(images)
        return logits, slope

    (logits, slope), traced = read(model.logits), read(lambda x: passes.forward(params, x)[0])
    assert logits.shape == (M, CLASSES)
    assert float(jnp.max(jnp.abs(slope))) > 1e-3
    chex.assert_trees_all_close((logits, slope), traced, rtol=1e-3, atol=1e-5)
