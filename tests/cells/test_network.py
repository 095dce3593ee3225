"""The network against a slow one in float64 numpy, and what its weights may depend on."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax_nasbench201 import Network
from networks import digits

from cells.initializers import INITIALIZERS, bias_init, gain
from cells.layers import average_pool_2x2, average_pool_3x3
from cells.nasbench201 import EDGES, OPERATIONS, SIZE, Cell
from cells.nasbench201 import network as weights
from cells.nasbench201.cell import KERNEL_SIZES
from cells.nasbench201.network import abstract_variables, fresh_variables, run
from cells.nasbench201.space import NASBench201
from cells.normalization import measure
from cells.rules import Weights
from ntkscore import Task

Array = jax.Array
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
CLASSES, DEPTH, M = 5, 2, 4
CELLS = [Cell.from_digits(digits) for digits in ("323133", "421211", "041234", "333333", "000000")]
NOTHING = CELLS[-1]
EMPTY = Cell.from_digits("003214")  # its edge 1→2 convolves a node that nothing reaches


def space(bn: str = "calibrated", init_name: str = "torch") -> NASBench201:
    task = Task((8, 8, 3), CLASSES, MEAN, STD)
    return NASBench201(task=task, channels=4, cells_per_stage=DEPTH, init=init_name, bn=bn)


def logits_of(space: NASBench201, variables: dict[str, Any], images: Array, code: Array) -> Array:
    """Logits by the stored statistics, or in the batch's mode by those of the images at hand."""
    rules = replace(space.rules(code), with_residuals=False)
    return run(rules, variables["params"], variables["batch_stats"], images)[0]


def leaves(tree: Any) -> dict[str, np.ndarray]:
    """The leaves by path, `stage_0/edge_2/nor_conv_1x1/kernel`."""
    flat = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {"/".join(key.key for key in path): np.asarray(leaf) for path, leaf in flat}


@pytest.fixture(scope="module")
def images() -> Array:
    return jnp.asarray(np.random.default_rng(7).uniform(size=(M, 8, 8, 3)), jnp.float32)


Init = Callable[[int], dict[str, Any]]


@pytest.fixture(scope="module")
def init() -> Init:
    """Variables of the torch initialiser, by seed."""
    compiled = jax.jit(partial(weights.draw, space()))
    # These keys compile in a third of the time; who gets which key does not depend on their kind.
    return lambda seed: compiled(jax.random.key(seed, impl="rbg"))


