"""The parts of a measurement, each in a process of its own, so that none can end the others."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from experiments.accelerator.folder import Folder
from experiments.accelerator.sizes import SIZES

GRACE = 60.0
"""Seconds in which a part that was asked to stop may put on disk what it has."""

Ending = Literal["done", "failed", "stopped"]


@dataclass(frozen=True)
class Part:
    """A program to run.

    Attributes:
        name: in the log and on the page.
        command: module and arguments, for Python's `-m`.
        output: name of the file that its stdout goes to.
    """

    name: str
    command: tuple[str, ...]
    output: str


class Outcome(NamedTuple):
    """How a part ended, after how many seconds; and the last that it said, unless all went well."""

    ending: Ending
    seconds: float
    why: str = ""


def parts_of(size: str, folder: Folder, data: Path) -> dict[str, list[Part]]:
    """The parts by kind, in the order in which they run.

    Args:
        size: a name in `SIZES`.
        folder: what they leave goes there.
        data: the folder with data sets, tables and `parity`.
    """
    files = sorted((data / "parity").glob("*.npz"), key=lambda path: path.stat().st_size)
    verify = [
        Part(
            f"verify {path.stem} in {precision}",
            ("ntkscore", "verify", str(path), *options, "--format", "csv"),
            f"verify-{path.stem}-{precision}.csv",
        )
        for precision, options in (("float32", ()), ("float64", ("--x64",)))
        for path in files[: SIZES[size].parity]
    ]
    room, options = "experiments.accelerator", ("--no-rivals", "--format", "json")
    benchmark = ("experiments.benchmark", *options, *SIZES[size].benchmark)
    return {
        "machine": [Part("machine", (f"{room}.machine",), "machine.json")],
        "verify": verify,
        "benchmark": [Part("benchmark", benchmark, "benchmark.json")],
        "space": [Part("space", (f"{room}.space", str(folder.path)), "ranking.csv")],
    }


def page_of(folder: Folder) -> Part:
    """The part that reads what the others have left."""
    return Part("page", ("experiments.accelerator.page", str(folder.path)), os.devnull)


def run(part: Part, folder: Folder, data: Path, limit: float) -> Outcome:
    """Run a part to its end, or ask it to stop when its time is up.

    Args:
        part: the program.
        folder: where its output and what it says on stderr go.
        data: the folder with data sets and tables.
        limit: seconds that it may take.
    """
    start = time.monotonic()
    environment = {"NTKSCORE_DATA": str(data), "PYTHONUNBUFFERED": "1"}
    with folder.log.open("a") as log, (folder.path / part.output).open("w") as output:
        said = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", *part.command],
            env=os.environ | environment,
            stdout=output,
            stderr=log,
        )
        stopped = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            stopped = True
        finally:
            _end(process)
    seconds = time.monotonic() - start
    if process.returncode == 0:
        return Outcome("done", seconds)
    with folder.log.open() as log:
        log.seek(said)
        lines = [line.strip() for line in log if line.strip()]
    silence = "its time was up" if stopped else f"exit code {process.returncode}, nothing said"
    return Outcome("stopped" if stopped else "failed", seconds, lines[-1] if lines else silence)


def _end(process: subprocess.Popen) -> None:
    """Ask a process that still runs to stop, and kill it if it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
