"""The commands that score networks: each parses, calls, prints.

A command imports what it works with when it runs, so that help is quick, and what computes when
its input is checked, so that a refusal is.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ntkscore
from cells.search import METHODS
from cells.space import Architecture, Space
from ntkscore.analysis.score_names import sum_asked
from ntkscore.cli import options as o
from ntkscore.cli.app import app
from ntkscore.cli.output import Format, interruptible, stderr
from ntkscore.config import Config
from ntkscore.data.images import ImageSet
from ntkscore.errors import InputError
from ntkscore.run import devices
from ntkscore.run.processes import is_first, join
from ntkscore.text import format_rho

if TYPE_CHECKING:
    from ntkscore.api.runs import Ranked


@o.command(app)
def score(
    cells: o.Cells,
    data: o.Data = "synthetic",
    data_dir: o.DataDir = None,
    seed: o.Seed = 0,
    reference: o.Reference = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Trained weights of the one architecture: a folder that `train` left, or a "
            "NAS-Bench-201 state dict (.pth, .npz). Untrained if left out."
        ),
    ] = None,
    *,
    config: Config,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Print every score of every kernel of the given architectures."""
    images = ntkscore.load_images(data, data_dir)
    if weights is not None:
        _score_trained(cells, weights, images, seed, config, space, format)
        return
    space = space.on(images.task)
    chosen = [space.parse(text) for text in cells]
    pixels, labels = ntkscore.draw_images(images, config.samples, seed, config.balanced)

    from ntkscore.analysis.frames import network_table
    from ntkscore.api import runs
    from ntkscore.cli.display import print_frame
    from ntkscore.cli.sheets import describe_choices, failures_in, score_sheet, title_of

    among = None
    if reference is not None or format is Format.table:
        among = runs.population_for(reference, images, space, config, [seed], None)

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
        notes = [choices, failures_in(rows)]
        if among is not None and radius == config.rhos[0]:
            (place,) = among.percentiles(network_table(rows, space))
            notes.append(f"Better than {place:.1f} % of {among.source}, by {among.by}.")
        print_frame(score_sheet(rows), format, titles[key], "\n".join(filter(None, notes)))


def _score_trained(
    cells: list[str],
    weights: Path,
    images: ImageSet,
    seed: int,
    config: Config,
    space: Space,
    format: Format,
) -> None:
    """Print every score of every kernel of a network at trained weights."""
    import pandas as pd

    from ntkscore.cli.display import print_frame
    from ntkscore.cli.sheets import failures_in, score_sheet
    from ntkscore.training.sources import trained_networks

    if len(cells) != 1:
        raise InputError(
            f"expected one architecture with --weights, got {len(cells)}; name the one"
        )
    networks = trained_networks(weights, cells[0], space, lambda: images)
    if images.task.image_shape != networks.space.task.image_shape:
        raise InputError(
            f"expected images of the shape {networks.space.task.image_shape}, as the network was "
            f"trained on, got {images.task.image_shape}; choose others with --data"
        )
    pixels, labels = ntkscore.draw_images(images, config.samples, seed, config.balanced)
    devices.keep_compiled()
    frames = []
    for columns, model in networks.pairs():
        with stderr.status("compiling, then scoring"):
            rows = ntkscore.score_network(
                model, pixels, labels, config, name=str(cells[0]), seed=seed, dataset=images.name
            )
        frames.append(rows.assign(trained_seed=columns["seed"], epochs=columns["epochs"]))
        if format is Format.table:
            for radius, part in rows.groupby("rho", sort=False):
                title = f"{cells[0]}, seed {columns['seed']}, after {columns['epochs']} epochs"
                note = f"{images.name}, ρ = {format_rho(radius)}, running statistics"
                notes = "\n".join(filter(None, [note, failures_in(part)]))
                print_frame(score_sheet(part), format, title, notes)
    if format is not Format.table:
        print_frame(pd.concat(frames, ignore_index=True), format)


