"""However the cells are laid out, over devices and processes, the rows are the same."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest

from cells import Cell
from ntkscore import devices, engine
from ntkscore.config import Config
from ntkscore.devices import Plan
from ntkscore.errors import InputError
from ntkscore.images import load
from ntkscore.results import ResultSet
from ntkscore.scorer import Scorer

TINY = Config(channels=4, cells_per_stage=1, samples=4)
TINY_OPTIONS = ["--channels", "4", "--cells-per-stage", "1", "--samples", "4"]
CELLS = tuple(map(Cell, (2581, 1462, 7, 100, 5000)))


def rows_by(plan: Plan, config: Config = TINY, cells: tuple[Cell, ...] = CELLS) -> pd.DataFrame:
    data = load("synthetic")
    found = engine.compute(cells, [0], data, config, set(), plan)
    rows = [row for _, chunk in found for rows in chunk for row in rows]
    return pd.DataFrame(rows).sort_values(["cell", "rho", "kernel", "beta", "score"])


def same_rows(a: pd.DataFrame, b: pd.DataFrame, tolerance: float = 1e-5) -> None:
    a, b = a.reset_index(drop=True), b.reset_index(drop=True)
    pd.testing.assert_frame_equal(a.drop(columns="value"), b.drop(columns="value"))
    np.testing.assert_allclose(a["value"], b["value"], rtol=tolerance)


@pytest.fixture(scope="module")
def one_by_one() -> pd.DataFrame:
    return rows_by(Plan(tuple(jax.local_devices()), 1, 1))


def test_the_size_of_a_batch_changes_nothing(one_by_one: pd.DataFrame) -> None:
    same_rows(rows_by(Plan(tuple(jax.local_devices()), 1, 3)), one_by_one)


def test_cells_side_by_side_agree_with_one_after_the_other() -> None:
    """The accelerator's formulation, in float64 because it rounds differently near kinks."""
    exact = Config(channels=4, cells_per_stage=1, samples=4, x64=True)
    here = tuple(jax.local_devices())
    same_rows(rows_by(Plan(here, 2, 4), exact), rows_by(Plan(here, 1, 1), exact), 1e-8)


def test_radii_together_agree_with_radii_alone() -> None:
    here = Plan(tuple(jax.local_devices()), 1, 1)
    choices = {"channels": 4, "cells_per_stage": 1, "samples": 4, "x64": True}
    radii = (2 / 255, 8 / 255, 16 / 255)
    together = rows_by(here, Config(rhos=radii, **choices), CELLS[:2])
    alone = [rows_by(here, Config(rhos=(rho,), **choices), CELLS[:2]) for rho in radii]
    expected = pd.concat(alone).sort_values(["cell", "rho", "kernel", "beta", "score"])
    same_rows(together, expected, 1e-8)


