"""Workers of a Dask cluster on this machine: one is killed, one is late, the scheduler is lost."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import pandas as pd
import pytest
from tiny import (
    OPTIONS,
    REPOSITORY,
    RESIDUAL_OPTIONS,
    finish,
    free_port,
    printed_on_devices,
    refused,
    rows_in,
    start,
)

from ntkscore.results import ResultSet
from ntkscore.run import cluster
from ntkscore.spaces import space_class

pytest.importorskip("distributed", reason="distributed is not installed: see the extra `cluster`")
NETWORKS = ["all", *RESIDUAL_OPTIONS, "--depth", 9, "--seeds", 4]
UNITS = 4 * 2**7
FILE = """
import time

import jax
from ntkscore import Model

def networks(images):
    first, last = jax.random.split(jax.random.key(3))
    shapes = (first, (images[0].size, 4)), (last, (4, 10))
    weights = [jax.random.normal(key, shape) / 10 for key, shape in shapes]
    return {"mine": Model(lambda w, x: jax.nn.relu(x.reshape(len(x), -1) @ w[0]) @ w[1], weights)}
"""


@pytest.fixture
def environment() -> dict[str, str]:
    """That of a process which keeps compiled programs where the tests do."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}
    cache |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "PYTHONPATH": str(REPOSITORY)}
    return os.environ | cache


@pytest.fixture
def launch(environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts a scheduler or a worker, which ends with the test at the latest."""
    running: list[subprocess.Popen] = []

    def launched(kind: str, *arguments: object) -> subprocess.Popen:
        command = [sys.executable, "-m", "dask", kind, *map(str, arguments), "--no-dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        running.append(subprocess.Popen(command, env=environment, **quiet))
        return running[-1]

    yield launched
    for process in running:
        process.kill()
        process.wait()


def wait_for_rows(out: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not list(out.glob("part-*.parquet")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)


@pytest.mark.slow
def test_a_run_outlives_a_worker_and_not_its_scheduler(
    tmp_path: Path, launch: Callable[..., subprocess.Popen]
) -> None:
    finish(start("score", "--out", tmp_path / "alone", *NETWORKS))
    alone, address = rows_in(tmp_path / "alone"), f"tcp://127.0.0.1:{(port := free_port())}"
    scheduler = launch("scheduler", "--host", "127.0.0.1", "--port", port)
    worker = (address, "--no-nanny", "--nthreads", 1)
    first, _ = launch("worker", *worker), launch("worker", *worker)

    out = tmp_path / "worker"
    run = start("score", "--out", out, *NETWORKS, "--scheduler", address)
    wait_for_rows(out, run)
    first.kill()
    launch("worker", *worker)
    told = finish(run)
    assert "workers: cpu" in told
    pd.testing.assert_frame_equal(rows_in(out), alone, check_exact=True)

    out = tmp_path / "scheduler"
    run = start("score", "--out", out, *NETWORKS, "--scheduler", address)
    wait_for_rows(out, run)
    scheduler.kill()
    _, told = run.communicate(timeout=60)
    assert run.returncode == 2 and "are lost" in told, told
    assert 0 < len(ResultSet.open(out).finished()) < UNITS
    finish(start("score", "--out", out, *NETWORKS))
    pd.testing.assert_frame_equal(rows_in(out), alone, check_exact=True)


@pytest.mark.slow
def test_workers_make_the_networks_of_a_file(
    tmp_path: Path, launch: Callable[..., subprocess.Popen]
) -> None:
    file, address = tmp_path / "mine.py", f"tcp://127.0.0.1:{(port := free_port())}"
    launch("scheduler", "--host", "127.0.0.1", "--port", port)
    for _ in range(2):
        launch("worker", address, "--no-nanny", "--nthreads", 1)
    few = "score", file, "--samples", 4, "--seeds", 2, "--out"
    file.write_text(FILE)
    finish(start(*few, tmp_path / "alone"))
    told = finish(start(*few, tmp_path / "run", "--scheduler", address))
    assert "workers: cpu" in told
    same = rows_in(tmp_path / "alone")
    pd.testing.assert_frame_equal(rows_in(tmp_path / "run"), same, check_exact=True)
    file.write_text(FILE.replace("key(3)", "key(time.time_ns() % 2**31)"))
    run = start(*few, tmp_path / "other", "--scheduler", address)
    _, told = run.communicate(timeout=60)
    assert run.returncode == 2 and "the same weights of mine" in told, told


def test_a_scheduler_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(cluster, "leave_devices", lambda: None)  # other tests have them
    address = f"tcp://127.0.0.1:{free_port()}"
    message = f"expected a Dask scheduler that can be reached, but {address} cannot be"
    refused(message, "score", "--out", tmp_path / "run", *NETWORKS, "--scheduler", address)
    assert not (tmp_path / "run").exists()
    message = f"expected a folder for what the workers of {address} compute"
    refused(message, "score", *NETWORKS, "--scheduler", address)
    others = tmp_path / "others"
    ResultSet.create_or_resume(others, {"samples": 4}, ("cell",))
    message = f"expected in {others} results of the same configuration"
    refused(message, "score", "--out", others, *NETWORKS, "--scheduler", address)


@pytest.mark.thorough
def test_the_script_of_slurm(tmp_path: Path, environment: dict[str, str]) -> None:
    """With commands that stand for the cluster's; of the options of `ntkscore` the last counts."""
    few = ["random:6", *OPTIONS]
    finish(start("score", "--out", tmp_path / "alone", *few))
    small = shlex.join([*OPTIONS, "--data", "synthetic"])
    commands = {
        "hostname": "echo 127.0.0.1",
        "dask": f'exec {sys.executable} -m dask "$@" --no-dashboard',
        "srun": 'while [[ $1 == --* ]]; do shift; done; for _ in 0 1; do "$@" & done; wait',
        "ntkscore": f'exec {sys.executable} -m ntkscore score random:6 "${{@:3}}" {small}',
    }
    for name, text in commands.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment |= {"PATH": path, "OUT": str(tmp_path / "run"), "PORT": str(free_port())}
    script = REPOSITORY / "docs" / "clusters" / "slurm.sh"
    with (tmp_path / "log").open("w") as log:
        job = subprocess.Popen(
            ["bash", script], env=environment, stdout=log, stderr=log, start_new_session=True
        )
        ended = job.wait(300)
        os.killpg(job.pid, signal.SIGKILL)  # as Slurm does when the script has ended
    assert ended == 0, (tmp_path / "log").read_text()
    same = rows_in(tmp_path / "alone")
    pd.testing.assert_frame_equal(rows_in(tmp_path / "run"), same, check_exact=True)


def test_a_worker_needs_no_file_of_ones_own(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    file, pickled = tmp_path / "mine.py", tmp_path / "space"
    file.write_text("def networks(images):\n    return {str(images.shape): None}\n")
    own = tmp_path / "own.py"
    own.write_text(Path(__file__).with_name("own_space.py").read_text())
    spaces = space_class(str(file))(), space_class(str(own))()
    pickled.write_bytes(cloudpickle.dumps(spaces))
    file.unlink()
    own.unlink()
    program = "import pathlib, pickle\n"
    program += f"one, other = pickle.loads(pathlib.Path({str(pickled)!r}).read_bytes())\n"
    program += "print(one.made(one.points), other.parse('8xtanh'))"
    assert "{'(64, 32, 32, 3)': None}" in printed_on_devices(1, program)
