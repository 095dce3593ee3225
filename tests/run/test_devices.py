"""However the networks are laid out, over devices and processes, the rows are the same."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from tiny import (
    IMAGES,
    OPTIONS,
    RESIDUAL,
    RESIDUAL_OPTIONS,
    SPACE,
    finish,
    refuses,
    rows_in,
    same_rows,
)
from tiny import start as start_command

from cells import choice
from cells.darts import Darts, Genotype
from cells.darts.published import PUBLISHED
from cells.nasbench201 import Cell
from cells.nasbench201.space import NASBench201
from ntkscore.config import Config
from ntkscore.data.images import load_images
from ntkscore.kernels.stack import stack
from ntkscore.measures.registry import measures_of
from ntkscore.measures.slopes import SLOPES
from ntkscore.memory import usable_cores
from ntkscore.run import calls, devices, engine
from ntkscore.run.calls import in_order
from ntkscore.run.devices import Plan
from ntkscore.run.scorer import Scorer
from ntkscore.run.scoring import Scoring
from ntkscore.space import Space

CELLS = tuple(map(Cell, (2581, 1462, 7, 100, 5000)))
NETWORKS = tuple(map(RESIDUAL.parse, ("00", "01", "10", "11")))


def rows_by(
    plan: Plan,
    config: Config | None = None,
    architectures: Sequence[object] = NETWORKS,
    space: Space = RESIDUAL,
) -> pd.DataFrame:
    job = Scoring.of(IMAGES, config, space=space, seeds=1)
    computed = calls.compute(calls.Work(job.space, job.config, job.draws, architectures), plan)
    rows = [row for _, by_network in computed for rows in by_network for row in rows]
    key = next(iter(rows[0]))
    return pd.DataFrame(rows).sort_values([key, "rho", "kernel", "beta", "score"])


def here(group: int, batch: int) -> Plan:
    return Plan(tuple(jax.local_devices()[:1]), group, batch)


@pytest.fixture(scope="module")
def one_by_one() -> pd.DataFrame:
    return rows_by(here(1, 1))


@pytest.mark.slow
def test_the_size_of_a_batch_changes_nothing(one_by_one: pd.DataFrame) -> None:
    same_rows(rows_by(here(1, 3)), one_by_one)


@pytest.mark.thorough
def test_cells_side_by_side_agree_with_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The accelerator's formulation, in float64 because it rounds differently near kinks."""
    exact, pmax = Config(x64=True), choice.lax.pmax
    axes: list[object] = []
    sizes: list[object] = []

    def largest(x: jax.Array, axis: str) -> jax.Array:
        axes.append(axis)
        return pmax(x, axis)

    def ordered(*given: object) -> list:
        sizes.append(given[-1])
        return in_order(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(choice.lax, "pmax", largest)
    monkeypatch.setattr(calls, "in_order", ordered)
    together, alone = (rows_by(here(*plan), exact, CELLS, SPACE) for plan in ((2, 4), (1, 3)))
    same_rows(together, alone, 1e-8)
    # Networks of a group leave out what none of them has, and like goes with like.
    assert set(axes) == {choice.SIDE_BY_SIDE}
    assert sizes == [2, 1]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("space", "architectures"),
    [(SPACE, CELLS[:2]), (RESIDUAL, NETWORKS)],
    ids=["cells", "residual"],
)
def test_radii_together_agree_with_radii_alone(
    space: Space, architectures: Sequence[object]
) -> None:
    radii = (2 / 255, 8 / 255, 16 / 255)
    together, *alone = (
        rows_by(here(1, 1), Config(x64=True, rhos=rhos), architectures, space)
        for rhos in (radii, *[(rho,) for rho in radii])
    )
    order = [together.columns[0], "rho", "kernel", "beta", "score"]
    same_rows(together, pd.concat(alone).sort_values(order), 1e-8)


