"""The commands: each parses, calls, prints.

A command imports what it works with when it runs, so that help is quick, and what computes when
its input is checked, so that a refusal is.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import ntkscore
from cells.space import Space
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.cli import options as o
from ntkscore.cli.output import Format, stderr
from ntkscore.config import Config
from ntkscore.data.downloads import SOURCES
from ntkscore.paths import data_home
from ntkscore.run import devices
from ntkscore.run.processes import is_first, join
from ntkscore.spaces import space_class
from ntkscore.text import format_rho, parse_fraction

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _start() -> None:
    """Score neural networks by their neural tangent kernels, without training."""


@o.command(app)
def score(
    cells: o.Cells,
    data: o.Data = "synthetic",
    data_dir: o.DataDir = None,
    seed: o.Seed = 0,
    *,
    config: Config,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Print every score of every kernel of the given architectures."""
    images = ntkscore.load_images(data, data_dir)
    space = space.on(images.task)
    chosen = [space.parse(text) for text in cells]
    pixels, labels = ntkscore.draw_images(images, config.samples, seed, config.balanced)

    from ntkscore.cli.display import print_frame
    from ntkscore.cli.sheets import describe_choices, failures_in, score_sheet, title_of

    with stderr.status("compiling, then scoring"):
        devices.keep_compiled(traces=True)
        frame = ntkscore.score(
            cells,
            pixels,
            labels,
            config,
            space=space,
            seed=seed,
            mean=images.mean,
            std=images.std,
            num_classes=images.num_classes,
            dataset=images.name,
        )
    if format is not Format.table:
        print_frame(frame, format)
        return
    by_radius = frame.groupby([frame.columns[0], "rho"], sort=False)
    titles = {space.key(architecture): title_of(space, architecture) for architecture in chosen}
    for (key, radius), rows in by_radius:
        choices = f"{describe_choices(images.name, space, config)}, ρ = {format_rho(radius)}"
        note = "\n".join(filter(None, [choices, failures_in(rows)]))
        print_frame(score_sheet(rows), format, titles[key], note)