@pytest.fixture(scope="module")
def fresh() -> dict[str, Any]:
    """The statistics of an untouched network: mean 0, variance 1."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), abstract_variables(space())["params"])
    return fresh_variables(zeros)["batch_stats"]


@pytest.fixture(scope="module")
def params() -> Weights:
    """Weights as after some training: scales and shifts differ from one and zero."""
    rng = np.random.default_rng(3)
    spread = {"kernel": (0, 0.3), "scale": (1, 0.3), "shift": (0, 0.5), "bias": (0, 1)}

    def draw(path: tuple, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        return rng.normal(*spread[path[-1].key], leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, abstract_variables(space())["params"])


Apply = Callable[[dict[str, Any], Array, Array], Array]


@pytest.fixture(scope="module")
def forward() -> Apply:
    """Logits with the stored statistics; one program for every cell of this module."""
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def apply(variables: dict[str, Any], images: Array, digits: Array) -> Array:
        return logits_of(space(), variables, images, digits)

    return apply


@pytest.fixture(scope="module")
def batch_mode() -> Apply:
    return jax.jit(partial(logits_of, space("batch")))


@pytest.fixture(scope="module")
def calibrate() -> Callable[..., tuple[Array, dict[str, Any]]]:
    @jax.jit
    def measured(variables: dict[str, Any], images: Array, digits: Array) -> tuple[Array, Any]:
        passes, _ = space().passes(digits, variables, images)
        logits, _ = passes.forward(variables["params"], images)
        return logits, {"batch_stats": passes.statistics}

    return measured


class Reference:
    """The same network in float64, one pixel shift at a time, with the layout of the parameters.

    Args:
        params: the network's.
        own: whether normalisation uses the images' own statistics instead of mean 0, variance 1.
    """

    def __init__(self, params: Weights, own: bool) -> None:
        self.params = leaves(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params))
        self.own = own

    def weight(self, name: str, place: int | None = None) -> np.ndarray:
        return self.params[name] if place is None else self.params[name][place]

    def shifted(self, x: np.ndarray, pad: int) -> list[list[np.ndarray]]:
        h, w = x.shape[1:3]
        x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        reach = range(2 * pad + 1)
        return [[x[:, i : i + h, j : j + w] for j in reach] for i in reach]

    def convolve(self, x: np.ndarray, kernel: np.ndarray, stride: int = 1) -> np.ndarray:
        shifts = self.shifted(x, kernel.shape[0] // 2)
        y = sum(
            shifts[i][j] @ kernel[i, j]
            for i in range(kernel.shape[0])
            for j in range(kernel.shape[1])
        )
        return y[:, ::stride, ::stride]

    def normalize(self, z: np.ndarray, name: str, place: int | None = None) -> np.ndarray:
        if self.own:
            z = z - z.mean((0, 1, 2))
            z = z / np.sqrt((z**2).mean((0, 1, 2)) + 1e-5)
        else:
            z = z / np.sqrt(1 + 1e-5)
        return z * self.weight(f"{name}/scale", place) + self.weight(f"{name}/shift", place)

    def conv_norm(
        self, x: np.ndarray, name: str, stride: int = 1, place: int | None = None
    ) -> np.ndarray:
        return self.normalize(
            self.convolve(x, self.weight(f"{name}/kernel", place), stride), name, place
        )

    def pool(self, x: np.ndarray) -> np.ndarray:
        total, counted = np.zeros_like(x), np.zeros_like(x)
        for rows, ones in zip(self.shifted(x, 1), self.shifted(np.ones_like(x), 1), strict=True):
            total, counted = total + sum(rows), counted + sum(ones)
        return total / counted

    def cell(self, x: np.ndarray, cell: Cell, stage: str, place: int) -> np.ndarray:
        nodes = [x, *(np.zeros_like(x) for _ in range(3))]
        for edge, (source, target) in enumerate(EDGES):
            name = OPERATIONS[cell.operations[edge]]
            y = nodes[source]
            if name.startswith("nor_conv"):
                y = self.conv_norm(np.maximum(y, 0), f"{stage}/edge_{edge}/{name}", place=place)
            nodes[target] = nodes[target] + (
                self.pool(y) if name == "avg_pool_3x3" else 0 * y if name == "none" else y
            )
        return nodes[3]

    def __call__(self, images: Array, cell: Cell) -> np.ndarray:
        x = self.conv_norm((np.asarray(images, np.float64) - MEAN) / STD, "stem/conv")
        for stage in range(3):
            if stage:
                block = f"reduction_{stage}"
                y = self.conv_norm(np.maximum(x, 0), f"{block}/conv_a/conv", stride=2)
                y = self.conv_norm(np.maximum(y, 0), f"{block}/conv_b/conv")
                quarters = [x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]
                x = y + self.convolve(sum(quarters) / 4, self.weight(f"{block}/downsample/kernel"))
            for place in range(DEPTH):
                x = self.cell(x, cell, f"stage_{stage}", place)
        x = np.maximum(self.normalize(x, "head"), 0).mean((1, 2))
        return x @ self.weight("head/kernel") + self.weight("head/bias")


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    expected = np.asarray(expected)
    bound = tolerance * np.max(np.abs(expected))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=bound)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [*CELLS, EMPTY], ids=lambda cell: cell.digits)
@pytest.mark.parametrize(("mode", "tolerance"), [("forward", 1e-5), ("batch_mode", 5e-5)])
def test_logits_are_those_of_the_reference(
    mode: str,
    tolerance: float,
    cell: Cell,
    params: Weights,
    fresh: dict[str, Any],
    images: Array,
    request: pytest.FixtureRequest,
) -> None:
    apply = request.getfixturevalue(mode)
    logits = apply({"params": params, "batch_stats": fresh}, images, digits(cell))
    assert_close(logits, Reference(params, own=mode == "batch_mode")(images, cell), tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [*CELLS, EMPTY], ids=lambda cell: cell.digits)
def test_calibration_is_the_batch_mode_frozen(
    cell: Cell,
    calibrate: Callable[..., tuple[Array, dict[str, Any]]],
    forward: Apply,
    batch_mode: Apply,
    params: Weights,
    fresh: dict[str, Any],
    images: Array,
) -> None:
    variables = {"params": params, "batch_stats": fresh}
    measured, changed = calibrate(variables, images, digits(cell))
    in_batch_mode = batch_mode(variables, images, digits(cell))
    assert_close(measured, in_batch_mode)
    frozen = {"params": params, **changed}
    assert_close(forward(frozen, images, digits(cell)), in_batch_mode)
    # Once frozen, an image's logits do not depend on the others; in batch mode they do.
    others = images.at[1:].set(images[1:] ** 2)
    assert_close(forward(frozen, others, digits(cell))[0], in_batch_mode[0])
    coupled = batch_mode(variables, others, digits(cell))
    if cell != NOTHING:
        assert float(jnp.max(jnp.abs(coupled[0] - in_batch_mode[0]))) > 1e-3


@pytest.mark.slow
def test_calibration_measures_what_runs_and_nothing_else(
    calibrate: Callable[..., tuple[Array, dict[str, Any]]],
    params: Weights,
    fresh: dict[str, Any],
    images: Array,
) -> None:
    cell = Cell.from_digits("323144")
    _, changed = calibrate({"params": params, "batch_stats": fresh}, images, digits(cell))
    before, after = leaves(fresh), leaves(changed["batch_stats"])
    assert before.keys() == after.keys()
    for name in before:
        edge = name.split("/")[1].removeprefix("edge_") if "edge" in name else None
        runs = edge is None or cell.operations[int(edge)] in KERNEL_SIZES
        assert bool(np.any(before[name] != after[name])) is runs, name
    stem = Reference(params, own=False)
    z = stem.convolve(
        (np.asarray(images, np.float64) - MEAN) / STD, stem.weight("stem/conv/kernel")
    )
    assert_close(after["stem/mean"], z.mean((0, 1, 2)))
    assert_close(after["stem/var"], z.var((0, 1, 2)))


def test_init_mode_measures_nothing(params: Weights, fresh: dict[str, Any], images: Array) -> None:
    variables = {"params": params, "batch_stats": fresh}
    model: Any = space("init").model((), variables, digits(CELLS[0]), images)
    jax.tree.map(np.testing.assert_array_equal, model.passes.statistics, fresh)


@pytest.mark.slow
def test_one_program_serves_all_cells(
    forward: Apply, params: Weights, fresh: dict[str, Any], images: Array
) -> None:
    """The fixture allows one trace, over all tests of this module."""
    variables = {"params": params, "batch_stats": fresh}
    sample = [Cell(index) for index in random.Random(0).sample(range(SIZE), 30)]
    logits = [forward(variables, images, digits(cell)) for cell in sample]
    assert len({float(jnp.sum(row)) for row in logits}) > 25


@pytest.mark.slow
def test_weights_depend_on_the_seed(init: Init) -> None:
    first, other = (leaves(init(seed)["params"]) for seed in (0, 1))
    assert first.keys() == other.keys()
    for name in first:
        random_weight = name.endswith(("kernel", "bias"))
        assert bool(np.any(first[name] != other[name])) is random_weight
    statistics = leaves(init(0)["batch_stats"])
    assert all(np.all(leaf == name.endswith("var")) for name, leaf in statistics.items())


@pytest.mark.slow
def test_no_two_places_share_their_weights(init: Init) -> None:
    kernels = {n: k for n, k in leaves(init(0)["params"]).items() if n.endswith("kernel")}
    draws = [
        place.ravel()[:3] * np.sqrt(np.prod(place.shape[:-1]))
        for name, kernel in kernels.items()
        for place in (kernel if name.startswith("stage") else [kernel])
    ]
    assert len(draws) == 1 + 3 * DEPTH * 6 * 2 + 2 * 3 + 1
    assert len({tuple(np.round(draw, 4)) for draw in draws}) == len(draws)


@pytest.mark.slow
def test_the_torch_bounds_hold_in_the_whole_network(init: Init) -> None:
    params = leaves(init(5)["params"])
    for name, leaf in params.items():
        if name.endswith("kernel"):
            shape = leaf.shape[1:] if name.startswith("stage") else leaf.shape
            bound = 1 / np.sqrt(np.prod(shape[:-1]))
            assert 0.7 * bound < np.max(np.abs(leaf)) <= bound * (1 + 1e-6), name
            assert np.min(leaf) < 0 < np.max(leaf)
        elif name == "head/bias":
            assert 0 < np.max(np.abs(leaf)) <= 1 / np.sqrt(16)
        else:
            assert np.all(leaf == name.endswith("scale")), name


@pytest.mark.parametrize("shape", [(3, 3, 32, 48), (1, 1, 160, 96), (512, 64)], ids=str)
def test_initialisers_have_their_spread(shape: tuple[int, ...]) -> None:
    fan_in, area = int(np.prod(shape[:-1])), int(np.prod(shape[:-2]))
    fan_out = area * shape[-1]
    draws = {
        name: np.asarray(scheme.kernel(jax.random.key(0), shape, jnp.float32), np.float64)
        for name, scheme in INITIALIZERS.items()
    }
    deviations = {
        "torch": 1 / np.sqrt(3 * fan_in),
        "he": np.sqrt(2 / fan_in),
        "he_fan_out": np.sqrt(2 / fan_out),
        "he_conv": np.sqrt(2 / fan_out) if len(shape) == 4 else 1 / np.sqrt(3 * fan_in),
        "xavier": np.sqrt(2 / (fan_in + fan_out)),
        "ntk": 1,
    }
    bounds = {"torch": 1 / np.sqrt(fan_in), "xavier": np.sqrt(6 / (fan_in + fan_out))}
    if len(shape) == 2:
        bounds["he_conv"] = bounds["torch"]
    assert draws.keys() == deviations.keys()
    for name, draw in draws.items():
        assert np.std(draw) == pytest.approx(deviations[name], rel=0.03), name
        assert abs(np.mean(draw)) < 0.03 * deviations[name]
        largest = np.max(np.abs(draw))
        if name in bounds:
            assert 0.999 * bounds[name] < largest <= bounds[name] * (1 + 1e-6)
        else:
            assert largest > 3.5 * deviations[name]  # normal, with tails
        expected = 1 / np.sqrt(fan_in) if name == "ntk" else 1
        assert gain(name, shape) == pytest.approx(expected)
        bias = np.asarray(bias_init(name, fan_in)(jax.random.key(1), (4000,), jnp.float32))
        bound = bounds["torch"] if name == "torch" else 0
        assert np.max(np.abs(bias)) == pytest.approx(bound, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "torch",
        *(pytest.param(n, marks=pytest.mark.thorough) for n in INITIALIZERS if n != "torch"),
    ],
)
def test_weights_are_those_that_flax_draws_for_its_network(name: str) -> None:
    key, network = jax.random.key(3), Network(space(init_name=name))
    pixels = jnp.zeros((1, 4, 4, 3))
    quickly = {"xla_backend_optimization_level": 0}
    theirs = jax.jit(network.init, compiler_options=quickly)(key, pixels, digits(CELLS[0]))
    drawing = partial(weights.draw, space(init_name=name))
    ours = jax.jit(drawing, compiler_options=quickly)(key)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.slow
def test_the_ntk_parametrisation_scales_in_the_forward_pass(
    forward: Apply, params: Weights, fresh: dict[str, Any], images: Array
) -> None:
    def scale(path: tuple, leaf: np.ndarray) -> np.ndarray:
        if path[-1].key != "kernel":
            return leaf
        shape = leaf.shape[1:] if path[0].key.startswith("stage") else leaf.shape
        return np.float32(1 / np.sqrt(np.prod(shape[:-1]))) * leaf

    # Kernels of the size that N(0, 1) weights would have, so that no map is lost in rounding.
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf / np.float32(0.3) if path[-1].key == "kernel" else leaf, params
    )
    scaled = jax.tree_util.tree_map_with_path(scale, params)
    ntk = jax.jit(partial(logits_of, space(init_name="ntk")))
    for cell in CELLS[:3]:
        assert_close(
            ntk({"params": params, "batch_stats": fresh}, images, digits(cell)),
            forward({"params": scaled, "batch_stats": fresh}, images, digits(cell)),
        )


def test_pooling_keeps_a_constant_at_the_borders() -> None:
    constant = jnp.broadcast_to(jnp.array([0.25, -3.0]), (2, 5, 6, 2))
    np.testing.assert_allclose(average_pool_3x3(constant), constant, rtol=1e-6)
    even = constant[:, :4]
    np.testing.assert_allclose(average_pool_2x2(even), even[:, ::2, ::2], rtol=1e-6)


def test_pooling_counts_the_pixels_inside() -> None:
    x = jnp.arange(12, dtype=jnp.float32).reshape(1, 3, 4, 1)
    corner, edge, middle = (0 + 1 + 4 + 5) / 4, (0 + 1 + 2 + 4 + 5 + 6) / 6, 5
    pooled = average_pool_3x3(x)[0, :, :, 0]
    np.testing.assert_allclose([pooled[0, 0], pooled[0, 1], pooled[1, 1]], [corner, edge, middle])
    np.testing.assert_allclose(average_pool_2x2(x[:, :2])[0, 0, :, 0], [2.5, 4.5])


def test_measured_statistics_are_exact_far_from_zero() -> None:
    z = np.random.default_rng(0).normal(1000, 1, (50, 16, 16, 3)).astype(np.float32)
    mean, var = measure(jnp.asarray(z))
    exact = z.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean((0, 1, 2)), rtol=2e-7)
    np.testing.assert_allclose(var, exact.var((0, 1, 2)), rtol=1e-4)
