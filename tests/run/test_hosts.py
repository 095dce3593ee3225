"""Hosts that share a run: through a bucket, by numbers, and as the scripts of docs/clusters do."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import jax
import pandas as pd
import pytest
import yaml
from tiny import (
    OPTIONS,
    REPOSITORY,
    RESIDUAL_OPTIONS,
    finish,
    free_port,
    invoke,
    rows_in,
    same_rows,
    start,
)

from ntkscore.paths import place
from ntkscore.results.atomic import writing_to
from ntkscore.results.result_set import ResultSet
from ntkscore.results.store import Bucket, Folder, store_at
from ntkscore.run import engine

SCRIPTS = REPOSITORY / "docs" / "clusters"
FEW = ["random:6", *OPTIONS]
SRUN = """
for i in 0 1; do SLURM_NTASKS=2 SLURM_PROCID=$i SLURM_LOCALID=$i "$@" & done
for job in $(jobs -p); do wait $job || exit; done
"""
"""What `srun` does, on one machine, with two tasks; its own options are taken away before."""


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The rows of six networks, computed by one process into a folder."""
    out = tmp_path_factory.mktemp("alone") / "run"
    finish(start("score", "--out", out, *FEW))
    return rows_in(out)


def parts(out: str | Path) -> list[str]:
    return [name for name in store_at(place(out)).names() if name.startswith("part-")]


@pytest.mark.thorough
def test_two_processes_share_a_bucket_and_one_is_killed(s3: str, tmp_path: Path) -> None:
    cells = ["random:60", *OPTIONS]
    finish(start("score", "--out", tmp_path / "alone", *cells))
    shares = [["score", "--out", s3, *cells, "--processes", 2, "--process", i] for i in range(2)]
    both = [start(*share) for share in shares]
    deadline = time.monotonic() + 300
    while not parts(s3):
        assert time.monotonic() < deadline and both[1].poll() is None
        time.sleep(0.02)
    both[1].kill()
    both[1].communicate(timeout=60)
    assert "networks are left to other processes" in finish(both[0])
    assert 30 <= len(ResultSet.open(s3).finished()) < 60
    assert "networks are left" not in finish(start(*shares[1]))
    run = ResultSet.open(s3)
    assert len(run.finished()) == 60 and len(run.sessions) == 3 and len(parts(s3)) == 1
    same_rows(run.read(), rows_in(tmp_path / "alone"))


