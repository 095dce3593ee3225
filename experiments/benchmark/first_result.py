"""Seconds from the shell to the first number: a cell scored by us, and by PyTorch.

Run as `python -m experiments.benchmark.first_result`. `ntkscore score` prints every score of every
kernel, those behind an attack too: once with nothing compiled before, then again and again. The
rival, where the interpreter has PyTorch, prints the clean kernel's norm and smallest eigenvalue.
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from experiments.benchmark.work import SMALL
from ntkscore.errors import InputError

SIZES = {
    "channels": SMALL.space.channels,
    "cells-per-stage": SMALL.space.cells_per_stage,
    "samples": SMALL.config.samples,
}


def seconds_to_a_number(
    module: str, arguments: Sequence[object] = (), environment: Mapping[str, str] | None = None
) -> float:
    """Seconds from the start of a module, in a process of its own, to its first line with a number.

    Raises:
        InputError: if it ends without one.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if any(character.isdecimal() for character in line):
                elapsed = time.perf_counter() - start
                process.stdout.read()
                return elapsed
    raise InputError(
        f"expected a number from {' '.join(command[1:])}, but it ended with {process.returncode} "
        "and none; run it alone to see why"
    )


def measure(cell: str, repeats: int) -> dict[str, float]:
    """Seconds to the first number: cold, warm and of PyTorch, the last two as medians."""
    options = [part for name, size in SIZES.items() for part in (f"--{name}", size)]
    with tempfile.TemporaryDirectory() as compiled:
        cache = {
            "JAX_COMPILATION_CACHE_DIR": compiled,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        ours = "ntkscore", ["score", cell, *options, "--format", "csv"], cache
        cold, *warm = (seconds_to_a_number(*ours) for _ in range(1 + repeats))
    times = {"cold": cold, "warm": statistics.median(warm)}
    if importlib.util.find_spec("torch"):
        rival = "experiments.benchmark.torch_reference", [cell, *SIZES.values()]
        times["torch"] = statistics.median(seconds_to_a_number(*rival) for _ in range(repeats))
    return times


def main(
    cell: Annotated[str, typer.Option(help="Which cell.")] = "323133",
    repeats: Annotated[int, typer.Option(help="Warm starts behind a median.")] = 3,
) -> None:
    """Time the way from the shell to a cell's first number."""
    for name, elapsed in measure(cell, repeats).items():
        typer.echo(f"{name:8} {elapsed:.2f} s")


if __name__ == "__main__":
    typer.run(main)
