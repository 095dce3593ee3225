"""A machine measured with one command, part by part.

In turn: `ntkscore verify` of every parity file in float32 and float64, the benchmark, and the
ranking of the whole space, each in a process of its own: if one fails, the next still
runs. Then a short report. The same command goes on where the last one stopped.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from experiments.data import BENCHMARK, DATASET
from experiments.recordings import FULL_FIDELITY, SMALL, Recording
from experiments.tools import accelerator_report
from experiments.tools.clock import peak_bytes
from ntkscore import InputError, load_images, load_table, rank
from ntkscore.cli.display import progress_display
from ntkscore.errors import check_choice
from ntkscore.paths import data_home
from ntkscore.results.atomic import publish
from ntkscore.run.engine import Progress

SIZES = {
    "full": Recording(FULL_FIDELITY),
    "small": Recording(SMALL),
    "tiny": Recording({"samples": 4, "channels": 4, "cells_per_stage": 1}),
}
"""Images and networks of the ranking, by the size of a measurement."""
TINY_CELLS = 24
"""Cells that the size `tiny` ranks; the others rank all of them."""
BEFORE_RANKING = 0.5
"""Share of the time that the parts before the ranking may take together."""
RANKING = "ranking.csv"
TIMED = {
    "full": ("--count", "8"),
    "small": ("--count", "8", "--no-full"),
    "tiny": ("--count", "2", "--no-full"),
}


class Ending(NamedTuple):
    """The end of a part: done, failed or stopped; its seconds; and its last words."""

    how: str
    seconds: float
    why: str = ""


def parts_of(size: str, folder: Path, data: Path) -> dict[str, tuple[str, ...]]:
    """Modules and arguments for Python's `-m`, by the file that their output goes to, in order.

    Args:
        size: a name in `SIZES`; `tiny` verifies the smallest file alone.
        folder: what the parts leave goes there.
        data: the folder with data sets, tables and `parity`.
    """
    files = sorted((data / "parity").glob("*.npz"), key=lambda path: path.stat().st_size)
    verify = {
        f"verify-{path.stem}-{precision}.csv": (
            *("ntkscore", "verify", str(path), "--format", "csv"),
            *options,
        )
        for precision, options in (("float32", ()), ("float64", ("--x64",)))
        for path in (files[:1] if size == "tiny" else files)
    }
    tools = "experiments.tools"
    return {
        **verify,
        "benchmark.json": (tools, "benchmark", "--no-rivals", "--format", "json", *TIMED[size]),
        RANKING: (tools, "whole-space", size, str(folder)),
    }


def run(command: Sequence[str], output: Path, data: Path, limit: float) -> Ending:
    """Run a part to its end, or end it when its time is up.

    Args:
        command: module and arguments, for Python's `-m`.
        output: the file for its stdout; what it says on stderr goes to `log.txt` beside it.
        data: the folder with data sets and tables.
        limit: seconds that it may take.
    """
    if limit <= 0:
        return Ending("stopped", 0.0, "no time was left")
    start = time.monotonic()
    environment = os.environ | {"NTKSCORE_DATA": str(data), "PYTHONUNBUFFERED": "1"}
    with (output.parent / "log.txt").open("a+") as log, output.open("w") as stdout:
        said = log.seek(0, os.SEEK_END)
        try:
            subprocess.run(
                [sys.executable, "-m", *command],
                env=environment,
                stdout=stdout,
                stderr=log,
                timeout=limit,
                check=True,
            )
            how, why = "done", ""
        except subprocess.TimeoutExpired:
            how, why = "stopped", "its time was up"
        except subprocess.CalledProcessError as error:
            log.seek(said)
            last = [line.strip() for line in log if line.strip()][-1:]
            how, why = "failed", *(last or [f"exit code {error.returncode}, nothing said"])
    return Ending(how, time.monotonic() - start, why)


def write_json(path: Path, content: Any) -> None:
    """Replace a file atomically."""
    publish(path, json.dumps(content, indent=1).encode())


def measure(size: str, folder: Path, data: Path, minutes: float) -> list[Ending]:
    """Run all parts that are not done, and write the report; and return how each part ended.

    Args:
        size: a name in `SIZES`.
        folder: where everything goes.
        data: the folder with parity files, data sets and tables.
        minutes: for all parts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start, file = time.monotonic(), folder / "parts.json"
    for output, command in parts_of(size, folder, data).items():
        known, text = accelerator_report.read_json(file), " ".join(command)
        if known.get(text, [""])[0] == "done":
            continue
        typer.echo(f"{time.strftime('%T')} {text}")
        share = 1.0 if output == RANKING else BEFORE_RANKING
        remaining = start + 60 * minutes * share - time.monotonic()
        write_json(file, known | {text: run(command, folder / output, data, remaining)})
    typer.echo(accelerator_report.write(folder, data).read_text(encoding="utf-8"))
    return [Ending(*ending) for ending in accelerator_report.read_json(file).values()]


def clock(path: Path) -> Callable[[Progress], None]:
    """A function that keeps the state of this start in a file, beside those of earlier starts."""
    earlier = accelerator_report.read_json(path)
    began, start = time.monotonic(), time.strftime("%F %T")

    def note(progress: Progress) -> None:
        if progress.started is None:
            return
        state = {
            "networks": progress.resumed + progress.done,
            "total": progress.total,
            "seconds": time.monotonic() - began,
            "first_call": progress.started - began,
            "per_second": progress.rate,
            "peak_bytes": max(map(peak_bytes, progress.plan.devices)),
            "plan": str(progress.plan),
        }
        write_json(path, {**earlier, start: state})

    return note


def whole_space(size: str, folder: Path) -> None:
    """Rank the cells of a measurement on all local devices, as CSV; what is finished is kept.

    Images are CIFAR-10 and cells those of the table where these lie in the data folder, else the
    embedded images and the distinct cells.
    """
    home, note = data_home(), clock(folder / "pace.json")
    table = load_table(home / BENCHMARK) if (home / BENCHMARK).is_dir() else None
    cells = "table" if table else "distinct"
    if size == "tiny":
        cells = f"{'table' if table else 'random'}:{TINY_CELLS}"
    try:
        images = load_images(DATASET)
    except InputError as error:
        typer.echo(f"{error}; embedded images stand in for them", err=True)
        images = load_images("synthetic")
    config, space = SIZES[size].config, SIZES[size].space
    with progress_display() as show:

        def report(progress: Progress) -> None:
            note(progress)
            show(progress)

        out = folder / "space"
        frame = rank(cells, images, out, config, space=space, table=table, report=report)
    typer.echo(frame.to_csv(index=False), nl=False)


def accelerator(
    out: Annotated[Path, typer.Option(help="Folder for all that comes of it.")] = Path(
        "runs/accelerator"
    ),
    size: Annotated[str, typer.Option(help=f"How much: {', '.join(SIZES)}.")] = "full",
    minutes: Annotated[
        float, typer.Option(help="Time for all parts; half of it is kept for the ranking.")
    ] = 10.0,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with parity files, data sets and tables; else $NTKSCORE_DATA."),
    ] = None,
) -> None:
    """Measure this machine: its arithmetic, its speed, and the whole space ranked on it."""
    check_choice(size, tuple(SIZES), "the size")
    endings = measure(size, out, data_home(data_dir).absolute(), minutes)
    if any(ending.how == "failed" for ending in endings):
        raise typer.Exit(1)
