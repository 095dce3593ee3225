"""Programs for GPUs and TPUs: lowered here, compiled where their compilers are installed."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from io import StringIO
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tiny import IMAGES, OPTIONS, RESIDUAL, SPACE, compilations, invoke, refused, refuses

import ntkscore
from cells.darts import Darts
from cells.nasbench201.space import NASBench201
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.platforms import platform, traced_for
from ntkscore.run import calls
from ntkscore.run.devices import Plan
from ntkscore.run.fits import arithmetic, compiled, fit, least_seconds, mean_cost, trace_network
from ntkscore.run.program_text import parse
from ntkscore.run.scorer import Scorer
from ntkscore.run.selection import select
from ntkscore.run.targets import TARGETS, devices_of, target_named
from ntkscore.space import Space
from ntkscore.training.fit import compiled_step, untrained
from ntkscore.training.recipe import Recipe

DARTS = Darts(channels=4, layers=5)
COMMUNICATION = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")


def operations(text: str) -> Counter[str]:
    """How often a compiled program has each operation, inside of fusions too.

    Calls of libraries go by the library's name.
    """
    found = re.findall(r"(?m)^ .* = .+? ([a-z][a-z0-9\-]*)\((.*)$", text)
    library = re.compile('custom_call_target="([^"]+)"')
    names = [(name == "custom-call" and library.search(rest), name) for name, rest in found]
    return Counter(custom[1] if custom else name for custom, name in names)


def count(text: str, *names: str) -> int:
    """How many operations have one of the names, started ones included."""
    every = {*names, *(f"{name}-start" for name in names)}
    return sum(operations(text)[operation] for operation in every)


def convolutions(text: str) -> int:
    """Convolutions, those of a library among them."""
    every = operations(text).items()
    return sum(n for name, n in every if "conv" in name and name != "convert")


def reduced(lowered: jax.stages.Lowered) -> int:
    """How many convolutions and products of a lowered program may be computed in fewer bits.

    Accelerators compute float32 products in fewer bits unless each one asks for all of them.
    """
    products = re.findall(r"stablehlo\.(?:convolution|dot_general).*", lowered.as_text())
    return sum("HIGHEST" not in product for product in products)


def ranked(space: Space, name: str, group: int = 1, **choices: Any) -> Callable[[], Any]:
    """The trace of what `rank` computes of a few networks."""
    config = Config(**choices)

    def trace() -> Any:
        plan = Plan(tuple(jax.local_devices()[:1]), group, 2 * group)
        return Scorer(space, config, plan, layout_independent=True).trace(space.parse(name), 4)

    return trace


def own() -> Any:
    """The trace of what `score` computes of a network of one's own."""

    def apply(params: Any, x: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(
            x, params[0], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.mean(jax.nn.relu(y), (1, 2)) @ params[1]

    params = [jnp.ones((3, 3, 3, 8)), jnp.ones((8, 10))]
    return trace_network(Model(apply, params), (4, 8, 8, 3), Config(), jax.local_devices()[0])


def training() -> Any:
    """The trace of a step of training."""
    recipe = Recipe(batch=4, attack_steps=2)
    network = SPACE.trainable(SPACE.parse("323133"))
    state, _ = untrained([network], recipe)
    rows, pixels = jnp.zeros((1, 4), jnp.int32), jnp.zeros((8, 32, 32, 3), jnp.uint8)
    keys = jnp.stack([jax.random.key(0)])
    return compiled_step(network, recipe, 2).trace(state, pixels, rows, rows, keys, jnp.zeros(()))


PROGRAMS: dict[str, Callable[[], Any]] = {
    "one by one": ranked(SPACE, "323133"),
    "side by side": ranked(SPACE, "323133", 2),
    "pgd": ranked(SPACE, "323133", attack="pgd"),
    "all measures": ranked(SPACE, "323133", proxies=True),
    "residual": ranked(RESIDUAL, str(select("all", RESIDUAL)[0])),
    "darts": ranked(DARTS, "AdvRush"),
    "own network": own,
    "training": training,
}
# What fgsm computes of one network `residual` has, and `pgd` the passes of a cell.
LONGEST = ("one by one", "side by side", "all measures", "darts")


@pytest.mark.slow
@pytest.mark.parametrize("own", [pytest.param(True, marks=pytest.mark.thorough), False])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.thorough if n in LONGEST else ()) for n in PROGRAMS]
)
def test_programs_lower_for_every_platform_at_full_precision(name: str, own: bool) -> None:
    """Without a call back to Python, and without a decomposition that devices do slowly.

    A program is traced otherwise for a CPU, and alike for GPUs and TPUs.
    """
    with traced_for("cpu" if own else "gpu"):
        traced = PROGRAMS[name]()
        for platform in ("cpu",) if own else ("cuda", "tpu"):
            lowered = traced.lower(lowering_platforms=(platform,))
            text = lowered.as_text()
            assert "stablehlo.dot_general" in text
            assert reduced(lowered) == 0
            called = set(re.findall(r"custom_call @(\w+)", text))
            assert called <= {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"}, called


def test_a_product_in_fewer_bits_is_counted() -> None:
    square = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    assert reduced(jax.jit(lambda a: a @ a).trace(square).lower()) == 1
    precise = jax.jit(partial(jnp.matmul, precision="highest"))
    assert reduced(precise.trace(square, square).lower()) == 0


def test_a_networks_own_products_have_all_bits_unless_asked_otherwise() -> None:
    with traced_for("gpu"):
        assert reduced(own().lower(lowering_platforms=("cuda",))) == 0
        with jax.default_matmul_precision("bfloat16"):
            assert reduced(own().lower(lowering_platforms=("cuda",))) > 0


def test_programs_for_a_cpu_and_for_others_are_kept_apart() -> None:
    """Whatever of these was traced first."""
    seen = jax.jit(lambda x: x + (1 if platform() == "cpu" else 2))
    assert seen(0) == 1
    with traced_for("gpu"):
        assert platform() == "gpu"
        assert seen(0) == 2
    assert seen(0) == 1


def test_asking_for_the_platform_traces_nothing_anew() -> None:
    """In a process of its own: this one has named platforms already."""
    program = """
import jax
from ntkscore.platforms import platform
traced = []
function = jax.jit(lambda x: (traced.append(platform()), x)[1])
function(0), function(0)
assert len(traced) == 1, traced
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_programs_text_is_read() -> None:
    """A loop counts as often as it runs; of branches the one that moves most."""
    text = """HloModule m
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
%fused (p: f32[5,10], i: s32[]) -> f32[10] {
  %p = f32[5,10]{1,0} parameter(0)
  %i = s32[] parameter(1)
  ROOT %part = f32[10]{0} dynamic-slice(%p, %i), dynamic_slice_sizes={1,10}
}
%body (t: (s32[], f32[5,10])) -> (s32[], f32[5,10]) {
  %t = (s32[], f32[5,10]{1,0}) parameter(0)
  %k = s32[] get-tuple-element(%t), index=0
  %x = f32[5,10]{1,0} get-tuple-element(%t), index=1
  %row = f32[10]{0} fusion(%x, %k), kind=kLoop, calls=%fused
  ROOT %r = (s32[], f32[5,10]{1,0}) tuple(%k, %x)
}
%until (t: (s32[], f32[5,10])) -> pred[] {
  %t = (s32[], f32[5,10]{1,0}) parameter(0)
  %k = s32[] get-tuple-element(%t), index=0
  %n = s32[] constant(5)
  ROOT %less = pred[] compare(%k, %n), direction=LT
}
%small (x: f32[5,10]) -> f32[5,10] {
  ROOT %x = f32[5,10]{1,0} parameter(0)
}
%large (x: f32[5,10]) -> f32[5,10] {
  %x = f32[5,10]{1,0} parameter(0)
  ROOT %y = (f32[5,10]{1,0}, s8[4096]{0}) custom-call(%x), custom_call_target="__cudnn$convForward"
}
ENTRY %main (x: f32[5,10], q: pred[]) -> f32[] {
  %x = f32[5,10]{1,0} parameter(0)
  %q = pred[] parameter(1)
  %z = s32[] constant(0)
  %t = (s32[], f32[5,10]{1,0}) tuple(%z, %x)
  %w = (s32[], f32[5,10]{1,0}) while(%t), condition=%until, body=%body
  %y = f32[5,10]{1,0} conditional(%q, %x, %x), true_computation=%small, false_computation=%large
  %all = f32[5,10]{1,0} all-reduce-start(%y), to_apply=%add
  ROOT %g = f32[5,10]{1,0} all-reduce-done(%all)
}
"""
    work, trips = parse(text)
    # Five slices of ten numbers, in and out, and their place; a convolution; what is communicated.
    assert work == (5 + 1 + 1, 5 * (40 + 40 + 4) + 2 * 200 + 2 * 200)
    assert trips == [5]
    assert convolutions(text) == 1
    assert [count(text, name) for name in ("conditional", "all-reduce", "all-gather")] == [1, 1, 0]


def test_the_text_of_a_compiled_program_is_read() -> None:
    def program(a: jax.Array) -> jax.Array:
        return lax.map(lambda row: jnp.sort(row @ a), a)

    text = jax.jit(program).lower(jnp.ones((7, 7))).compile().as_text()
    work, trips = parse(text)
    assert 7 in trips
    assert operations(text)["sort"] == 1
    assert work[0] >= 7


def test_arithmetic_is_that_of_the_networks() -> None:
    """The forward pass as its space counts it, whatever statistics are computed beside it."""
    dearest = SPACE.parse("333333")
    for bn in ("calibrated", "init"):
        space = NASBench201(channels=4, cells_per_stage=1, bn=bn)
        assert arithmetic(space, Config(), dearest, 4)[1] == 2 * space.costs(dearest)["flops"]
    whole, forward = arithmetic(SPACE, Config(), dearest, 4)
    # Forward and back at clean and attacked points, twice attacked; and the Gram matrix.
    assert whole > 3 * 2 * 4 * forward
    cells = select("random:8", SPACE)
    mean = mean_cost(SPACE, cells)
    assert mean is not None
    h100 = TARGETS["h100"]
    assert least_seconds(h100, 8, whole, forward, mean) < least_seconds(h100, 8, whole)
    assert least_seconds(h100, 16, whole) == 2 * least_seconds(h100, 8, whole)
    assert least_seconds(h100, 8, whole) == 8 * whole / h100.rate


def test_a_smaller_group_has_room() -> None:
    plan = Plan(("a device",), 16, 64)
    assert plan.within(100, 100) is None
    sizes = [
        (each.group, each.batch) for room in (99, 50, 24, 1) if (each := plan.within(room, 100))
    ]
    assert sizes == [(8, 32), (8, 32), (2, 8), (1, 4)]
    assert Plan(("a device",), 1, 4).within(1, 100) is None


@pytest.mark.thorough
def test_groups_are_chosen_by_the_compilers_figure_and_compiled_once() -> None:
    space, cell = SPACE.on(IMAGES.task), SPACE.parse("323133")
    make = partial(Scorer, space, Config(), layout_independent=True)
    pair = make(Plan(tuple(jax.local_devices()[:1]), 2, 4))
    assert calls.fitting(make, pair, cell, 4) is pair  # a CPU has no groups to choose
    alone = calls.fitting(make, pair, cell, 4, room=1)
    assert (alone.plan.group, alone.plan.batch) == (1, 2)
    batch = alone.batch(*IMAGES.draw(0), 0)
    with compilations() as large:
        rows = alone.rows([cell], batch, alone.start([cell], batch))
    # The call ran the program that had been compiled to see what it needs.
    assert len(large) <= 2
    assert len(rows) == 1
    assert calls.fitting(make, pair, cell, 4, room=10**12) is pair


@pytest.mark.slow
def test_a_program_that_a_compiler_refuses_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """As TPUs' compilers do where there is no room."""
    refusals: list[Plan] = []

    class Refused:
        def __init__(self, plan: Plan) -> None:
            self.plan = plan

        def lower(self) -> "Refused":
            return self

        def compile(self) -> object:
            refusals.append(self.plan)
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Ran out of memory on HBM")

    monkeypatch.setattr(Scorer, "trace", lambda self, *what: Refused(self.plan))
    make = partial(Scorer, SPACE, Config(), layout_independent=True)
    four = make(Plan(tuple(jax.local_devices()[:1]), 4, 8))
    assert calls.fitting(make, four, SPACE.parse("323133"), 4, room=10).plan.group == 1
    assert [plan.group for plan in refusals] == [4, 2, 1]


def test_unknown_targets_are_refused() -> None:
    with refuses("h1000", expected="h100"):
        target_named("h1000")
    refused("expected a target of a100", "fits", "h1000", "all", *OPTIONS)


def test_a_missing_compiler_is_named() -> None:
    try:
        devices_of(TARGETS["h100"])
    except InputError as error:
        assert "pip install 'ntkscore[targets]'" in str(error)
        refused("expected the compiler for h100", "fits", "h100", "all", *OPTIONS)
    else:
        pytest.skip("the compiler is installed here")


def here(name: str, count: int = 1) -> Any:
    """The devices of a target; skips where its compiler is not installed."""
    try:
        return devices_of(TARGETS[name], count)
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.target
@pytest.mark.parametrize(
    "name", ["a100", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("h100", "h200"))]
)
def test_full_fidelity_fits_on_a_gpu_in_the_usual_groups(name: str) -> None:
    here(name)
    space = NASBench201(channels=16, cells_per_stage=5)
    plan, program = fit(space, Config(), space.parse("323133"), 50, TARGETS[name])
    text = program.text
    assert program.memory <= TARGETS[name].room
    assert (plan.group, plan.batch) == (16, 64)
    # The library's convolutions; XLA's own, which loops over everything, is nowhere.
    assert operations(text)["__cudnn$convForward"] > 10
    assert not count(text, "convolution", "sort")
    launches, _ = program.work
    assert 500 < launches / plan.batch < 3000


