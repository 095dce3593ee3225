"""Where the tests find real data, and the strictness they run under."""

import gc
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

# Compiling costs more than running in most tests, so XLA does little of it, in commands that they
# run too. `make oracles` compiles as users do.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Its older code for loops compiles in half the time, and a module as a whole faster than in parts;
# a version without these refuses the flags.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    if os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1" and version("jaxlib").startswith("0.10.")
    else "",
)

import jax
import jaxtyping
import pytest
from hypothesis import settings
from tangents import neural_tangents
from typechecker import check_shapes

check_shapes()  # of what is imported from here on
gc.disable()  # until the tests run, since what is imported stays

# How long an example takes is the machine's, and no test of the code.
settings.register_profile("ntkscore", deadline=None)
settings.load_profile("ntkscore")

DATA = Path(os.environ.get("NTKSCORE_DATA") or Path(__file__).parents[2] / "shared" / "data")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets, tables and parity files; skips where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"real data not found at {DATA}; set NTKSCORE_DATA to a folder that has it")
    return DATA


@pytest.fixture(scope="session", autouse=True)
def strict_jax(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No silent change of dtype; and one compilation of each program for all processes."""
    from ntkscore.kernels import plain
    from ntkscore.run import devices

    folder = tmp_path_factory.getbasetemp()
    # Tests side by side have a folder each, in one that is the run's.
    compiled = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "compiled"
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_compilation_cache_dir", str(compiled))
    # A smaller program is compiled sooner than it is kept or read.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    # Tests replace what a kept trace would not notice.
    keep, devices.keep_traced = devices.keep_traced, lambda folder: None
    # Kernels have oracles of their own here; compiling a Jacobian for each would take longer.
    largest, plain.LARGEST = plain.LARGEST, 0
    yield
    devices.keep_traced, plain.LARGEST = keep, largest
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture(scope="session", autouse=True)
def shared_contexts() -> Iterator[None]:
    """Modules of one thread share a context of MLIR, of which JAX makes one for each program.

    Making it takes 3 ms, a fifth of what the first call of a small operation takes.
    """
    from jax._src.interpreters import mlir

    make, latest = getattr(mlir, "make_ir_context", None), threading.local()

    def shared() -> Any:
        # What is interned stays as long as the context, so a hundred programs have one.
        if getattr(latest, "left", 0) == 0:
            latest.context, latest.left = make(), 100
        latest.left -= 1
        return latest.context

    if make is not None:
        mlir.make_ir_context = shared
    yield
    if make is not None:
        mlir.make_ir_context = make


@pytest.fixture(scope="session", autouse=True)
def recorded_once() -> Iterator[None]:
    """The rows that come with the package, 1.4 million of them, are read once in each process."""
    from ntkscore.paths import RECORDED
    from ntkscore.results import ResultSet

    read, kept = ResultSet.read, []

    def reading(results: ResultSet) -> Any:
        if results.directory != RECORDED:
            return read(results)
        if not kept:
            kept.append(read(results))
        return kept[0].copy(deep=False)

    ResultSet.read = reading  # type: ignore[method-assign]
    yield
    ResultSet.read = read  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def forgotten_programs() -> Iterator[None]:
    """Every compiled program takes mappings of memory, of which Linux gives a process 65,530."""
    from ntkscore.memory import has_many_mappings

    start = time.monotonic()
    yield
    # A test that took no time has compiled little.
    if time.monotonic() - start > 0.5 and has_many_mappings():
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def double() -> Iterator[None]:
    """Arithmetic in float64."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Annotations as a user meets them, unchecked: what refuses a wrong value is the code."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A URL in an empty bucket. A server on this machine holds it, and is in the environment."""
    import fsspec
    from tiny import free_port

    for package in ("moto", "s3fs"):
        pytest.importorskip(package, reason=f"{package} is not installed: see the extra `store`")
    port = free_port()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            assert server.poll() is None and time.monotonic() < deadline
            with socket.socket() as there:
                if there.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        fsspec.filesystem("s3").mkdir("bucket")
        yield "s3://bucket/deep/run"
    finally:
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        server.terminate()
        server.wait()


# Independent judges. A test that asks for one is an `oracle`: `make oracles` runs it.


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch; skips where it is missing."""
    return pytest.importorskip("torch", reason="PyTorch is not installed: see make oracles")


@pytest.fixture(scope="session")
def zoo(torch: ModuleType) -> ModuleType:
    """torchvision's networks."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed: see make oracles")
    from zoo.in_torch import models

    return models


@pytest.fixture(scope="session")
def nt() -> ModuleType:
    """neural-tangents, imported so that it works on current JAX; skips where it is missing."""
    if importlib.util.find_spec("neural_tangents") is None:
        pytest.skip("neural-tangents is not installed: pip install 'ntkscore[tangents]'")
    return neural_tangents()


def pytest_collection_finish() -> None:
    """No search for garbage goes through what has been imported."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"torch", "nt"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.oracle)