@o.command(app)
def rank(
    out: Annotated[Path, typer.Option(help="Result directory; continued if it exists.")],
    cells: Annotated[
        str,
        typer.Option(
            help="Set of cells: distinct, all, table, random:K, table:K, a file, or names."
        ),
    ] = "distinct",
    by: Annotated[
        str | None,
        typer.Option(
            help="Score to rank by: KERNEL.SCORE, KERNEL@β.SCORE, params, flops; A+B adds up "
            f"log-ranks. {DEFAULT} if left out.",
        ),
    ] = None,
    table: Annotated[Path | None, typer.Option(help="Benchmark table, for --cells table.")] = None,
    top: Annotated[int, typer.Option(help="Rows of the printed table.")] = 20,
    batch: o.BatchSize = None,
    distributed: o.Distributed = False,
    coordinator: o.Coordinator = None,
    processes: o.Processes = None,
    process: o.Process = None,
    data: o.Data = "synthetic",
    data_dir: o.DataDir = None,
    seed: o.Seed = 0,
    seeds: o.Seeds = 1,
    *,
    config: Config,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Score many architectures and rank them. Run the same command again to resume."""
    from ntkscore.api import runs
    from ntkscore.cli.display import print_frame, progress_display
    from ntkscore.cli.sheets import describe_choices
    from ntkscore.run import engine
    from ntkscore.run.selection import select

    images = ntkscore.load_images(data, data_dir)
    space = space.on(images.task)
    accuracies = None if table is None else ntkscore.load_table(table, images.name)
    chosen = select(cells, space, accuracies, seed)
    score_sum = runs.score_sum_of(by, space, chosen[0], config)
    wanted = range(seed, seed + seeds)
    engine.check(wanted, images, config, out, space=space, batch=batch)
    join(distributed, coordinator, processes, process)
    if processes is None and not distributed:
        devices.cores_as_devices()
    devices.keep_compiled(traces=True)
    with _interruptible(out), progress_display() as report:
        ended = engine.run(
            chosen,
            wanted,
            images,
            config,
            out,
            space=space,
            session={"cells": cells},
            report=report,
            batch=batch,
        )
    ranked = runs.ranked(ended.results, chosen, wanted, config, score_sum, space)
    units = {(space.key(a), s) for a in chosen for s in wanted}
    if missing := len(units - ended.results.finished()):
        stderr.print(
            f"{missing} networks are left to other processes; when all have ended, the same "
            "command prints the whole ranking, or computes what one of them has lost"
        )
    if not is_first() or ranked.empty:
        return
    failed = int(ranked[list(score_sum.terms)].isna().any(axis=1).sum())
    # A genotype string is for programs; it would push the numbers off the terminal.
    printed = ranked.head(top).drop(columns="string", errors="ignore")
    note = (
        f"{len(ranked)} networks, {failed} without this score, "
        f"{describe_choices(images.name, space, config)}, ρ = {format_rho(config.rhos[0])}; "
        f"all scores are in {out}"
    )
    scored = space.choices().items()
    if sizes := [f"{n} {v}" for n, v in space.trained().choices().items() if (n, v) not in scored]:
        note += f"\nCosts are of the networks that would be trained: {', '.join(sizes)}"
    title = f"Ranked by {score_sum}, best first"
    print_frame(printed if format is Format.table else ranked, format, title, note)


@contextmanager
def _interruptible(out: Path) -> Iterator[None]:
    """End on an interrupt with exit code 130, and say what is on disk."""
    from ntkscore.results import RUN, ResultSet

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        count = len(ResultSet.open(out).finished()) if (out / RUN).exists() else 0
        stderr.print(
            f"stopped; {count} networks are on disk, and the same command goes on from there"
        )
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@o.command(app)
def correlate(
    directory: Annotated[
        Path, typer.Argument(help="A result directory, or a table whose own metrics to correlate.")
    ],
    table: o.TablePath,
    dataset: o.Dataset = "cifar10",
    metric: Annotated[
        str,
        typer.Option(
            help="Accuracy to correlate with: clean, fgsm3, pgd8, autoattack, or a table's name."
        ),
    ] = "val_pgd_8_acc",
    rho: Annotated[str | None, typer.Option(help="Radius, for runs with several.")] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples of the cells.")] = 1000,
    space: o.OwnSpace = None,
    format: o.OutputFormat = Format.table,
) -> None:
    """Correlate scores with measured accuracy, beside the parameter count and the FLOPs."""
    from ntkscore.analysis import comparison
    from ntkscore.api.runs import space_in
    from ntkscore.cli.display import print_frame
    from ntkscore.cli.sheets import compact_agreement

    radius = None if rho is None else parse_fraction(rho)
    scores, source = comparison.scores_in(directory, dataset, radius)
    accuracies = ntkscore.load_table(table, dataset)
    where = space_in(directory, space_class(space) if space else None)
    frame = ntkscore.correlate(
        scores, accuracies, dataset, metric, space=where, resamples=resamples
    )
    note = (
        f"{source}; accuracy from {accuracies.name}; 95 % intervals by bootstrap over cells; "
        "top by accuracy"
    )
    if absent := len(scores) - int((frame["n"] + frame["excluded"]).max()):
        note += f"; {absent} networks that the table has no results for are left out"
    printed = compact_agreement(frame) if format is Format.table else frame
    print_frame(printed, format, f"Agreement with {metric} on {dataset}, {len(scores)} cells", note)


@o.command(app)
def lookup(
    cells: o.Cells,
    table: o.TablePath,
    dataset: Annotated[
        str | None, typer.Option(help="Data set; all of the table's if left out.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Training seed; their mean if left out.")] = None,
    space: o.OwnSpace = None,
    format: o.OutputFormat = Format.table,
) -> None:
    """Look up measured accuracies, as fractions."""
    from ntkscore.cli.display import print_frame

    accuracies = ntkscore.load_table(table, dataset)
    where = space_class(space)() if space else None
    frame = ntkscore.lookup(cells, accuracies, dataset, seed=seed, space=where)
    which = "mean of seeds" if seed is None else f"seed {seed}"
    print_frame(frame, format, f"{accuracies.name}, {which}")


@o.command(app)
def verify(
    files: Annotated[list[Path], typer.Argument(help="Parity files (.npz).", metavar="FILE…")],
    x64: Annotated[bool, typer.Option("--x64", help="Compute in float64.")] = False,
    format: o.OutputFormat = Format.table,
) -> None:
    """Check this machine's backend against float64 reference values; exit 1 if any differs."""
    from ntkscore.parity import load_parity

    for path in files:
        load_parity(path)  # refuses a bad file before anything is computed

    import pandas as pd

    from ntkscore.cli.display import print_frame
    from ntkscore.verification import verify as verify_file

    devices.keep_compiled()
    failed = 0
    for path in files:
        with stderr.status(f"checking {path}"):
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


@o.command(app)
def fetch(
    name: Annotated[str, typer.Argument(help=f"Data set or table: {', '.join(SOURCES)}.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder to download to; else $NTKSCORE_DATA, else the user cache."),
    ] = None,
) -> None:
    """Download a data set or the benchmark table, checked by its checksum."""
    path = ntkscore.fetch(name, data_home(data_dir))
    stderr.print(f"{name} is in {path}", soft_wrap=True)


def main() -> None:
    """Entry point of the command `ntkscore`."""
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