@pytest.mark.target
def test_eight_gpus_tell_each_other_nothing() -> None:
    here("h100", 8)
    how = {"count": 8, "batch": 4}
    plan, program = fit(SPACE, Config(), SPACE.parse("323133"), 4, TARGETS["h100"], **how)
    assert len(plan.devices) == 8
    assert count(program.text, *COMMUNICATION) == 0


@pytest.mark.target
def test_eight_gpus_sum_their_gradients_and_gather_no_images() -> None:
    mesh = Mesh(np.array(here("h100", 8)), ("images",))

    def shaped(array: Any, *split: str | None) -> Any:
        where = NamedSharding(mesh, PartitionSpec(*split))
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where)

    recipe, images = Recipe(), jax.ShapeDtypeStruct((512, 32, 32, 3), jnp.uint8)
    network = SPACE.trainable(SPACE.parse("323133"))
    state, _ = untrained([network], recipe)
    batch = shaped(jax.ShapeDtypeStruct((1, recipe.batch), jnp.int32), None, "images")
    rest = shaped(jnp.stack([jax.random.key(0)])), shaped(jnp.zeros(()))
    with TARGETS["h100"].traced():
        step = compiled_step(network, recipe, recipe.steps(512))
        traced = step.trace(jax.tree.map(shaped, state), shaped(images), batch, batch, *rest)
        found = compiled(traced, TARGETS["h100"])
    assert count(found.text, "all-reduce") > 0
    assert count(found.text, *COMMUNICATION) == count(found.text, "all-reduce")


