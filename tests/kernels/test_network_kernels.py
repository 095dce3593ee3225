"""Kernels of NAS-Bench-201's network against whole Jacobians, and against reference files."""

import itertools
from collections.abc import Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import naive
import numpy as np
import pytest
from flax_nasbench201 import Network
from networks import CLASSES, EXACT, SIZE, digits, error, points
from tiny import refuses

from cells.initializers import INITIALIZERS, bias_init, gain
from cells.nasbench201.network import STATISTICS, abstract_variables
from cells.nasbench201.parity import load_parity, network_in, reference_of
from cells.nasbench201.space import NASBench201
from cells.normalization import NORMALIZATIONS, Normalization
from ntkscore import Task
from ntkscore.kernels.implementations import evaluate, implementation_for, layerwise_by_kind
from ntkscore.kernels.ntk import ntk
from ntkscore.kernels.readouts import READOUTS
from ntkscore.trace.parameters import PARAMETER_SETS, total
from ntkscore.verify.reference import KERNELS

Array = jax.Array
TASK = Task((SIZE, SIZE, 3), CLASSES, (0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
OUTPUTS = tuple(READOUTS)
# Every operation on every edge, and the cell without any.
CELLS = ("012340", "123401", "234012", "340123", "401234", "000000")

pytestmark = pytest.mark.slow


def per_image(z: Array) -> tuple[Array, Array]:
    """Statistics of each image by itself, (m, 1, 1, c)."""
    return jnp.mean(z, (1, 2), keepdims=True), jnp.var(z, (1, 2), keepdims=True)


@lru_cache
def programs(init: str = "torch", bn: str = "calibrated") -> SimpleNamespace:
    """The compiled functions of a network; schemes with the same forward pass can share them."""
    space = NASBench201(task=TASK, channels=4, cells_per_stage=1, init=init, bn=bn)
    network = Network(space)

    def parts(variables: Any, images: Array, labels: Array, digits: Array) -> list[dict]:
        model = space.model((), variables, digits, images)
        return layerwise_by_kind(model, images, labels, OUTPUTS)[0]

    def whole(variables: Any, images: Array, labels: Array, digits: Array, factors: Any) -> dict:
        """With the factors of the forward pass as data, so that one program serves all schemes."""

        def scaled(params: Any, images: Array) -> Array:
            params = jax.tree.map(jnp.multiply, params, factors)
            return network.apply({**variables, "params": params}, images, digits)

        return naive.kernels(scaled, variables["params"], images, labels)

    def kernel(output: str, implementation: str) -> Any:
        @jax.jit
        def run(variables: Any, images: Array, labels: Array, digits: Array) -> Array:
            model = space.model((), variables, digits, images)
            gram = evaluate(model, images, labels, output, "all", implementation).gram
            return gram[0]

        return run

    return SimpleNamespace(
        space=space,
        calibrate=jax.jit(
            lambda v, x, d: network.apply(v, x, d, calibrate=True, mutable=[STATISTICS])[1]
        ),
        parts=jax.jit(parts),
        naive=jax.jit(whole) if init == "torch" else None,
        kernel=lru_cache(kernel),
    )


def variables(init: str) -> dict[str, Any]:
    """Weights as this scheme draws them, but with scales and shifts that are not 1 and 0."""
    rng = np.random.default_rng(11)

    def draw(path: tuple, leaf: Any) -> Array:
        key = jax.random.key(int(rng.integers(2**31)))
        name, scheme = path[-1].key, INITIALIZERS[init]
        if name == "kernel":
            return scheme.kernel(key, leaf.shape, jnp.float64)
        if name == "bias":
            return bias_init(init, 16)(key, leaf.shape, jnp.float64)
        centre = {"scale": 1.0, "shift": 0.0, "mean": 0.0, "var": 1.0}[name]
        spread = 0.0 if path[0].key == STATISTICS else 0.5
        return jnp.asarray(centre + spread * rng.normal(size=leaf.shape))

    return jax.tree_util.tree_map_with_path(draw, abstract_variables(programs().space))


def factors(init: str) -> Any:
    """The factor of each parameter in the forward pass; cells have an axis for their place."""

    def factor(path: tuple, leaf: Any) -> Array:
        shape = leaf.shape[1:] if leaf.ndim in (2, 5) and path[0].key != "head" else leaf.shape
        return jnp.asarray(gain(init, shape) if path[-1].key == "kernel" else 1.0)

    params = abstract_variables(programs().space)["params"]
    return jax.tree_util.tree_map_with_path(factor, params)


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """Variables with calibrated statistics, by cell."""
    with jax.enable_x64(True):
        drawn, calibrate = variables("torch"), programs().calibrate
        return {cell: {**drawn, **calibrate(drawn, points()[0], digits(cell))} for cell in CELLS}


EVERY_DAY = (("torch", "calibrated"),)


@pytest.mark.parametrize(
    ("init", "bn"),
    [
        pytest.param(*each, marks=[pytest.mark.thorough] * (each not in EVERY_DAY))
        for each in itertools.product(INITIALIZERS, ("calibrated", "init"))
    ],
)
def test_every_initializer_cell_and_kernel(double, init: str, bn: str) -> None:
    # Schemes without a factor in the forward pass differ in their numbers alone.
    run = programs("torch" if gain(init, (3, 3, 4, 4)) == 1 else init, bn)
    images, labels = points()
    drawn, scaled = variables(init), factors(init)
    for cell in CELLS:
        parts = run.parts(drawn, images, labels, digits(cell))
        statistics = run.calibrate(drawn, images, digits(cell)) if bn == "calibrated" else {}
        expected = programs().naive(drawn | statistics, images, labels, digits(cell), scaled)
        for output, by_kind in zip(OUTPUTS, parts, strict=True):
            for parameters in PARAMETER_SETS:
                got = total(by_kind, parameters)[0]
                assert error(got, expected[output, parameters]) < EXACT, (cell, output, parameters)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("implementation", "outputs"), [("contraction", ("sum", "loss")), ("ntvp", OUTPUTS)]
)
def test_the_other_implementations(
    double, measured, implementation: str, outputs: tuple[str, ...]
) -> None:
    images, labels = points()
    for (cell, given), output in zip(measured.items(), itertools.cycle(outputs), strict=False):
        expected = programs().naive(given, images, labels, digits(cell), factors("torch"))
        got = programs().kernel(output, implementation)(given, images, labels, digits(cell))
        assert error(got, expected[output, "all"]) < EXACT


@pytest.mark.thorough
def test_kernels_of_images_that_batch_normalisation_couples(double, measured) -> None:
    run, cell = programs(bn="batch"), CELLS[2]
    arguments = *points(), digits(cell)
    expected = run.naive(measured[cell], *arguments, factors("torch"))
    for output in ("sum", "loss"):
        got = run.kernel(output, "auto")(measured[cell], *arguments)
        assert error(got, expected[output, "all"]) < EXACT
    # The same statistics held fixed make another kernel.
    fixed = programs().naive(measured[cell], *arguments, factors("torch"))
    assert error(fixed["sum", "all"], expected["sum", "all"]) > 0.01


@pytest.fixture
def mode_per_image() -> Iterator[str]:
    """A mode of one's own: each image is normalised by itself, so that none depends on others."""
    NORMALIZATIONS["image"] = Normalization("each image's own", live=per_image)
    yield "image"
    del NORMALIZATIONS["image"]


@pytest.mark.thorough
def test_a_mode_of_ones_own_has_its_kernel(double, measured, mode_per_image: str) -> None:
    run = programs(bn=mode_per_image)
    images, labels = points()
    model = run.space.model((), measured[CELLS[0]], digits(CELLS[0]), images)
    assert model.passes is None and implementation_for(model) == "layerwise"
    for cell in CELLS[:3]:
        arguments = measured[cell], images, labels, digits(cell)
        expected = run.naive(*arguments, factors("torch"))
        got = run.kernel("sum", "auto")(*arguments)
        assert error(got, expected["sum", "all"]) < EXACT
        fixed = programs().naive(*arguments, factors("torch"))
        assert error(fixed["sum", "all"], expected["sum", "all"]) > 0.01


def test_layerwise_refuses_coupled_images(double) -> None:
    space, cell, (images, labels) = programs(bn="batch").space, digits(CELLS[0]), points()
    model = space.model((), variables("torch"), cell, images)
    assert model.passes is None and model.coupled
    with refuses("layerwise", expected="ntvp"):
        ntk(model, images, labels=labels, implementation="layerwise")


def test_kernels_are_symmetric_and_positive_semidefinite(double, measured) -> None:
    images, labels = points()
    for cell, given in measured.items():
        for by_kind in programs().parts(given, images, labels, digits(cell)):
            for (gram,) in map(np.asarray, by_kind.values()):
                values = np.linalg.eigvalsh(gram)
                assert error(gram, gram.T) < 1e-14
                assert values[0] >= -1e-13 * values[-1]


@lru_cache
def reference_programs(channels: int) -> SimpleNamespace:
    """Kernels from a file's weights, images and stack; the files of one width share a program."""

    def reference(variables: Any, images: Array, digits: Array, bn: str) -> Any:
        space = NASBench201(task=CIFAR10, channels=channels, cells_per_stage=1, bn=bn)
        return space.model((), variables, digits, images)

    @jax.jit
    def parts(variables: Any, images: Array, stack: Array, labels: Array, digits: Array) -> Any:
        model = reference(variables, images, digits, "calibrated")
        return layerwise_by_kind(model, stack, labels, OUTPUTS)[0]

    @jax.jit
    def coupled(variables: Any, images: Array, labels: Array, digits: Array) -> Array:
        model = reference(variables, images, digits, "batch")
        return evaluate(model, images, labels, "sum", "weights").gram[0]

    return SimpleNamespace(parts=parts, coupled=coupled)


CIFAR10 = Task(
    (32, 32, 3),
    10,
    tuple(value / 255 for value in (125.3, 123.0, 113.9)),
    tuple(value / 255 for value in (63.0, 62.1, 66.7)),
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("cell_00173_c4_n1", marks=pytest.mark.thorough),
        pytest.param("cell_01462_c4_n1", marks=pytest.mark.thorough),
        "cell_00219_c8_n1",
    ],
)
def test_reference_kernels(data_dir, name: str) -> None:
    content = load_parity(data_dir / "parity" / f"{name}.npz")
    reference, channels = reference_of(NASBench201, content, jnp.float32), int(content["channels"])
    known, variables = network_in(content)
    run, cell, labels = reference_programs(channels), digits(known), reference.labels
    n, images = len(labels), reference.images
    parts = run.parts(variables, images, reference.stack, jnp.tile(labels, 3), cell)
    by_output = dict(zip(OUTPUTS, parts, strict=True))
    got = {"ntk_sum_all_stack": total(by_output["sum"], "all")[0]}
    for key, (output, parameters) in KERNELS.items():
        got[key] = total(by_output[output], parameters)[0, :n, :n]
    if channels == 4:  # of one width, because it takes long to compile
        got["ntk_sum_weights_bn_batch_coupled"] = run.coupled(variables, images, labels, cell)
    errors = {key: error(value, content[key]) for key, value in got.items()}
    assert {key: value for key, value in errors.items() if value > 1e-3} == {}
