"""Every program compiled for every target, with the targets' compilers and none of the devices.

Each program is compiled in a process of its own and its row kept, so that the same command goes on
where the last one stopped.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import jax
import pandas as pd
import typer

from experiments.data import RECORDED
from experiments.page import markdown_table
from experiments.tools.programs import A_FEW, PROGRAMS
from ntkscore.run.fits import compiled
from ntkscore.run.program_text import COMMUNICATION, GENERIC
from ntkscore.run.targets import GIB, TARGETS, devices_of, target_named
from ntkscore.trace.arithmetic import program_multiply_adds

PAGE = Path("experiments/TARGETS.md")
ROWS = RECORDED / "targets.csv"
INTRODUCTION = """# Programs compiled for GPUs and TPUs

Made by `make targets` on a machine with two CPU cores and no accelerator: JAX describes the
devices, and their own compilers lay out the programs. Nothing here was run. What a compiler cannot
show is the numerics, the speed, and which algorithm cuDNN picks. All targets and columns are in
[results/targets.csv](results/targets.csv), what was found in
[docs/running.md](../docs/running.md#does-it-fit-on-a-gpu-or-tpu-that-is-not-at-hand).

*GiB* is what a program needs on a device at its peak. The other columns are for a network, or for a
training step: operations that the device starts one by one, and what these read and write. Without
numbers: not compiled for this target, or only the numbers decide how often a loop runs. *In fewer
bits* counts products that the device may compute in fewer bits than float32 has."""


def alone() -> None:
    """Leave the plugins of devices alone that are not at hand: they would start, and complain."""
    jax.config.update("jax_platforms", "cpu")


def compile_one(target: str, program: str) -> None:
    """Print what the compiler says of one program on one target, as JSON."""
    alone()
    made, on = PROGRAMS[program], target_named(target)
    devices = devices_of(on, made.devices)
    with on.traced(), jax.default_matmul_precision(made.products):
        traced = made.trace(devices)
        found = compiled(traced, on)
    reading, networks = found.reading, made.networks
    # A trace of what is split over devices is that of all of them.
    share = networks * (made.devices if made.communicates else 1)
    communication = {n: reading.count(n) for n in COMMUNICATION if reading.count(n)}
    row = {
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
    typer.echo(json.dumps(row))


def compile_apart(target: str, program: str, seconds: float) -> dict[str, Any]:
    """`compile_one` in a process of its own; a row with the reason where it fails."""
    command = [sys.executable, "-m", "experiments.tools", "compile-one", target, program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"failure": f"not compiled within {seconds:.0f} s"}
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return {"failure": (said or [f"exit code {done.returncode}"])[-1][:300]}


def page(rows: pd.DataFrame) -> str:
    """The page: of each program, what it needs and does on a GPU and on a TPU."""
    compiled_rows = rows[rows["failure"] == ""].set_index(["target", "program"])
    columns = ("GiB", "launches", "GB moved")
    head = "program", "networks", *(f"{t}: {c}" for t in A_FEW for c in columns), "in fewer bits"
    table = []
    for name, program in PROGRAMS.items():
        entries, reduced = [], set()
        for target in A_FEW:
            if (target, name) not in compiled_rows.index:
                entries += [""] * 3
                continue
            row = compiled_rows.loc[(target, name)]
            known = float(row["unknown_loops"]) == 0
            entries += [
                float(row["needs_bytes"]) / GIB,
                f"{float(row['launches']):,.0f}" if known else "",
                float(row["moved_gb"]) if known else "",
            ]
            reduced.add(f"{float(row['reduced']):.0f}")
        table.append([name, program.networks, *entries, " and ".join(sorted(reduced))])
    return f"{INTRODUCTION}\n\n{markdown_table(head, table)}\n"


def targets(
    target: Annotated[
        list[str] | None, typer.Option(help="Which targets; all if left out.")
    ] = None,
    some: Annotated[str, typer.Option(help="Only programs whose name has this text.")] = "",
    limit: Annotated[float, typer.Option(help="Seconds for a program.")] = 900.0,
    again: Annotated[bool, typer.Option("--again", help="Compile what has a row, too.")] = False,
) -> None:
    """Compile every program for every target, and write experiments/TARGETS.md."""
    alone()
    names = [target_named(name).name for name in target or TARGETS]
    for name in names:
        devices_of(target_named(name))
    pairs = [(on, name) for name, program in PROGRAMS.items() for on in program.on or TARGETS]
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    if ROWS.is_file():
        before = pd.read_csv(ROWS, keep_default_na=False).to_dict("records")
        rows = {pair: row for row in before if (pair := (row["target"], row["program"])) in pairs}
    for on, name in pairs:
        done = (on, name) in rows and not rows[on, name]["failure"]
        if on not in names or some not in name or (done and not again):
            continue
        typer.echo(f"{on} {name}", nl=False)
        found = compile_apart(on, name, limit)
        typer.echo(f": {found['failure'] or str(found['compiled_seconds']) + ' s'}")
        rows.pop((on, name), None)
        rows[on, name] = {"target": on, "program": name, **found}
        pd.DataFrame(rows.values()).to_csv(ROWS, index=False, lineterminator="\n")
    PAGE.write_text(page(pd.read_csv(ROWS, keep_default_na=False)), encoding="utf-8")
    typer.echo(PAGE)
