"""The command line: parses, calls, prints."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import jax
import pandas as pd
import typer

from cells import Cell, CellError
from ntkscore import comparison, devices
from ntkscore import options as o
from ntkscore.config import format_rho, parse_fraction
from ntkscore.display import Format, print_frame, progress_display, stderr
from ntkscore.downloads import SOURCES, data_home
from ntkscore.downloads import fetch as fetch_data
from ntkscore.engine import identity, run
from ntkscore.errors import InputError
from ntkscore.images import choose, load
from ntkscore.ranking import DEFAULT, parse_terms, ranking
from ntkscore.results import ResultSet, provenance
from ntkscore.scorer import Scorer
from ntkscore.selection import pick_rho, select_cells
from ntkscore.tables import load_table
from ntkscore.verification import verify as verify_file

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _start() -> None:
    """Score NAS-Bench-201 cells by their neural tangent kernels, without training."""
    devices.keep_compiled()


@contextmanager
def _input_errors() -> Iterator[None]:
    """Bad input ends with its one sentence and exit code 2."""
    try:
        yield
    except (InputError, CellError) as error:
        stderr.print(f"[red]error:[/red] {_escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None


def _escape(text: str) -> str:
    return text.replace("[", r"\[")


@app.command()
def score(
    cells: o.Cells,
    data: o.Data = "synthetic",
    data_dir: o.DataDir = None,
    samples: o.Samples = 50,
    balanced: o.Balanced = False,
    seed: o.Seed = 0,
    channels: o.Channels = 16,
    cells_per_stage: o.CellsPerStage = 5,
    init: o.Init = "torch",
    bn: o.Bn = "calibrated",
    output: o.Output = "sum",
    parameters: o.Parameters = "all",
    attack: o.AttackName = "fgsm",
    rho: o.Rhos = ["8/255"],  # noqa: B006
    steps: o.Steps = None,
    step_size: o.StepSize = None,
    random_start: o.RandomStart = False,
    beta: o.Beta = [0.5],  # noqa: B006
    x64: o.X64 = False,
    implementation: o.Implementation = "auto",
    format: o.Form = Format.table,
) -> None:
    """Every score of every kernel of the given cells."""
    choices = dict(locals())
    with _input_errors():
        config = _config(choices)
        chosen = [Cell.parse(text) for text in cells]
        images = load(data, data_dir)
        pixels, labels = choose(images, samples, seed, balanced)
        scorer = Scorer(config, images.mean, images.std, images.num_classes, images.name)
        batch = scorer.batch(pixels, labels, seed)
        with stderr.status("compiling, then scoring"):
            frames = [
                pd.DataFrame(*scorer.finish([cell], seed, batch, scorer.start([cell], batch)))
                for cell in chosen
            ]
    frame = pd.concat(frames, ignore_index=True)
    if format is not Format.table:
        print_frame(frame, format)
        return
    for cell, rows in zip(chosen, frames, strict=True):
        for radius, part in rows.groupby("rho", sort=False):
            shown = comparison.score_sheet(part)
            title = (
                f"{cell.digits} (index {cell.index}), {cell.params():,} parameters, "
                f"{cell.flops() / 1e6:.1f} M multiply-adds"
            )
            note = f"{_describe(config, images.name)}, ρ = {format_rho(radius)}"
            print_frame(shown, format, title, note)


@app.command()
def rank(
    out: Annotated[Path, typer.Option(help="Result directory; continued if it exists.")],
    cells: Annotated[
        str, typer.Option(help="distinct, all, table, random:K, table:K, a file, or cells.")
    ] = "distinct",
    by: Annotated[
        str,
        typer.Option(help="KERNEL.SCORE, KERNEL@β.SCORE, params, flops; A+B adds up log-ranks."),
    ] = DEFAULT,
    table: Annotated[Path | None, typer.Option(help="Benchmark table, for --cells table.")] = None,
    top: Annotated[int, typer.Option(help="Lines of the printed table.")] = 20,
    batch: o.BatchSize = None,
    distributed: o.Distributed = False,
    coordinator: o.Coordinator = None,
    processes: o.Processes = None,
    process: o.Process = None,
    data: o.Data = "synthetic",
    data_dir: o.DataDir = None,
    samples: o.Samples = 50,
    balanced: o.Balanced = False,
    seed: o.Seed = 0,
    seeds: o.Seeds = 1,
    channels: o.Channels = 16,
    cells_per_stage: o.CellsPerStage = 5,
    init: o.Init = "torch",
    bn: o.Bn = "calibrated",
    output: o.Output = "sum",
    parameters: o.Parameters = "all",
    attack: o.AttackName = "fgsm",
    rho: o.Rhos = ["8/255"],  # noqa: B006
    steps: o.Steps = None,
    step_size: o.StepSize = None,
    random_start: o.RandomStart = False,
    beta: o.Beta = [0.5],  # noqa: B006
    x64: o.X64 = False,
    implementation: o.Implementation = "auto",
    format: o.Form = Format.table,
) -> None:
    """Score many cells into a directory and rank them; run again, it goes on where it stopped."""
    choices = dict(locals())
    with _input_errors():
        config = _config(choices)
        terms = parse_terms(by, config.betas)
        if processes is None and not distributed:
            devices.cores_as_devices()
        devices.join(distributed, coordinator, processes, process)
        images = load(data, data_dir)
        # Refuses too many samples before anything is written.
        choose(images, samples, seed, balanced)
        known = None if table is None else load_table(table)
        chosen = select_cells(cells, known, seed)
        wanted = list(range(seed, seed + seeds))
        here = [device.device_kind for device in jax.local_devices()]
        session = provenance(
            {"implementation": config.resolved_implementation, "cells": cells, "devices": here}
        )
        results = ResultSet.create_or_resume(out, identity(images, config), session)
        _run_to_the_end(chosen, wanted, images, config, results, batch)
        rows = results.read()
        rows = rows[rows["cell"].isin([cell.index for cell in chosen])]
        missing = len(chosen) * seeds - len(rows.drop_duplicates(["cell", "seed"]))
        if missing:
            stderr.print(
                f"{missing} cells are left to other processes; when all have ended, the same "
                "command prints the whole ranking, or computes what one of them has lost"
            )
        if jax.process_index() > 0 or rows.empty:
            return
        ranked = ranking(pick_rho(rows, config.rhos[0]), terms)
    failed = int(ranked[list(terms)].isna().any(axis=1).sum())
    shown = ranked if format is not Format.table else ranked.head(top).drop(columns="string")
    note = (
        f"{len(ranked)} cells, {failed} without this score, {_describe(config, images.name)}, "
        f"ρ = {format_rho(config.rhos[0])}; all scores are in {out}"
    )
    print_frame(shown, format, f"Ranked by {'+'.join(terms)}, best first", note)


def _run_to_the_end(
    chosen: Any,
    seeds: list[int],
    images: Any,
    config: Any,
    results: ResultSet,
    batch: int | None,
) -> None:
    """Score, and on an interrupt say what is on disk."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with progress_display() as report:
            run(chosen, seeds, images, config, results, report, batch)
    except KeyboardInterrupt:
        count = len(results.finished())
        stderr.print(f"stopped; {count} cells are on disk, and the same command goes on from there")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@app.command()
