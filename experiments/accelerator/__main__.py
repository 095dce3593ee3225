"""A machine measured with one command: `python -m experiments.accelerator --out FOLDER`.

In turn: what the machine is; `ntkscore verify` of every parity file in float32 and float64; the
benchmark; the ranking of the whole space; and a page about all of it. Whatever one of them meets,
the next begins. The same command goes on where the last one stopped.
"""

import time
from collections.abc import Container
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from experiments.accelerator.folder import Folder
from experiments.accelerator.parts import Outcome, Part, page_of, parts_of, run
from experiments.accelerator.sizes import SIZES
from ntkscore.cli.output import input_errors
from ntkscore.paths import data_home

BEFORE_RANKING = 0.5
"""Share of the time that the parts before the ranking may take together."""
PAGE_SECONDS = 300.0


def say(folder: Folder, text: str) -> None:
    """Put a line on the terminal and into the log."""
    line = f"{datetime.now():%H:%M:%S} {text}"
    typer.echo(line)
    with folder.log.open("a", encoding="utf-8") as log:
        log.write(f"== {line}\n")


def run_unless_done(part: Part, folder: Folder, data: Path, limit: float) -> Outcome:
    """The outcome of a part; that of an earlier start, if it was done then."""
    ending, *rest = folder.read("parts").get(part.name, ("stopped", 0.0))
    if ending == "done":
        return Outcome(ending, *rest)
    outcome = Outcome("stopped", 0.0, "no time was left; the same command goes on")
    if limit > 0:
        say(folder, part.name)
        outcome = run(part, folder, data, limit)
    why = f": {outcome.why}" if outcome.why else ""
    say(folder, f"{part.name} {outcome.ending} after {outcome.seconds:.0f} s{why}")
    return outcome


def measure(
    size: str, folder: Folder, data: Path, kinds: Container[str], minutes: float
) -> list[Outcome]:
    """Run all parts, then write the page; the outcome of each.

    Args:
        size: a name in `SIZES`.
        folder: where everything goes.
        data: the folder with parity files, data sets and tables.
        kinds: which parts, of verify, benchmark and space.
        minutes: for all of them.
    """
    folder.begin(size)
    start, outcomes = time.monotonic(), []
    for kind, parts in parts_of(size, folder, data).items():
        if kind not in kinds:
            continue
        if not parts:
            say(folder, f"{kind}: expected .npz files in {data / 'parity'}, got none; left out")
        share = BEFORE_RANKING if kind != "space" and "space" in kinds else 1.0
        for part in parts:
            left = start + 60 * minutes * share - time.monotonic()
            outcome = run_unless_done(part, folder, data, left)
            folder.write("parts", {**folder.read("parts"), part.name: outcome})
            outcomes.append(outcome)
    outcomes.append(run(page_of(folder), folder, data, PAGE_SECONDS))
    say(folder, outcomes[-1].why or str(folder.page))
    return outcomes


def main(
    out: Annotated[Path, typer.Option(help="Folder for all that comes of it.")] = Path(
        "runs/accelerator"
    ),
    size: Annotated[str, typer.Option(help=f"How much: {', '.join(SIZES)}.")] = "full",
    minutes: Annotated[
        float, typer.Option(help="Time for all parts; half of it is kept for the ranking.")
    ] = 10.0,
    verify: Annotated[bool, typer.Option(help="Verify the parity files.")] = True,
    benchmark: Annotated[bool, typer.Option(help="Time the kernels.")] = True,
    space: Annotated[bool, typer.Option(help="Rank the space.")] = True,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with parity files, data sets and tables; else $NTKSCORE_DATA."),
    ] = None,
) -> None:
    """Measure this machine: its arithmetic, its speed, and the whole space ranked on it."""
    wanted = {"machine": True, "verify": verify, "benchmark": benchmark, "space": space}
    kinds = {kind for kind, asked in wanted.items() if asked}
    with input_errors():
        outcomes = measure(size, Folder(out), data_home(data_dir).absolute(), kinds, minutes)
    if any(outcome.ending == "failed" for outcome in outcomes):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
