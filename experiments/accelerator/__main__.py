"""A machine measured with one command: `python -m experiments.accelerator --out FOLDER`.

In turn: `ntkscore verify` of every parity file in float32 and float64, the benchmark, and the
ranking of the whole space, each in a process of its own: if one fails, the next still
runs. Then a short report. The same command goes on where the last one stopped.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from experiments.accelerator import report
from experiments.accelerator.ranking import SIZES, read_json, write_json
from ntkscore.paths import data_home

BEFORE_RANKING = 0.5
"""Share of the time that the parts before the ranking may take together."""
RANKING = "ranking.csv"
BENCHMARK = {
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
    benchmark = ("experiments.benchmark", "--no-rivals", "--format", "json", *BENCHMARK[size])
    return {
        **verify,
        "benchmark.json": benchmark,
        RANKING: ("experiments.accelerator.ranking", size, str(folder)),
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
        known, text = read_json(file), " ".join(command)
        if known.get(text, [""])[0] == "done":
            continue
        typer.echo(f"{time.strftime('%T')} {text}")
        share = 1.0 if output == RANKING else BEFORE_RANKING
        remaining = start + 60 * minutes * share - time.monotonic()
        write_json(file, known | {text: run(command, folder / output, data, remaining)})
    typer.echo(report.write(folder, data).read_text(encoding="utf-8"))
    return [Ending(*ending) for ending in read_json(file).values()]


def main(
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
    if size not in SIZES:
        raise typer.BadParameter(f"expected one of {', '.join(SIZES)}, got {size!r}; choose one")
    endings = measure(size, out, data_home(data_dir).absolute(), minutes)
    if any(ending.how == "failed" for ending in endings):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
