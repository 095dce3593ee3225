"""Where the tests find real data, and the strictness they run under."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import jaxtyping
import pytest

DATA = Path(os.environ.get("NTKSCORE_DATA") or Path(__file__).parents[2] / "shared" / "data")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets, tables and parity files; skips where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"real data not found at {DATA}; set NTKSCORE_DATA to a folder that has it")
    return DATA


@pytest.fixture(scope="session", autouse=True)
def strict_jax() -> Iterator[None]:
    """No silent change of dtype; and one compilation of each program for the whole session."""
    with tempfile.TemporaryDirectory() as compiled:
        jax.config.update("jax_numpy_dtype_promotion", "strict")
        jax.config.update("jax_compilation_cache_dir", compiled)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        yield
        jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture
def double() -> Iterator[None]:
    """Arithmetic in float64."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def quick_compilation() -> Iterator[None]:
    """Compiling costs more than running in most tests, so let XLA do little of it."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Annotations as a user meets them, unchecked: what refuses a wrong value is the code."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
