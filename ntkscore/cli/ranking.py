"""The commands that rank networks: each parses, calls, prints.

A command imports what it works with when it runs, so that help is quick, and what computes when
its input is checked, so that a refusal is.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ntkscore
from cells.space import Space
from ntkscore.cli import options as o
from ntkscore.cli.options import Ordered, Processes
from ntkscore.cli.output import Format, interruptible, stderr
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.run import devices
from ntkscore.run.search import METHODS, check
from ntkscore.spaces import from_record, known_space
from ntkscore.text import format_rho

if TYPE_CHECKING:
    from ntkscore.analysis.ranking import Ranking


def rank(
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="A finished run to rank as it is, or `recorded` for the package's own scores; "
            "nothing is computed then.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Result directory; continued if it exists.", show_default=False),
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option(
            help="Set of cells: distinct, all, table, random:K, table:K, a file, or names; "
            "distinct if left out, of a finished run all."
        ),
    ] = None,
    table: Annotated[Path | None, typer.Option(help="Benchmark table, for --cells table.")] = None,
    top: o.Top = 20,
    plot: o.Plot = None,
    batch: o.BatchSize = None,
    *,
    processes: Processes,
    asked: Ordered,
    config: Config,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Score many architectures and rank them. Run the same command again to resume."""
    from ntkscore.explore.pictures import check_picture

    check_picture(plot)
    if directory is not None:
        scoring = (out, batch, processes, asked, config, space)
        if scoring != (None, None, Processes(), Ordered(by=asked.by), Config(), type(space)()):
            raise InputError(
                "expected no options of scoring beside a run that is ranked as it is, got some; "
                "leave them out, or name a folder with --out instead of the run"
            )
        own = type(space) if space_name else None
        _rank_results(directory, cells, asked.by, table, own, top, plot, format)
        return
    if out is None:
        raise InputError(
            "expected a folder for the results, got none; name one with --out, or a run to rank"
        )

    from ntkscore.cli.display import progress_display
    from ntkscore.run.processes import is_first, join

    job = asked.job(config, space)
    accuracies = None if table is None else ntkscore.load_table(table, job.data.name)
    cells = cells or "distinct"
    chosen = job.select(cells, accuracies, asked.seed)
    job = job.ranked_by(asked.by, asked.reference, chosen[0])
    job.check(out, batch)
    join(processes.distributed, processes.coordinator, processes.processes, processes.process)
    devices.keep_compiled(alone=True)
    with interruptible(lambda: _left_in(out)), progress_display() as report:
        ended = job.score(chosen, out, batch=batch, report=report, session={"cells": cells})
    ranking = job.ranking(ended.results, chosen)
    if missing := job.missing(ended.results, chosen):
        stderr.print(
            f"{missing} networks are left to other processes; when all have ended, the same "
            "command prints the whole ranking, or computes what one of them has lost"
        )
    if is_first() and not ranking.frame.empty:
        how = _describe(job.data.name, job.space, config)
        _print_ranking(ranking, how, out, top, plot, format)


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
    from ntkscore.api.runs import ranking_of
    from ntkscore.paths import results_path
    from ntkscore.results import ResultSet

    results = ResultSet.open(results_path(directory))
    space = known_space(results, own)
    config, dataset = from_record(Config, results.configuration), results.configuration["dataset"]
    accuracies = None if table is None else ntkscore.load_table(table, dataset)
    ranking = ranking_of(results, cells, by, accuracies, space)
    how = _describe(dataset, space, config)
    _print_ranking(ranking, how, results.directory, top, plot, format)


def search(
    out: Annotated[Path, typer.Option(help="Result directory; continued if it exists.")],
    method: Annotated[
        str, typer.Option(help=f"How to go on from network to network: {' or '.join(METHODS)}.")
    ] = "local",
    budget: Annotated[int, typer.Option(help="Networks to visit.")] = 200,
    top: o.Top = 10,
    batch: o.BatchSize = None,
    *,
    asked: Ordered,
    config: Config,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Search for the best-scored architecture, and score only those on the way. Resumes, too."""
    job = asked.job(config, space)
    job = job.ranked_by(asked.by, asked.reference, check(method, budget, job.space))
    job.check(out, batch)
    devices.keep_compiled(alone=True)
    with interruptible(lambda: _left_in(out)), stderr.status("compiling") as status:
        ranking = job.search(
            out,
            method,
            budget,
            batch=batch,
            report=lambda step: status.update(
                f"{step.visited} of {step.budget} networks, the best "
                f"{' '.join(map(str, space.names(step.best).values()))}"
            ),
        )
    _print_ranking(ranking, _describe(job.data.name, job.space, config), out, top, None, format)


def _print_ranking(
    ranking: "Ranking", how: str, where: Path, top: int, plot: Path | None, format: Format
) -> None:
    """Print a ranking, in a table its first rows, and draw it.

    Args:
        ranking: the ranking.
        how: the choices behind its scores.
        where: the result directory.
        top: rows of a table.
        plot: the file of the picture; none is drawn if left out.
        format: a table, or for programs.
    """
    from ntkscore.cli.display import print_frame

    frame, space = ranking.frame, ranking.space
    failed = int(frame[list(ranking.by.terms)].isna().any(axis=1).sum())
    last = " (they come last)" if failed else ""
    note = f"{len(frame)} networks, {failed} without this score{last}, {how}"
    note += f"; all scores are in {where}"
    scored = space.choices().items()
    if sizes := [f"{n} {v}" for n, v in space.trained().choices().items() if (n, v) not in scored]:
        trained = ", ".join(sizes)
        note += f"\nparams, flops and counts are of the networks that would be trained: {trained}"
    if ranking.among is not None:
        note += f"\nPercentiles are among {ranking.among.source}."
    if format is Format.table:
        # A genotype string is for programs; it would push the numbers off the terminal.
        frame = frame.head(top).drop(columns="string", errors="ignore")
    print_frame(frame, format, f"Ranked by {ranking.by}, best first", note)
    if plot is not None:
        _draw_ranking(ranking, top, plot)


def _draw_ranking(ranking: "Ranking", top: int, plot: Path) -> None:
    """Draw a ranking beside the first of the space's costs."""
    from ntkscore.analysis.ranking import LOG_RANKS, PERCENTILE
    from ntkscore.explore.pictures import FIRST, ranking_picture

    space, frame = ranking.space, ranking.frame
    value = next(n for n in (PERCENTILE, LOG_RANKS, ranking.by.terms[0]) if n in frame)
    best = space.parse(frame.iloc[0, 1])
    cost, names = next(iter(space.costs(best))), list(space.names(best))
    by = "" if value == str(ranking.by) else str(ranking.by)
    ranking_picture(frame, value, cost, names, plot, by=by, first=min(FIRST, top))
    stderr.print(f"drawn in {plot}", soft_wrap=True)


def _describe(dataset: str, space: Space, config: Config) -> str:
    """The choices behind a run's scores."""
    from ntkscore.cli.sheets import describe_choices

    return f"{describe_choices(dataset, space, config)}, ρ = {format_rho(config.rhos[0])}"


def _left_in(out: Path) -> str:
    """What a run has left in its folder."""
    from ntkscore.results import RUN, ResultSet

    finished = ResultSet.open(out).finished() if (out / RUN).exists() else ()
    return f"{len(finished)} networks are on disk"
