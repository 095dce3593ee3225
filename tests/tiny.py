"""The smallest networks that the tests share, so that each program is compiled once."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pytest

from cells.nasbench201.space import NASBench201
from cells.residual import Residual
from ntkscore import ImageSet, load_images, score
from ntkscore.cli import main
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.results import ResultSet

IMAGES = load_images("synthetic", samples=4)
SPACE = NASBench201(channels=4, cells_per_stage=1)
OPTIONS = ["--channels", "4", "--cells-per-stage", "1", "--samples", "4", "--seeds", "1"]
RESIDUAL = Residual(width=8)
RESIDUAL_OPTIONS = ["--space", "residual", "--width", "8", "--samples", "4"]
REPOSITORY = Path(__file__).parents[1]


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


def invoke(*arguments: object, code: int = 0) -> Ended:
    """Run a command in this process; it must end with this exit code."""
    found, out, errors = 0, StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            main(list(map(str, arguments)))
        except SystemExit as end:
            found = end.code
    ended = Ended(int(found or 0), out.getvalue(), errors.getvalue())
    assert ended.exit_code == code, ended
    return ended


def refused(message: str, *arguments: object) -> None:
    """The command ends with exit code 2 and one sentence on stderr, and nothing on stdout."""
    result = invoke(*arguments, code=2)
    assert message in " ".join(result.stderr.split())
    assert result.stderr.startswith("error: expected ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def same_rows(a: pd.DataFrame, b: pd.DataFrame, tolerance: float = 1e-5) -> None:
    """Both have the same rows, values up to a relative difference."""
    a, b = a.reset_index(drop=True), b.reset_index(drop=True)
    pd.testing.assert_frame_equal(a.drop(columns="value"), b.drop(columns="value"))
    np.testing.assert_allclose(a["value"], b["value"], rtol=tolerance)


@contextmanager
def compilations() -> Iterator[list[str]]:
    """The programs that are compiled, or read from where they are kept, in the block."""
    found: list[str] = []

    def count(event: str, *_: object, **__: object) -> None:
        found.extend([event] * event.endswith("backend_compile_duration"))

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(count)


def start(*arguments: object, **environment: str) -> subprocess.Popen:
    """Start a command in a process of its own, which keeps its compiled programs."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}
    cache["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    # A shell's background job ignores Ctrl-C, and so would its children.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from ntkscore.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=REPOSITORY,
        env=os.environ | cache | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed_on_devices(count: int, program: str, **environment: str) -> str:
    """What a program of Python prints, in a process with so many CPU devices."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
    environ = os.environ | {"XLA_FLAGS": flags} | environment
    run = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def finish(process: subprocess.Popen) -> str:
    """Wait for a command that must succeed; what it said on stderr."""
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return errors


def scored(
    networks: Any,
    images: Any,
    labels: Any,
    config: Config | None = None,
    *,
    space: Any = None,
    seed: int = 0,
    **of_set: Any,
) -> pd.DataFrame:
    """The rows of networks on these images, as they are; what else is given says more of them."""
    data = ImageSet.of(images, labels, **of_set) if of_set else (images, labels)
    return score(networks, data, config, space=space, seeds=[seed]).rows


def rows_in(directory: str | Path) -> pd.DataFrame:
    """The rows of a result directory."""
    return ResultSet.open(directory).read()


@contextmanager
def refuses(
    *got: object, expected: object = (), remedy: object = (), kind: Any = InputError
) -> Iterator[pytest.ExceptionInfo]:
    """The block ends with an error whose fields have these data, in whatever words around them.

    Args:
        got: what came, such as a value or a path; a text may stand in quotes.
        expected: one or a tuple of what is named as expected: an option, a file, a bound.
        remedy: as `expected`, of what is to be done.
        kind: of the error.
    """
    with pytest.raises(kind) as caught:
        yield caught
    given = {"got": got, "expected": expected, "remedy": remedy}
    fields = [(str(getattr(caught.value, name)), wanted) for name, wanted in given.items()]
    del caught  # whose traceback has this frame: what it holds is let go at once
    for text, wanted in fields:
        for each in wanted if isinstance(wanted, tuple) else (wanted,):
            forms = "|".join(re.escape(form) for form in (str(each), repr(each)) if form)
            assert re.search(rf"(?<![\w.-])({forms})(?!\w|\.\d)", text), (each, text)
