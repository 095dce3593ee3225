"""Both implementations against whole Jacobians in float64, and against reference files."""

import itertools
from collections.abc import Iterator
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import naive
import numpy as np
import pytest

from cells import Cell, layers
from cells.checkpoints import read_state_dict
from cells.contributions import CPU_CHUNK, kernel_gradients
from cells.initializers import INITIALIZERS, bias_init, gain
from cells.layers import Norm, transposed_convolve
from cells.network import STATISTICS, Network
from ntkscore import kernels
from ntkscore.kernels import OUTPUTS, PARAMETER_SETS

Array = jax.Array
M, CLASSES, SIZE = 4, 3, 8
READINGS = [(output, parameters) for output in OUTPUTS for parameters in PARAMETER_SETS]
# Every operation on every edge, and the cell without any.
CELLS = ("012340", "123401", "234012", "340123", "401234", "000000")
EXACT = 1e-10


@pytest.fixture(scope="module", autouse=True)
def quick_compilation() -> Iterator[None]:
    """Compiling costs more than running here, so let XLA do little of it."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def error(got: Any, expected: Any) -> float:
    """Relative Frobenius error; absolute where nothing is expected."""
    expected = np.asarray(expected, np.float64)
    return float(np.linalg.norm(np.asarray(got) - expected) / (np.linalg.norm(expected) or 1))


def points(count: int = M, size: int = SIZE) -> tuple[Array, Array]:
    random = np.random.default_rng(3)
    images = random.uniform(size=(count, size, size, 3))
    return jnp.asarray(images), jnp.asarray(random.integers(0, CLASSES, count), jnp.int32)


def digits(cell: str) -> Array:
    return jnp.asarray([int(digit) for digit in cell], jnp.int32)


# A small network with every layer, cheap enough to compile for every kernel.

WIDTHS = {"stem": (3, 3, 3, 4), "strided": (3, 3, 4, 5), "shortcut": (1, 1, 4, 5)}


def small_params() -> dict[str, dict[str, Array]]:
    random = np.random.default_rng(5)
    draw = lambda *shape: jnp.asarray(random.normal(size=shape))  # noqa: E731
    params = {name: {"kernel": draw(*shape)} for name, shape in WIDTHS.items()}
    params["head"] = {"kernel": draw(5, CLASSES), "bias": draw(CLASSES)}
    for name, width in (("stem", 4), ("strided", 5), ("head", 5)):
        params[name] |= {"scale": draw(width), "shift": draw(width)}
    return params


def small(params: Any, images: Array, index: Array, grams: Any = None, gain: float = 0.7) -> Array:
    def norm(name: str) -> Norm:
        width = params[name]["scale"].shape[0]
        given = np.random.default_rng(width).uniform(0.2, 2, (2, width))
        mean, var = jnp.asarray(given, images.dtype)
        return Norm(params[name]["scale"], params[name]["shift"], mean, var)

    def convolution(x: Array, kernel: Array, norm: Norm, grams: Any) -> Array:
        return layers.convolution(jax.nn.relu(x), kernel, norm, grams, stride=2, gain=gain)

    def pooled(x: Array, kernel: Array, norm: Norm, grams: Any) -> Array:
        return jnp.concatenate([layers.average_pool_2x2(x), layers.average_pool_2x2(x)[..., :1]], 3)

    x = layers.convolution(images, params["stem"]["kernel"], norm("stem"), grams, gain=gain)
    y = layers.select(
        index,
        (pooled, convolution),
        layers.average_pool_3x3(x),
        params["strided"]["kernel"],
        norm("strided"),
        grams,
        tapped=grams is not None,
    )
    y += layers.convolution(
        layers.average_pool_2x2(x), params["shortcut"]["kernel"], None, grams, gain=gain
    )
    y = jnp.mean(jax.nn.relu(layers.normalization(y, norm("head"), grams)), (1, 2))
    return layers.dense(y, params["head"]["kernel"], params["head"]["bias"], grams, gain=gain)


small_compiled = jax.jit(small)


@pytest.fixture(scope="module")
def small_kernels() -> dict[int, dict]:
    with jax.enable_x64(True):
        run = jax.jit(lambda p, x, y, i: naive.kernels(lambda p, x: small(p, x, i), p, x, y))
        return {i: run(small_params(), *points(), jnp.asarray(i, jnp.int32)) for i in (0, 1)}


@pytest.mark.parametrize(("output", "parameters"), READINGS)
def test_every_kernel_of_every_layer(double, small_kernels, output, parameters) -> None:
    params, (images, labels) = small_params(), points()
    for branch, expected in small_kernels.items():
        index = jnp.asarray(branch, jnp.int32)
        tapped = lambda x, grams, index=index: small_compiled(params, x, index, grams)  # noqa: E731
        plain = lambda params, x, index=index: small_compiled(params, x, index)  # noqa: E731
        fast = kernels.jacobian(tapped, images, labels, output, parameters)
        slow = kernels.ntvp(plain, params, images, labels, output, parameters)
        assert error(fast, expected[output, parameters]) < EXACT
        assert error(slow, expected[output, parameters]) < EXACT


def test_one_pass_for_several_outputs_gives_each_and_the_logits(double, small_kernels) -> None:
    params, (images, labels), index = small_params(), points(), jnp.asarray(1, jnp.int32)

    @jax.jit
    def together(images, labels):
        tapped = lambda images, grams: small(params, images, index, grams)  # noqa: E731
        return kernels.gram_by_kind(tapped, images, labels, ("label", "trace", "sum"))

    grams, logits = together(images, labels)
    assert error(logits, small_compiled(params, images, index)) < EXACT
    for output, by_kind in zip(("label", "trace", "sum"), grams, strict=True):
        for parameters in PARAMETER_SETS:
            got = kernels.gather(by_kind, parameters)
            assert error(got, small_kernels[1][output, parameters]) < EXACT


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_ntvp_by_any_number_of_columns_at_once(double, small_kernels, chunk) -> None:
    apply = lambda params, images: small_compiled(params, images, jnp.asarray(1, jnp.int32))  # noqa: E731
    got = kernels.ntvp(apply, small_params(), *points(), chunk=chunk)
    assert error(got, small_kernels[1]["sum", "all"]) < EXACT


def test_float32_stays_float32(small_kernels) -> None:
    params, images = jax.tree.map(lambda a: a.astype(jnp.float32), (small_params(), points()[0]))
    index, labels = jnp.asarray(1, jnp.int32), points()[1]
    tapped = lambda images, grams: small_compiled(params, images, index, grams)  # noqa: E731
    plain = lambda params, images: small_compiled(params, images, index)  # noqa: E731
    for got in (
        kernels.jacobian(tapped, images, labels, "loss"),
        kernels.ntvp(plain, params, images, labels, "loss"),
    ):
        assert got.dtype == jnp.float32
        assert error(got, small_kernels[1]["loss", "all"]) < 1e-4


def test_an_empty_mapping_asks_for_the_gradient_in_the_images(double) -> None:
    @jax.jit
    def pullback(grams: Any) -> Array:
        index = jnp.asarray(1, jnp.int32)
        forward = lambda images: small(small_params(), images, index, grams)  # noqa: E731
        return jax.vjp(forward, points()[0])[1](jnp.eye(M, CLASSES))[0]

    plain = pullback(None)
    assert error(pullback({}), plain) < EXACT
    # The cotangent of the images is also right beside that of the Gram matrices.
    assert (
        error(pullback({kind: jnp.zeros((M, M)) for kind in PARAMETER_SETS["all"]}), plain) < EXACT
    )


# Convolutions: the gradient of every image, in every shape that the network has.

SHAPES = [(3, 1), (3, 2), (1, 1)]


def convolution_data(count: int, size: int, stride: int) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(size + stride)
    height, width = 6, 4
    x = random.normal(size=(count, height, width, 2))
    g = random.normal(size=(count, height // stride, width // stride, 3))
    kernel = random.normal(size=(size, size, 2, 3))
    return jnp.asarray(x), jnp.asarray(g), jnp.asarray(kernel)


@pytest.mark.parametrize("count", [1, 3, CPU_CHUNK, CPU_CHUNK + 13])
@pytest.mark.parametrize(("size", "stride"), SHAPES)
def test_kernel_gradients_of_each_image(double, count, size, stride) -> None:
    x, g, kernel = convolution_data(count, size, stride)

    @jax.jit
    @jax.vmap
    def expected(x: Array, g: Array) -> Array:
        one = lambda kernel: layers.convolve(x[None], kernel, stride)[0]  # noqa: E731
        return jax.vjp(one, kernel)[1](g)[0]

    got = jax.jit(kernel_gradients, static_argnums=(2, 3))(x, g, size, stride)
    assert got.shape == (count, size, 2, size, 3)
    assert error(got.swapaxes(2, 3), expected(x, g)) < EXACT


@pytest.mark.parametrize(("size", "stride"), SHAPES)
def test_transposed_convolution(double, size, stride) -> None:
    x, g, kernel = convolution_data(2, size, stride)
    (expected,) = jax.vjp(lambda x: layers.convolve(x, kernel, stride), x)[1](g)
    assert error(transposed_convolve(g, kernel, x, stride), expected) < EXACT


# NAS-Bench-201's network.


@lru_cache
def programs(init_name: str = "torch", bn: Any = "calibrated") -> SimpleNamespace:
    """The compiled functions of a network; schemes with the same forward pass can share them."""
    network = Network(4, 1, CLASSES, (0.4, 0.5, 0.6), (0.2, 0.3, 0.25), init_name, bn)

    apply = jax.jit(network.apply)

    def parts(variables, images, labels, digits):
        tapped = lambda images, grams: apply(variables, images, digits, grams)  # noqa: E731
        return kernels.gram_by_kind(tapped, images, labels, OUTPUTS)[0]  # type: ignore[arg-type]

    def whole(variables, images, labels, digits, factors):
        """With the factors of the forward pass as data, so that one program serves all schemes."""

        def scaled(params, images):
            params = jax.tree.map(jnp.multiply, params, factors)
            return apply({**variables, "params": params}, images, digits)

        return naive.kernels(scaled, variables["params"], images, labels)

    return SimpleNamespace(
        network=network,
        apply=apply,
        calibrate=jax.jit(
            lambda v, x, d: network.apply(v, x, d, calibrate=True, mutable=[STATISTICS])[1]
        ),
        parts=jax.jit(parts),
        naive=jax.jit(whole) if init_name == "torch" else None,
    )


@lru_cache
def abstract() -> dict[str, Any]:
    images = jax.ShapeDtypeStruct((1, SIZE, SIZE, 3), jnp.float32)
    return jax.eval_shape(programs().network.init, jax.random.key(0), images, digits(CELLS[0]))


def variables(init_name: str) -> dict[str, Any]:
    """Weights as this scheme draws them, but with scales and shifts that are not 1 and 0."""
    random = np.random.default_rng(11)

    def draw(path: tuple, leaf: Any) -> Array:
        key = jax.random.key(int(random.integers(2**31)))
        name, scheme = path[-1].key, INITIALIZERS[init_name]
        if name == "kernel":
            return scheme.kernel(key, leaf.shape, jnp.float64)
        if name == "bias":
            return bias_init(init_name, 16)(key, leaf.shape, jnp.float64)
        centre = {"scale": 1.0, "shift": 0.0, "mean": 0.0, "var": 1.0}[name]
        spread = 0.0 if path[0].key == STATISTICS else 0.5
        return jnp.asarray(centre + spread * random.normal(size=leaf.shape))

    return jax.tree_util.tree_map_with_path(draw, abstract())


def factors(init_name: str) -> Any:
    """The factor of each parameter in the forward pass; cells have an axis for their place."""

    def factor(path: tuple, leaf: Any) -> Array:
        shape = leaf.shape[1:] if leaf.ndim in (2, 5) and path[0].key != "head" else leaf.shape
        return jnp.asarray(gain(init_name, shape) if path[-1].key == "kernel" else 1.0)

    return jax.tree_util.tree_map_with_path(factor, abstract()["params"])


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """Variables with calibrated statistics, by cell."""
    with jax.enable_x64(True):
        drawn, calibrate = variables("torch"), programs().calibrate
        return {cell: {**drawn, **calibrate(drawn, points()[0], digits(cell))} for cell in CELLS}


@pytest.mark.parametrize("bn", ["calibrated", "init"])
@pytest.mark.parametrize("init_name", INITIALIZERS)
def test_every_initializer_cell_and_kernel(double, init_name, bn) -> None:
    # Schemes without a factor in the forward pass differ in their numbers alone.
    run = programs("torch" if gain(init_name, (3, 3, 4, 4)) == 1 else init_name, bn)
    images, labels = points()
    drawn, scaled = variables(init_name), factors(init_name)
    for cell in CELLS:
        if bn == "calibrated":
            drawn |= run.calibrate(drawn, images, digits(cell))
        arguments = drawn, images, labels, digits(cell)
        parts = run.parts(*arguments)
        expected = programs().naive(*arguments, scaled)
        for output, by_kind in zip(OUTPUTS, parts, strict=True):
            for parameters in PARAMETER_SETS:
                got = kernels.gather(by_kind, parameters)
                assert error(got, expected[output, parameters]) < EXACT, (cell, output, parameters)


def ntvp(run: SimpleNamespace, given: Any, cell: str, output: Any) -> Array:
    return kernels.ntvp(
        lambda params, images: run.apply({**given, "params": params}, images, digits(cell)),
        given["params"],
        *points(),
        output,
    )


def test_ntvp_of_the_network(double, measured) -> None:
    for (cell, given), output in zip(measured.items(), itertools.cycle(OUTPUTS), strict=False):
        expected = programs().naive(given, *points(), digits(cell), factors("torch"))
        assert error(ntvp(programs(), given, cell, output), expected[output, "all"]) < EXACT


def test_kernels_of_images_that_batch_normalisation_couples(double, measured) -> None:
    run, cell = programs(bn="batch"), CELLS[2]
    arguments = *points(), digits(cell), factors("torch")
    expected = run.naive(measured[cell], *arguments)
    for output in ("sum", "loss"):
        assert error(ntvp(run, measured[cell], cell, output), expected[output, "all"]) < EXACT
    # The same statistics held fixed make another kernel.
    fixed = programs().naive(measured[cell], *arguments)
    assert error(fixed["sum", "all"], expected["sum", "all"]) > 0.01


def test_jacobian_refuses_coupled_images(double) -> None:
    drawn, network = variables("torch"), programs(bn="batch").network
    with pytest.raises(ValueError, match=r"expected grams=None where .* use the ntvp implement"):
        kernels.jacobian(lambda x, g: network.apply(drawn, x, digits(CELLS[0]), g), *points())


def test_an_unknown_output_is_named() -> None:
    with pytest.raises(ValueError, match="expected one of sum, trace, label, loss, got 'mean'"):
        kernels.readout("mean", jnp.zeros((2, 3)), jnp.zeros(2, jnp.int32))  # type: ignore[arg-type]


def test_kernels_are_symmetric_and_positive_semidefinite(double, measured) -> None:
    images, labels = points()
    for cell, given in measured.items():
        for by_kind in programs().parts(given, images, labels, digits(cell)):
            for gram in map(np.asarray, by_kind.values()):
                values = np.linalg.eigvalsh(gram)
                assert error(gram, gram.T) < 1e-14
                assert values[0] >= -1e-13 * values[-1]


# Any other function of (params, images).


def perceptron(params: Any, images: Array) -> Array:
    x = images.reshape(len(images), -1)
    for layer in ("hidden", "out"):
        x = jnp.tanh(x) @ params[layer]["kernel"] + params[layer]["bias"]
    return x


@pytest.mark.parametrize("parameters", PARAMETER_SETS)
def test_ntvp_of_a_network_that_is_not_ours(double, parameters) -> None:
    random = np.random.default_rng(0)
    widths = {"hidden": (48, 7), "out": (7, CLASSES)}
    params = {
        name: {
            "kernel": jnp.asarray(random.normal(size=shape)),
            "bias": jnp.asarray(random.normal(size=shape[1])),
        }
        for name, shape in widths.items()
    }
    arguments = params, *points(5, 4)
    expected = jax.jit(partial(naive.kernels, perceptron))(*arguments)
    for output in OUTPUTS:
        got = jax.jit(partial(kernels.ntvp, perceptron, output=output, parameters=parameters))(
            *arguments
        )
        assert error(got, expected[output, parameters]) < EXACT


def test_parameters_are_split_and_joined_without_loss() -> None:
    params = {"a": {"kernel": 1, "scale": 2, "shift": 3}, "b": {"kernel": 4, "bias": 5}}
    for parameters, names in naive.LEAVES.items():
        inside, outside = kernels.split_parameters(params, parameters)  # type: ignore[arg-type]
        assert {path[-1].key for path, _ in jax.tree.leaves_with_path(inside)} == set(names)
        assert kernels.join_parameters(inside, outside) == params


# Kernels that an independent implementation made in float64 (definitions: parity files).

MEAN = tuple(value / 255 for value in (125.3, 123.0, 113.9))
STD = tuple(value / 255 for value in (63.0, 62.1, 66.7))
PARITY = {
    "ntk_sum_weights": ("sum", "weights"),
    "ntk_sum_conv_linear_weights": ("sum", "conv_linear"),
    "ntk_trace_all": ("trace", "all"),
    "ntk_label_all": ("label", "all"),
    "ntk_loss_all": ("loss", "all"),
}


@lru_cache
def parity_programs(channels: int) -> SimpleNamespace:
    network = Network(channels, 1, 10, MEAN, STD)

    def parts(params, images, stack, labels, digits):
        _, measured = network.apply(params, images, digits, calibrate=True, mutable=[STATISTICS])
        apply = lambda x, g: network.apply({**params, **measured}, x, digits, g)  # noqa: E731
        return kernels.gram_by_kind(apply, stack, labels, OUTPUTS)[0]  # type: ignore[arg-type]

    def coupled(params, images, labels, digits):
        batch = network.clone(bn="batch")

        @jax.jit
        def apply(params, images):
            return batch.apply({"params": params}, images, digits, mutable=[STATISTICS])[0]

        return kernels.ntvp(apply, params["params"], images, labels, "sum", "weights")

    return SimpleNamespace(network=network, parts=jax.jit(parts), coupled=jax.jit(coupled))


@pytest.mark.parametrize("name", ["cell_00173_c4_n1", "cell_01462_c4_n1", "cell_00219_c8_n1"])
def test_reference_kernels(data_dir, name) -> None:
    with np.load(data_dir / "parity" / f"{name}.npz") as file:
        content = dict(file)
    cell = Cell.parse(str(content["arch_str"]))
    run = parity_programs(int(content["channels"]))
    state = {
        key.removeprefix("state_dict/"): value
        for key, value in content.items()
        if key.startswith("state_dict/")
    }
    params = read_state_dict(state, cell, run.network)
    images = content["images"] / 255
    stack = np.concatenate([images, content["fgsm_8"], content["fgsm_8_twice"]])
    images, stack = jnp.asarray(images, jnp.float32), jnp.asarray(stack, jnp.float32)
    labels, n = jnp.asarray(content["labels"], jnp.int32), len(images)

    parts = run.parts(params, images, stack, jnp.tile(labels, 3), digits(cell.digits))
    by_output = dict(zip(OUTPUTS, parts, strict=True))
    got = {"ntk_sum_all_stack": kernels.gather(by_output["sum"], "all")}
    for key, (output, parameters) in PARITY.items():
        got[key] = kernels.gather(by_output[output], parameters)[:n, :n]
    if run.network.channels == 4:  # of one width, because it takes long to compile
        arguments = params, images, labels, digits(cell.digits)
        got["ntk_sum_weights_bn_batch_coupled"] = run.coupled(*arguments)
    errors = {key: error(value, content[key]) for key, value in got.items()}
    assert {key: value for key, value in errors.items() if value > 1e-3} == {}