@pytest.mark.target
def test_a_program_fits_on_a_tpu() -> None:
    here("v5e")
    _, program = fit(SPACE, Config(), SPACE.parse("323133"), 4, TARGETS["v5e"], batch=1)
    assert program.memory <= TARGETS["v5e"].room
    assert convolutions(program.text) > 10


@pytest.mark.target
def test_fits_says_what_fits() -> None:
    here("h100")
    printed = invoke("fits", "h100", "random:64", *OPTIONS, "--format", "csv")
    (row,) = pd.read_csv(StringIO(printed.stdout)).to_dict("records")
    assert row["fits"] and row["networks"] == 64 and row["group"] == 16
    assert 0 < row["needs_gib"] < row["has_gib"]
    assert 0 < row["at_best_seconds"] < 1
    bandwidth = TARGETS["h100"].bandwidth
    assert np.isclose(row["moved_seconds"], 64 * row["moved_gb"] * 1e9 / bandwidth, rtol=1e-3)


@pytest.mark.target
def test_a_network_of_ones_own_fits() -> None:
    here("h100")
    linear = Model(lambda w, x: x.reshape(len(x), -1) @ w, jnp.ones((48, 10)))
    (row,) = ntkscore.fits("h100", linear, np.zeros((4, 4, 4, 3))).to_dict("records")
    assert row["fits"] and row["group"] == 1


@pytest.mark.target
def test_the_bound_of_a_device_that_is_not_at_hand() -> None:
    here("h100")
    space = NASBench201()
    frame = ntkscore.measure_latency(["210021", "323133"], space=space, target="h100", batch=8)
    assert list(frame) == ["h100_latency_bound_b8", "h100_moved_ms_b8", "h100_launches_b8"]
    flops = [space.costs(space.parse(each))["flops"] for each in ("210021", "323133")]
    bound = 8 * 2 * np.array(flops) / TARGETS["h100"].rate * 1e3
    np.testing.assert_allclose(frame["h100_latency_bound_b8"], bound, rtol=0.05)
    assert (frame["h100_launches_b8"] > 10).all()
    assert frame["h100_moved_ms_b8"].is_monotonic_increasing