def test_exhausted_memory_halves_the_batch(
    monkeypatch: pytest.MonkeyPatch, one_by_one: pd.DataFrame
) -> None:
    start = Scorer.start
    refused = []

    def limited(self: Scorer, architectures: list[object], batch: object) -> object:
        if self.plan.batch > 1:
            refused.append(self.plan.batch)
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")
        return start(self, architectures, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(Scorer, "start", limited)
    same_rows(rows_by(here(1, 4)), one_by_one)
    assert refused == [4, 2]


@pytest.mark.slow
def test_memory_exhausted_while_waiting_repeats_the_waiting_networks(
    monkeypatch: pytest.MonkeyPatch, one_by_one: pd.DataFrame
) -> None:
    """A call that fails when its results are fetched is done again, and nothing is lost."""
    start, rows = Scorer.start, Scorer.rows
    failing = []

    def counted(self: Scorer, architectures: list[object], batch: object) -> object:
        failing.extend([len(architectures)] * (self.plan.batch == 2))
        return start(self, architectures, batch)  # type: ignore[arg-type]

    def limited(self: Scorer, *arguments: Any) -> object:
        if self.plan.batch == 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return rows(self, *arguments)

    monkeypatch.setattr(Scorer, "start", counted)
    monkeypatch.setattr(Scorer, "rows", limited)
    same_rows(rows_by(here(1, 2)), one_by_one)
    assert failing == [2, 2]


def test_other_failures_and_the_smallest_batch_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> None:
        def start(*arguments: object) -> object:
            raise jax.errors.JaxRuntimeError(text)

        monkeypatch.setattr(Scorer, "start", start)

    fail("INTERNAL: something else")
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        rows_by(here(1, 4))
    fail("RESOURCE_EXHAUSTED: Out of memory")
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        rows_by(here(1, 1))


def accelerator(free: int | None, platform: str = "gpu") -> SimpleNamespace:
    stats = None if free is None else {"bytes_limit": free + 10, "bytes_in_use": 10}
    return SimpleNamespace(platform=platform, device_kind="A GPU", memory_stats=lambda: stats)


def test_plans() -> None:
    cpu = jax.local_devices()[:1]
    usual = calls.plan_for(SPACE, CELLS, Config(), 4)
    assert usual == devices.plan(SPACE.memory((), 3 * 4, 4), networks=len(CELLS))
    assert devices.plan(10**6, devices=cpu) == Plan(tuple(cpu), 1, 1)
    assert devices.plan(10**6, devices=2 * cpu) == Plan((*cpu, *cpu), 1, 4)
    assert devices.plan(10**15, devices=2 * cpu) == Plan(tuple(cpu), 1, 1)
    assert devices.plan(10**6, 6, cpu).per_call == 6
    with refuses(0, expected=("batch", 1)):
        devices.plan(10**6, 0)
    large = devices.plan(10**9, devices=[accelerator(80 * 10**9)])
    assert (large.group, large.batch) == (16, 64)
    # On an accelerator the compiler says what has room, and not an estimate.
    assert devices.plan(10**15, devices=[accelerator(8 * 10**9)]).group == 16
    assert devices.plan(10**9, 20, [accelerator(80 * 10**9)]).batch == 32
    tpu = [accelerator(16 * 10**9, "tpu")]
    assert devices.plan(10**9, devices=tpu) == Plan(tuple(tpu), 1, 64)
    assert devices.plan(10**9, 20, tpu).batch == 20
    assert str(large) == "1 × A GPU, 64 networks per call and device, 16 side by side"


@pytest.mark.thorough
@pytest.mark.parametrize("cls", [NASBench201, Darts])
@pytest.mark.parametrize(("bn", "group"), [("calibrated", 1), ("calibrated", 4), ("instance", 1)])
def test_memory_is_estimated_on_the_safe_side_of_the_compilers_figure(
    cls: type[NASBench201] | type[Darts], bn: str, group: int
) -> None:
    data, config = load_images("synthetic", samples=16), Config()
    space = cls(channels=8, bn=bn).on(data.task)
    images, labels = data.draw(0)
    variables = space.draw((), 0, np.float32)

    def score(code: jax.Array) -> tuple:
        model = space.model((), variables, code, jnp.asarray(images))
        return tuple(stack(model, images, labels, config.attack_at, jnp.array([0.03])))

    some = CELLS if cls is NASBench201 else list(map(Genotype.parse, PUBLISHED))
    encoded = [space.encode(architecture) for architecture in some[:group]]
    codes = jax.tree.map(lambda *leaves: jnp.stack(leaves), *encoded)
    alone = lambda codes: score(jax.tree.map(lambda leaf: leaf[0], codes))  # noqa: E731
    several = alone if group == 1 else jax.vmap(score, axis_name=choice.SIDE_BY_SIDE)
    lowered = jax.jit(several).lower(codes)
    # As users compile it, unlike this module's other programs.
    compiled = lowered.compile({"xla_backend_optimization_level": 3})
    allotted = compiled.memory_analysis().temp_size_in_bytes
    estimate = group * (space.memory((), 3 * data.samples, 4) or 0)
    assert 1 < estimate / allotted < 3


def test_plans_where_nobody_knows_the_memory() -> None:
    cpu = jax.local_devices()[:1]
    unknown = devices.plan(devices=[accelerator(None)])
    assert (unknown.group, unknown.batch) == (16, 64)
    assert devices.plan(None, 3, [accelerator(None)]).batch == 3
    assert devices.plan(None, devices=40 * cpu) == Plan(tuple(40 * cpu), 1, 4)
    alike = max(map(len, calls.by_shape(RESIDUAL, NETWORKS).values()))
    assert calls.plan_for(RESIDUAL, NETWORKS, Config(), 4) == devices.plan(None, networks=alike)
    assert calls.plan_for(RESIDUAL, [], Config(), 4) == devices.plan(None, networks=0)


def test_few_networks_take_small_calls(tmp_path: Path) -> None:
    two = 2 * jax.local_devices()[:1]
    sizes = [devices.plan(devices=two, networks=count).batch for count in (0, 1, 2, 3, 100)]
    assert sizes == [1, 1, 1, 4, 4]
    assert devices.plan(batch=4, devices=two, networks=1).batch == 4
    gpu, tpu = ([accelerator(80 * 10**9, platform)] for platform in ("gpu", "tpu"))
    for one, group in ((gpu, 16), (tpu, 1)):
        for few, many in ((one, group), (3 * one, 3 * group)):
            small, large = (devices.plan(devices=few, networks=many + more) for more in (0, 1))
            assert (small.group, small.batch, large.batch) == (group, group, 64)
    job = Scoring.of(IMAGES, space=RESIDUAL, seeds=2)
    told: list[engine.Progress] = []
    engine.run(job, NETWORKS[:1], tmp_path, report=told.append)
    progress = told[-1]
    assert (progress.done, progress.plan.batch) == (2, 1)


@pytest.mark.slow
def test_every_core_is_a_device() -> None:
    command = "from ntkscore.run import devices; devices.cores_as_devices(); import jax; "
    command += "print(len(jax.devices()))"

    def count(**environment: str) -> int:
        environ = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | environment
        run = subprocess.run(
            [sys.executable, "-c", command], env=environ, capture_output=True, text=True, check=True
        )
        return int(run.stdout)

    assert count() == usable_cores()
    assert count(JAX_NUM_CPU_DEVICES="3") == 3
    assert count(XLA_FLAGS="--xla_force_host_platform_device_count=5") == 5


def test_plans_halve_to_the_end() -> None:
    plan: Plan | None = Plan((accelerator(1),), 4, 8)
    sizes = []
    while plan:
        sizes.append((plan.group, plan.batch))
        plan = plan.halved()
    assert sizes == [(4, 8), (2, 4), (1, 2), (1, 1)]


def rank(out: Path, cells: str, *options: object, **environment: str) -> subprocess.Popen:
    command = ("score", cells, "--out", out, *options)
    return start_command(*command, **environment)


def compiled(home: Path) -> set[str]:
    return {path.name for path in home.rglob("*") if path.name.endswith("-cache")}


@pytest.mark.thorough
def test_a_second_start_compiles_nothing(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home["JAX_COMPILATION_CACHE_DIR"] = ""
    finish(rank(tmp_path / "first", "2581", *OPTIONS, **home))
    first = compiled(tmp_path)
    finish(rank(tmp_path / "second", "1462,7", *OPTIONS, "--rho", "4/255", **home))
    assert first
    assert compiled(tmp_path) == first


@pytest.mark.thorough
def test_eight_devices(tmp_path: Path) -> None:
    """Against one."""
    told = finish(rank(tmp_path / "one", "random:60", *OPTIONS, JAX_NUM_CPU_DEVICES="1"))
    assert "1 × cpu, 1 network per call and device, one after the other" in told
    expected = rows_in(tmp_path / "one")

    eight = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    told = finish(rank(tmp_path / "eight", "random:60", *OPTIONS, **eight))
    assert "8 × cpu, 4 networks per call and device, one after the other" in told
    same_rows(rows_in(tmp_path / "eight"), expected)


@pytest.mark.thorough
def test_three_devices_take_networks_of_any_space(tmp_path: Path, one_by_one: pd.DataFrame) -> None:
    names = ",".join(skips.pattern for skips in NETWORKS)
    finish(rank(tmp_path / "three", names, *RESIDUAL_OPTIONS, JAX_NUM_CPU_DEVICES="3"))
    columns = list(one_by_one.columns)
    # Kinks are crossed by rounding alone, which another optimisation of the program changes.
    three, alone = rows_in(tmp_path / "three")[columns], one_by_one.astype({"steps": "int32"})
    a, b = (rows["score"].isin(measures_of(SLOPES)) for rows in (three, alone))
    same_rows(three[~a], alone[~b], 1e-3)
    # Gradients that are all but equal: their correlation's 1/(v + k) magnifies rounding.
    same_rows(three[a], alone[b], 1e-2)


@pytest.mark.thorough
def test_cores_as_devices_compute_as_one_device_does() -> None:
    """At the size of full fidelity: there XLA's other library for convolutions went wrong."""
    program = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np
import ntkscore
from cells import NASBench201
from ntkscore.run import engine
from ntkscore.run.devices import Plan
from ntkscore.run.scoring import Scoring
from ntkscore.run.scorer import Scorer
data = ntkscore.load_images("synthetic")
space, config = NASBench201(cells_per_stage=1).on(data.task), ntkscore.Config()
cells, (images, labels) = [space.parse(413)] * 2, data.draw(1)
scorer = Scorer(space, config, Plan(tuple(jax.local_devices()), 1, 1))
batch = scorer.batch(images, labels, 1)
rows = [row for rows in scorer.rows(cells, batch, scorer.start(cells, batch)) for row in rows]
found = [r["value"] for r in rows if (r["kernel"], r["score"]) == ("clean", "frobenius")]
def clean(variables, images):
    return ntkscore.ntk(space.model((), variables, space.encode(cells[0]), images), images)
kernel = jax.jit(clean)(space.draw((), 1, np.float32), images)
print(np.abs(np.array(found) / np.linalg.norm(kernel) - 1).max())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) < 1e-3