def test_exhausted_memory_halves_the_batch(
    monkeypatch: pytest.MonkeyPatch, one_by_one: pd.DataFrame
) -> None:
    start = Scorer.start
    refused = []

    def limited(self: Scorer, cells: list[Cell], batch: object) -> object:
        if self.plan.batch > 1:
            refused.append(self.plan.batch)
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")
        return start(self, cells, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(Scorer, "start", limited)
    same_rows(rows_by(Plan(tuple(jax.local_devices()), 1, 4)), one_by_one)
    assert refused == [4, 2]


def test_other_failures_and_the_smallest_batch_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> None:
        def start(*arguments: object) -> object:
            raise jax.errors.JaxRuntimeError(text)

        monkeypatch.setattr(Scorer, "start", start)

    here = tuple(jax.local_devices())
    fail("INTERNAL: something else")
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        rows_by(Plan(here, 1, 4))
    fail("RESOURCE_EXHAUSTED: Out of memory")
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        rows_by(Plan(here, 1, 1))


def accelerator(free: int) -> SimpleNamespace:
    stats = {"bytes_limit": free + 10, "bytes_in_use": 10}
    return SimpleNamespace(platform="gpu", device_kind="A GPU", memory_stats=lambda: stats)


def test_plans() -> None:
    cpu = jax.local_devices()[:1]
    assert devices.plan(TINY, 32, devices=cpu) == Plan(tuple(cpu), 1, 1)
    assert devices.plan(TINY, 32, devices=2 * cpu) == Plan((*cpu, *cpu), 1, 4)
    huge = Config(samples=10**6)
    assert devices.plan(huge, 32, devices=2 * cpu) == Plan(tuple(cpu), 1, 1)
    assert devices.plan(TINY, 32, 6, cpu).cells_per_call == 6
    with pytest.raises(InputError, match="expected a batch of at least 1 cell, got 0; raise it"):
        devices.plan(TINY, 32, batch=0)
    large = devices.plan(Config(), 32, devices=[accelerator(80 * 10**9)])
    assert (large.group, large.batch) == (16, 64)
    small = devices.plan(Config(), 32, devices=[accelerator(8 * 10**9)])
    assert 1 <= small.group < 16
    assert devices.plan(Config(), 32, 20, [accelerator(80 * 10**9)]).batch == 32
    assert str(large) == "1 × A GPU, 64 cells per call and device, 16 side by side"


def test_every_core_is_a_device() -> None:
    command = "from ntkscore import devices; devices.cores_as_devices(); import jax; "
    command += "print(len(jax.devices()))"

    def count(**environment: str) -> int:
        environ = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | environment
        run = subprocess.run(
            [sys.executable, "-c", command], env=environ, capture_output=True, text=True, check=True
        )
        return int(run.stdout)

    assert count() == len(os.sched_getaffinity(0))
    assert count(JAX_NUM_CPU_DEVICES="3") == 3
    assert count(XLA_FLAGS="--xla_force_host_platform_device_count=5") == 5


def test_plans_halve_to_the_end() -> None:
    plan: Plan | None = Plan((accelerator(1),), 4, 8)
    sizes = []
    while plan:
        sizes.append((plan.group, plan.batch))
        plan = plan.halved()
    assert sizes == [(4, 8), (2, 4), (1, 2), (1, 1)]


def test_incomplete_process_options() -> None:
    with pytest.raises(InputError, match="got no --process; add it"):
        devices.join(coordinator="localhost:1", processes=2)
    with pytest.raises(InputError, match="expected --process from 0 to 1, got 2"):
        devices.join(coordinator="localhost:1", processes=2, process=2)


def rank(out: Path, *options: str, **environment: str) -> subprocess.Popen:
    cache = {"JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}
    command = [sys.executable, "-m", "ntkscore", "rank", "--out", str(out), *TINY_OPTIONS, *options]
    environ = os.environ | cache | environment
    return subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def compiled(home: Path) -> set[str]:
    return {path.name for path in home.rglob("*") if path.name.endswith("-cache")}


def test_a_second_start_compiles_nothing(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home["JAX_COMPILATION_CACHE_DIR"] = ""
    finish(rank(tmp_path / "first", "--cells", "2581", **home))
    first = compiled(tmp_path)
    finish(rank(tmp_path / "second", "--cells", "1462,7", "--rho", "4/255", **home))
    assert first
    assert compiled(tmp_path) == first


def finish(process: subprocess.Popen) -> str:
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return errors


def rows_of(directory: Path) -> pd.DataFrame:
    return ResultSet.open(directory).read()


def test_eight_devices_and_two_processes(tmp_path: Path) -> None:
    """Both against one device; of the two processes one is killed, and a rerun completes."""
    told = finish(rank(tmp_path / "one", "--cells", "random:60", JAX_NUM_CPU_DEVICES="1"))
    assert "1 × cpu, 1 cell per call and device, one after the other" in told
    expected = rows_of(tmp_path / "one")

    eight = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    told = finish(rank(tmp_path / "eight", "--cells", "random:60", **eight))
    assert "8 × cpu, 4 cells per call and device, one after the other" in told
    same_rows(rows_of(tmp_path / "eight"), expected)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    out = tmp_path / "two"
    common = ["--cells", "random:60", "--coordinator", address, "--processes", "2"]
    processes = [rank(out, *common, "--process", str(i)) for i in range(2)]
    deadline = time.monotonic() + 300
    while not list(out.glob("part-*.parquet")):
        assert time.monotonic() < deadline and processes[1].poll() is None
        time.sleep(0.02)
    processes[1].kill()
    processes[1].communicate(timeout=60)
    told = finish(processes[0])
    assert "cells are left to other processes" in told
    assert 30 <= len(ResultSet.open(out).finished()) < 60
    finish(rank(out, "--cells", "random:60"))
    same_rows(rows_of(out), expected)
