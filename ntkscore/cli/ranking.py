"""The commands that rank networks: each parses, calls, prints.

A command imports what it works with when it runs, so that help is quick, and what computes when
its input is checked, so that a refusal is.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ntkscore
from cells.search import METHODS
from cells.space import Space
from ntkscore.analysis.score_names import sum_asked
from ntkscore.cli import options as o
from ntkscore.cli.app import app
from ntkscore.cli.output import Format, interruptible, stderr
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.run import devices
from ntkscore.run.processes import is_first, join
from ntkscore.spaces import from_record
from ntkscore.text import format_rho

if TYPE_CHECKING:
    from ntkscore.api.rankings import Ranked


@o.command(app)
def rank(
    given: o.Given,
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="A run to rank as it is, or `recorded` for the package's own scores; nothing is "
            "computed then.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Result directory; continued if it exists.", show_default=False),
    ] = None,
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
    estimate: o.Estimate = False,
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
    from ntkscore.explore.pictures import check_picture

    check_picture(plot)
    if directory is not None:
        given.refuse_others("directory", "cells", "by", "table", "top", "plot", "format", "space")
        own = type(space) if "space" in given else None
        _rank_results(
            directory,
            cells if "cells" in given else None,
            by,
            table,
            own,
            top,
            plot,
            format,
        )
        return
    if out is None:
        raise InputError(
            "expected a folder for the results, got none; name one with --out, or a run to rank"
        )

    from ntkscore.api import rankings, runs
    from ntkscore.cli.display import print_estimate, progress_display
    from ntkscore.run import engine
    from ntkscore.run.estimate import few_missing
    from ntkscore.run.selection import select
    from ntkscore.run.together import by_shape

    if estimate and (distributed or processes is not None):
        raise InputError(
            "expected --estimate in a single process, got several; leave --processes and "
            "--distributed out, and divide the time by their number"
        )
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
    units = {(space.key(a), s) for a in chosen for s in wanted}
    part = chosen, wanted
    if estimate:
        if units <= (done := _finished(out)):
            print_estimate(len(units), 0, 0, 0, format)
            return
        plan = engine.plan_for(space, chosen, config, batch)
        part = few_missing(space, chosen, wanted, done, plan)
    with interruptible(lambda: _left_in(out)), progress_display() as report:
        ended = engine.run(
            *part,
            images,
            config,
            out,
            space=space,
            session={"cells": cells},
            report=report,
            batch=batch,
        )
    missing = len(units - ended.results.finished())
    if estimate:
        programs = len(by_shape(space, chosen))
        print_estimate(len(units), missing, ended.progress.rate, programs, format)
        return
    ranked = rankings.ranked(ended.results, chosen, wanted, config, asked, space, among)
    if missing:
        stderr.print(
            f"{missing} networks are left to other processes; when all have ended, the same "
            "command prints the whole ranking, or computes what one of them has lost"
        )
    if is_first() and not ranked.frame.empty:
        _print_ranking(ranked, _describe(images.name, space, config), out, top, format)
        if plot is not None:
            _draw_ranking(ranked, top, plot)


def _rank_results(
    directory: Path,
    cells: str | None,
    by: str | None,
    table: Path | None,
    own: type[Space] | None,
    top: int,
    plot: Path | None,
    format: Format,
) -> None:
    """Rank what a run holds."""
    from ntkscore.api.rankings import ranked_results, run_of

    results, space = run_of(directory, own)
    config, dataset = from_record(Config, results.configuration), results.configuration["dataset"]
    accuracies = None if table is None else ntkscore.load_table(table, dataset)
    ranked = ranked_results(results, cells, space, by, accuracies)
    _print_ranking(ranked, _describe(dataset, space, config), results.directory, top, format)
    if plot is not None:
        _draw_ranking(ranked, top, plot)


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
    from ntkscore.api import rankings, runs
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
    ranked = rankings.ranked(runs.open_results(out), seen, wanted, config, asked, space, among)
    _print_ranking(ranked, _describe(images.name, space, config), out, top, format)


def _print_ranking(ranked: "Ranked", how: str, where: Path, top: int, format: Format) -> None:
    """Print a ranking, in a table its first rows.

    Args:
        ranked: the ranking.
        how: the choices behind its scores.
        where: the result directory.
        top: rows of a table.
        format: a table, or for programs.
    """
    from ntkscore.cli.display import print_frame

    frame, space = ranked.frame, ranked.space
    failed = int(frame[list(ranked.by.terms)].isna().any(axis=1).sum())
    note = f"{len(frame)} networks, {failed} without this score, {how}; all scores are in {where}"
    scored = space.choices().items()
    if sizes := [f"{n} {v}" for n, v in space.trained().choices().items() if (n, v) not in scored]:
        note += f"\nCosts are of the networks that would be trained: {', '.join(sizes)}"
    if ranked.among is not None:
        note += f"\nPercentiles are among {ranked.among.source}."
    if format is Format.table:
        # A genotype string is for programs; it would push the numbers off the terminal.
        frame = frame.head(top).drop(columns="string", errors="ignore")
    print_frame(frame, format, f"Ranked by {ranked.by}, best first", note)


def _draw_ranking(ranked: "Ranked", top: int, plot: Path) -> None:
    """Draw a ranking beside the first of the space's costs."""
    from ntkscore.analysis.ranking import LOG_RANKS, PERCENTILE
    from ntkscore.explore.pictures import FIRST, ranking_picture

    space, frame = ranked.space, ranked.frame
    value = next(n for n in (PERCENTILE, LOG_RANKS, ranked.by.terms[0]) if n in frame)
    best = space.parse(frame.iloc[0, 1])
    cost, names = next(iter(space.costs(best))), list(space.names(best))
    by = "" if value == str(ranked.by) else str(ranked.by)
    ranking_picture(frame, value, cost, names, plot, by=by, first=min(FIRST, top))
    stderr.print(f"drawn in {plot}", soft_wrap=True)


def _describe(dataset: str, space: Space, config: Config) -> str:
    """The choices behind a run's scores."""
    from ntkscore.cli.sheets import describe_choices

    return f"{describe_choices(dataset, space, config)}, ρ = {format_rho(config.rhos[0])}"


def _finished(out: Path) -> set[tuple]:
    """The networks that a folder has."""
    from ntkscore.results import RUN, ResultSet

    return ResultSet.open(out).finished() if (out / RUN).exists() else set()


def _left_in(out: Path) -> str:
    """What a run has left in its folder."""
    return f"{len(_finished(out))} networks are on disk"