@o.command(app)
def rank(
    out: Annotated[Path, typer.Option(help="Result directory; continued if it exists.")],
    cells: Annotated[
        str,
        typer.Option(
            help="Set of cells: distinct, all, table, random:K, table:K, a file, or names."
        ),
    ] = "distinct",
    by: o.By = None,
    table: Annotated[Path | None, typer.Option(help="Benchmark table, for --cells table.")] = None,
    reference: o.Reference = None,
    top: o.Top = 20,
    plot: o.Plot = None,
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
    from ntkscore.cli.display import progress_display
    from ntkscore.explore.pictures import check_picture
    from ntkscore.run import engine
    from ntkscore.run.selection import select

    check_picture(plot)
    images = ntkscore.load_images(data, data_dir)
    space = space.on(images.task)
    accuracies = None if table is None else ntkscore.load_table(table, images.name)
    chosen = select(cells, space, accuracies, seed)
    asked = sum_asked(by, space, chosen[0], config)
    wanted = range(seed, seed + seeds)
    engine.check(wanted, images, config, out, space=space, batch=batch)
    among = runs.population_for(reference, images, space, config, wanted, asked)
    join(distributed, coordinator, processes, process)
    if processes is None and not distributed:
        devices.cores_as_devices()
    devices.keep_compiled(traces=True)
    with interruptible(lambda: _left_in(out)), progress_display() as report:
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
    ranked = runs.ranked(ended.results, chosen, wanted, config, asked, space, among)
    units = {(space.key(a), s) for a in chosen for s in wanted}
    if missing := len(units - ended.results.finished()):
        stderr.print(
            f"{missing} networks are left to other processes; when all have ended, the same "
            "command prints the whole ranking, or computes what one of them has lost"
        )
    if is_first() and not ranked.frame.empty:
        _print_ranking(ranked, images, space, config, out, top, format)
        if plot is not None:
            _draw_ranking(ranked, space, chosen[0], plot)


@o.command(app)
def search(
    out: Annotated[Path, typer.Option(help="Result directory; continued if it exists.")],
    method: Annotated[
        str, typer.Option(help=f"How to go on from network to network: {' or '.join(METHODS)}.")
    ] = "local",
    budget: Annotated[int, typer.Option(help="Networks to visit.")] = 200,
    by: o.By = None,
    reference: o.Reference = None,
    top: o.Top = 10,
    batch: o.BatchSize = None,
    data: o.Data = "synthetic",
    data_dir: o.DataDir = None,
    seed: o.Seed = 0,
    seeds: o.Seeds = 1,
    *,
    config: Config,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Search for the best-scored architecture, and score only those on the way. Resumes, too."""
    from cells.search import check
    from ntkscore.api import runs
    from ntkscore.api.search import visited
    from ntkscore.run import engine

    images = ntkscore.load_images(data, data_dir)
    space = space.on(images.task)
    first = check(method, budget, space)
    asked = sum_asked(by, space, first, config)
    wanted = range(seed, seed + seeds)
    engine.check(wanted, images, config, out, space=space, batch=batch)
    among = runs.population_for(reference, images, space, config, wanted, asked)
    devices.cores_as_devices()
    devices.keep_compiled(traces=True)
    with interruptible(lambda: _left_in(out)), stderr.status("compiling") as status:
        seen = visited(
            images,
            out,
            config,
            space=space,
            method=method,
            budget=budget,
            seeds=wanted,
            by=asked,
            among=among,
            batch=batch,
            report=lambda step: status.update(
                f"{step.visited} of {step.budget} networks, the best "
                f"{' '.join(map(str, space.names(step.best).values()))}"
            ),
        )
    ranked = runs.ranked(runs.open_results(out), seen, wanted, config, asked, space, among)
    _print_ranking(ranked, images, space, config, out, top, format)


def _print_ranking(
    ranked: "Ranked",
    images: ImageSet,
    space: Space,
    config: Config,
    out: Path,
    top: int,
    format: Format,
) -> None:
    """Print a ranking, in a table its first rows."""
    from ntkscore.cli.display import print_frame
    from ntkscore.cli.sheets import describe_choices

    frame = ranked.frame
    failed = int(frame[list(ranked.by.terms)].isna().any(axis=1).sum())
    note = (
        f"{len(frame)} networks, {failed} without this score, "
        f"{describe_choices(images.name, space, config)}, ρ = {format_rho(config.rhos[0])}; "
        f"all scores are in {out}"
    )
    scored = space.choices().items()
    if sizes := [f"{n} {v}" for n, v in space.trained().choices().items() if (n, v) not in scored]:
        note += f"\nCosts are of the networks that would be trained: {', '.join(sizes)}"
    if ranked.among is not None:
        note += f"\nPercentiles are among {ranked.among.source}."
    if format is Format.table:
        # A genotype string is for programs; it would push the numbers off the terminal.
        frame = frame.head(top).drop(columns="string", errors="ignore")
    print_frame(frame, format, f"Ranked by {ranked.by}, best first", note)


def _draw_ranking(ranked: "Ranked", space: Space, architecture: Architecture, plot: Path) -> None:
    """Draw a ranking beside the first of the space's costs."""
    from ntkscore.analysis.ranking import LOG_RANKS, PERCENTILE
    from ntkscore.explore.pictures import ranking_picture

    value = next(n for n in (PERCENTILE, LOG_RANKS, ranked.by.terms[0]) if n in ranked.frame)
    cost = next(iter(space.costs(architecture)))
    ranking_picture(ranked.frame, value, cost, list(space.names(architecture)), plot)
    stderr.print(f"drawn in {plot}", soft_wrap=True)


def _left_in(out: Path) -> str:
    """What a run has left in its folder."""
    from ntkscore.results import RUN, ResultSet

    count = len(ResultSet.open(out).finished()) if (out / RUN).exists() else 0
    return f"{count} networks are on disk"