@pytest.mark.thorough
def test_a_process_that_is_told_to_stop_writes_what_it_has(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start("score", "random:500", "--out", out, *OPTIONS)
    deadline = time.monotonic() + 300
    while not (out.is_dir() and parts(out)):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"{len(ResultSet.open(out).finished())} networks are on disk" in told


@pytest.mark.thorough
def test_slurm_numbers_the_processes_that_jax_joins(tmp_path: Path, expected: pd.DataFrame) -> None:
    out = tmp_path / "run"
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "127.0.0.1"}
    tasks = [
        {**job, "SLURM_NTASKS": "2", "SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)}
        for i in range(2)
    ]
    both = [start("score", "--out", out, *FEW, "--distributed", **task) for task in tasks]
    for process in both:
        finish(process)
    same_rows(rows_in(out), expected)


@pytest.mark.slow
def test_the_first_process_leaves_last() -> None:
    """JAX would end the other one, which takes longer."""
    program = """
import sys, time
from ntkscore.run.processes import join, wait_for_others
share = join(coordinator=sys.argv[1], processes=2, process=int(sys.argv[2]))
time.sleep(2 * share.index)
wait_for_others()
"""
    address = f"127.0.0.1:{free_port()}"
    commands = [[sys.executable, "-c", program, address, str(i)] for i in range(2)]
    both = [subprocess.Popen(each, stderr=subprocess.PIPE, text=True) for each in commands]
    for process in both:
        finish(process)


@pytest.mark.thorough
def test_without_the_first_process_jax_ends_the_others(tmp_path: Path) -> None:
    out, cells = tmp_path / "run", ["random:60", *OPTIONS]
    joined = [*cells, "--coordinator", f"127.0.0.1:{free_port()}", "--processes", 2]
    both = [start("score", "--out", out, *joined, "--process", i) for i in range(2)]
    deadline = time.monotonic() + 300
    while not (out.is_dir() and parts(out)):
        assert time.monotonic() < deadline and both[0].poll() is None
        time.sleep(0.02)
    both[0].kill()
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode != 0
    assert 0 < len(ResultSet.open(out).finished()) < 60
    finish(start("score", "--out", out, *cells))
    assert len(ResultSet.open(out).finished()) == 60


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_a_store_may_be_full_or_slow(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails ends the run, which goes on later; one that takes long is waited for."""
    monkeypatch.setattr(engine, "FLUSH_SECONDS", 0.0)
    networks = ["all", *RESIDUAL_OPTIONS, "--batch", "1"]
    invoke("score", "--out", tmp_path / "alone", *networks)
    out = str(tmp_path / "run") if kind == "folder" else f"memory://{tmp_path.name}/run"
    store = type(store_at(place(out)))
    write, written = store.write, []

    def full(self: Folder | Bucket, name: str, content: bytes) -> None:
        if name.startswith("part-"):
            written.append(name)
        with self._reached() if isinstance(self, Bucket) else writing_to(self.place):
            if len(written) > 1:
                raise OSError(28, "No space left on device")
        write(self, name, content)

    def slow(self: Folder | Bucket, name: str, content: bytes) -> None:
        time.sleep(0.5)
        write(self, name, content)

    monkeypatch.setattr(store, "write", full)
    told = invoke("score", "--out", out, *networks, code=2).stderr
    assert f"but {out} cannot be" in told and "No space left on device" in told
    total = len(ResultSet.open(tmp_path / "alone").finished())
    assert 0 < len(ResultSet.open(out).finished()) < total
    monkeypatch.setattr(store, "write", slow)
    invoke("score", "--out", out, *networks)
    same_rows(rows_in(out), rows_in(tmp_path / "alone"))


def on_a_cluster(script: str, bin: Path, **environment: str) -> None:
    """Run a script with commands in `bin` that stand for the cluster's.

    Its `ntkscore` computes a few small networks; of its options the last counts.
    """
    bin.mkdir(exist_ok=True)
    small = shlex.join([*FEW, "--data", "synthetic"])
    commands: Mapping[str, str] = {
        "ntkscore": f'test "$1" = fetch || exec {sys.executable} -m ntkscore "$@" {small}',
        "srun": f"while [[ $1 == --* ]]; do shift; done\n{SRUN}",
    }
    for name, text in commands.items():
        (bin / name).write_text(f"#!/bin/bash\n{text}\n")
        (bin / name).chmod(0o755)
    cache = {"JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}
    cache |= {"PATH": f"{bin}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run(
        ["bash", "-c", script], env=os.environ | cache | environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.thorough
def test_the_scripts_of_slurm_share_a_folder(tmp_path: Path, expected: pd.DataFrame) -> None:
    out = tmp_path / "array"
    for task in range(2):
        count = {"SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_ID": str(task)}
        script = (SCRIPTS / "slurm-array.sh").read_text()
        on_a_cluster(script, tmp_path / "bin", OUT=str(out), **count)
        assert len(ResultSet.open(out).finished()) == 3 * (task + 1)
    same_rows(rows_in(out), expected)
    out = tmp_path / "nodes"
    on_a_cluster((SCRIPTS / "slurm-nodes.sh").read_text(), tmp_path / "bin", OUT=str(out))
    same_rows(rows_in(out), expected)


@pytest.mark.thorough
def test_the_pods_of_kubernetes_share_a_bucket(
    s3: str, tmp_path: Path, expected: pd.DataFrame
) -> None:
    job = yaml.safe_load((SCRIPTS / "kubernetes.yaml").read_text())["spec"]
    (pod,) = job["template"]["spec"]["containers"]
    (script,) = pod["args"]
    assert [each["name"] for each in pod["env"]] == ["OUT"]
    for index in range(job["completions"]):  # two of the shares are empty
        on_a_cluster(script, tmp_path / "bin", OUT=s3, JOB_COMPLETION_INDEX=str(index))
    same_rows(rows_in(s3), expected)