def correlate(
    directory: Annotated[
        Path, typer.Argument(help="A result directory, or a table whose own metrics to hold.")
    ],
    table: o.TablePath,
    dataset: o.Dataset = "cifar10",
    metric: Annotated[
        str, typer.Option(help="Accuracy to agree with; clean, pgd8, autoattack…")
    ] = ("val_pgd_8_acc"),
    rho: Annotated[str | None, typer.Option(help="Radius, for runs with several.")] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples of the cells.")] = 1000,
    format: o.Form = Format.table,
) -> None:
    """Hold scores against measured accuracy, beside the parameter count and the FLOPs."""
    with _input_errors():
        radius = None if rho is None else parse_fraction(rho)
        scores, source = comparison.scores_in(directory, dataset, radius)
        known = load_table(table)
        frame = comparison.correlate(scores, known, dataset, metric, resamples)
    note = (
        f"{source}; accuracy from {known.name}; 95 % intervals by bootstrap over cells; "
        "top by accuracy"
    )
    shown = comparison.compact(frame) if format is Format.table else frame
    print_frame(shown, format, f"Agreement with {metric} on {dataset}, {len(scores)} cells", note)


@app.command()
def lookup(
    cells: o.Cells,
    table: o.TablePath,
    dataset: Annotated[str | None, typer.Option(help="Only this data set.")] = None,
    seed: Annotated[int | None, typer.Option(help="One training seed; else their mean.")] = None,
    format: o.Form = Format.table,
) -> None:
    """Measured accuracies of cells, as fractions."""
    with _input_errors():
        known = load_table(table)
        chosen = [Cell.parse(text) for text in cells]
        frame = comparison.lookup(chosen, known, dataset, seed)
    which = "mean of seeds" if seed is None else f"seed {seed}"
    print_frame(frame, format, f"{known.name}, {which}")


@app.command()
def verify(
    files: Annotated[list[Path], typer.Argument(help="Parity files (.npz).", metavar="FILE…")],
    x64: Annotated[bool, typer.Option("--x64", help="Compute in float64.")] = False,
    format: o.Form = Format.table,
) -> None:
    """Check this machine's backend against float64 reference values; exit 1 if any differs."""
    failed = 0
    for path in files:
        with _input_errors(), stderr.status(f"checking {path}"):
            checks = list(verify_file(path, x64))
        failed += sum(not check.passed for check in checks)
        frame = pd.DataFrame(
            {
                "quantity": check.quantity,
                "error": check.error,
                "tolerance": check.tolerance,
                "kink bound": check.kink_bound,
                "result": "pass" if check.passed else "FAIL",
            }
            for check in checks
        )
        print_frame(frame.assign(file=path.name) if format != "table" else frame, format, str(path))
    if failed:
        stderr.print(f"{failed} quantities are beyond their tolerance")
        raise typer.Exit(1)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help=", ".join(SOURCES))],
    data_dir: Annotated[
        Path | None, typer.Option(help="Where to; else $NTKSCORE_DATA, else the user cache.")
    ] = None,
) -> None:
    """Download a data set or the benchmark table, checked by its checksum."""
    with _input_errors():
        path = fetch_data(name, data_home(data_dir))
    stderr.print(f"{name} is in {path}", soft_wrap=True)


def _config(choices: dict[str, Any]) -> Any:
    """The scoring options among a command's arguments, as a config."""
    names = (
        "samples balanced channels cells_per_stage init bn output parameters attack rho steps "
        "step_size random_start beta x64 implementation"
    )
    return o.make_config(**{name: choices[name] for name in names.split()})


def _describe(config: Any, dataset: str) -> str:
    """The choices behind a number, in a line."""
    return (
        f"{dataset}, {config.samples} images, C = {config.channels}, N = {config.cells_per_stage}, "
        f"init {config.init}, bn {config.bn}, output {config.output}, "
        f"parameters {config.parameters}, {config.attack}"
    )


def main() -> None:
    """Entry point of the command `ntkscore`."""
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
