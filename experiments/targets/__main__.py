"""Every program compiled for every target: `python -m experiments.targets`.

Needs the targets' compilers (`make targets`), and none of the devices. Each program is compiled in
a process of its own and its row kept, so that the same command goes on where the last one stopped.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import jax
import pandas as pd
import typer

from experiments.targets.page import ROWS, kept_rows, write
from experiments.targets.programs import PROGRAMS
from ntkscore.cli.display import input_errors
from ntkscore.run.fits import compiled
from ntkscore.run.program_text import COMMUNICATION, GENERIC
from ntkscore.run.targets import TARGETS, devices_of, target_named
from ntkscore.trace.arithmetic import program_multiply_adds

PAGE = Path("experiments/TARGETS.md")

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


def row(target: str, program: str) -> dict[str, Any]:
    """What the compiler says of one program on one target."""
    made, on = PROGRAMS[program], target_named(target)
    devices = devices_of(on, made.devices)
    with on.traced(), jax.default_matmul_precision(made.products):
        traced = made.trace(devices)
        found = compiled(traced, on)
    reading, networks = found.reading, made.networks
    # A trace of what is split over devices is that of all of them.
    share = networks * (made.devices if made.communicates else 1)
    communication = {n: reading.count(n) for n in COMMUNICATION if reading.count(n)}
    return {
        "compiled_seconds": round(found.seconds, 1),
        "needs_bytes": found.memory,
        "temporary_bytes": found.temporaries,
        "gflop": 2 * program_multiply_adds(traced.jaxpr.jaxpr) / share / 1e9,
        "launches": reading.work.launches / networks,
        "moved_gb": reading.work.moved / networks / 1e9,
        "convolutions": reading.convolutions,
        "choices": reading.work.choices / networks,
        "unknown_loops": reading.trips.count(0),
        "generic": json.dumps({n: reading.count(n) for n in GENERIC if reading.count(n)}),
        "library": json.dumps({n: c for n, c in reading.operations.items() if "$" in n}),
        "communication": json.dumps(communication),
        "reduced": found.reduced,
        "failure": "",
    }


def compile_apart(target: str, program: str, seconds: float) -> dict[str, Any]:
    """`row`, in a process of its own; a row with the reason where it fails."""
    command = [sys.executable, "-m", "experiments.targets", "--one", target, program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"failure": f"not compiled within {seconds:.0f} s"}
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return {"failure": (said or [f"exit code {done.returncode}"])[-1][:300]}


def wanted(targets: list[str], some: str) -> Iterator[tuple[str, str]]:
    """Pairs of target and program."""
    for name, program in PROGRAMS.items():
        for target in targets:
            if some in name and (not program.on or target in program.on):
                yield target, name


@app.command()
def main(
    target: Annotated[
        list[str] | None, typer.Option(help="Which targets; all if left out.")
    ] = None,
    some: Annotated[str, typer.Option(help="Only programs whose name has this text.")] = "",
    limit: Annotated[float, typer.Option(help="Seconds for a program.")] = 900.0,
    again: Annotated[bool, typer.Option("--again", help="Compile what has a row, too.")] = False,
    one: Annotated[tuple[str, str] | None, typer.Option(hidden=True)] = None,
) -> None:
    """Compile every program for every target, and write experiments/TARGETS.md."""
    # The plugins of devices that are not at hand would otherwise be started, and complain.
    jax.config.update("jax_platforms", "cpu")
    if one is not None:
        print(json.dumps(row(*one)))
        return
    with input_errors():
        targets = [target_named(name).name for name in target or TARGETS]
        for name in targets:
            devices_of(target_named(name))
    rows = kept_rows()
    if not rows.empty:
        listed = set(wanted([*TARGETS], ""))
        pairs = zip(rows["target"], rows["program"], strict=True)
        rows = rows[[pair in listed for pair in pairs]]
    done = rows if rows.empty else rows[rows["failure"] == ""]
    known = set() if rows.empty else set(zip(done["target"], done["program"], strict=True))
    for pair in wanted(targets, some):
        if pair in known and not again:
            continue
        typer.echo(" ".join(pair), nl=False)
        found = {"target": pair[0], "program": pair[1], **compile_apart(*pair, limit)}
        typer.echo(f": {found['failure'] or str(found['compiled_seconds']) + ' s'}")
        if not rows.empty:
            rows = rows[(rows["target"] != pair[0]) | (rows["program"] != pair[1])]
        rows = pd.concat([rows, pd.DataFrame([found])], ignore_index=True)
        rows.to_csv(ROWS, index=False, lineterminator="\n")
    PAGE.write_text(write(kept_rows()), encoding="utf-8")
    typer.echo(PAGE)


if __name__ == "__main__":
    app()
