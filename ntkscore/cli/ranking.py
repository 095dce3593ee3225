"""The commands that rank networks: each parses, calls, prints.

A command imports what it needs when it runs, so that help is quick, and what computes after its
input is checked, so that errors are quick.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ntkscore
from ntkscore.cli import options as o
from ntkscore.cli.display import (
    Format,
    interruptible,
    print_frame,
    progress_display,
    stderr,
    units,
)
from ntkscore.cli.options import Given, Ordered, Processes
from ntkscore.cli.sheets import describe_choices
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.options import options
from ntkscore.run import devices
from ntkscore.run.search import METHODS, check
from ntkscore.space import Architecture, Space

if TYPE_CHECKING:
    from ntkscore.analysis.ranking import Ranking
    from ntkscore.results import ResultSet
    from ntkscore.run.job import Job


def rank(
    directory: Annotated[
        str | None,
        typer.Argument(
            help="A finished run to rank as it is, or `recorded` for the package's own scores; "
            "nothing is computed then. Of one with several radii --rho names that which counts.",
            show_default=False,
            metavar=o.PLACE,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help=f"{o.RUN}; continued if it exists.", show_default=False, metavar=o.PLACE),
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option(
            help="Which cells: distinct (no two compute the same), all, random:64, table, "
            "table:64, a text file, or names with commas; of darts also published. Distinct if "
            "left out, of a finished run all."
        ),
    ] = None,
    table: Annotated[Path | None, typer.Option(help="Benchmark table, for --cells table.")] = None,
    top: o.Top = None,
    plot: o.Plot = None,
    batch: o.BatchSize = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Score nothing: compile for a100, h100, h200, v4, v5e or v6e, which need not be "
            "at hand, and print whether it fits, in which groups, and how fast at best.",
            show_default=False,
        ),
    ] = None,
    *,
    given: Given,
    processes: Processes,
    ordered: Ordered,
    config: Config,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Score many architectures and rank them. Run the same command again to resume."""
    from ntkscore.explore.pictures import check_picture

    check_picture(plot)
    if target is not None:
        unused = {"run to rank": directory, "--out": out, "--top": top, "--plot": plot}
        unused |= {"--by": ordered.by, "--reference": ordered.reference}
        unused |= {f"--{name}": given for name, given in asdict(processes).items()}
        for name, given in unused.items():
            if given is not None and given is not False:
                raise InputError(
                    f"expected no {name} beside --target, which only compiles, got {given}; leave "
                    "one of the two out"
                )
        job = ordered.job(config, space)
        _print_fit(target, job, cells or "distinct", table, ordered.seed, batch, format)
        return
    if directory is not None:
        fields = [f for each in (processes, ordered, config, space) for f in options(each)]
        flags = {"out": "--out", "batch": "--batch"}
        flags |= {f.name: f"--{o.flag_of(f)}" for f in fields if f.name not in ("by", "rhos")}
        if words := [flag for name, flag in flags.items() if name in given]:
            raise InputError(
                f"expected no {words[0]} beside a finished run, which is ranked as it is, got "
                f"{' '.join(words)}; leave it out, or name a folder with --out instead of the run"
            )
        rho = config.rhos[0] if "rhos" in given else None
        if rho is not None and len(config.rhos) > 1:
            raise InputError(
                f"expected one --rho to rank a finished run by, got {len(config.rhos)}; give one"
            )
        from ntkscore.api.runs import ranking_of

        results = ntkscore.open_results(directory)
        dataset, cls = results.configuration["dataset"], type(space) if space_name else None
        accuracies = None if table is None else ntkscore.load_table(table, dataset)
        ranking = ranking_of(results, cells, ordered.by, accuracies, cls, rho)
        rho = results.configuration["rhos"][0] if rho is None else rho
        _print_ranking(ranking, results, rho, format, 20, top, plot)
        return
    if out is None:
        raise InputError(
            "expected a folder for the results, got none; name one with --out, or a run to rank"
        )

    from ntkscore.run.processes import join, wait_for_others

    job = ordered.job(config, space)
    cells = cells or "distinct"
    chosen = _select(job, cells, table, ordered.seed)
    job = job.ranked_by(ordered.by, ordered.reference, chosen[0])
    job.check(out, batch)
    share = join(**asdict(processes))
    devices.keep_compiled(alone=True)
    with interruptible(lambda: _on_disk(out)), progress_display() as report:
        session = {"cells": cells}
        run = job.score(chosen, out, batch=batch, report=report, session=session, share=share)
        wait_for_others()
    ranking = job.ranking(run.results, chosen)
    if missing := job.missing(run.results, chosen):
        stderr.print(
            f"{units(missing, len(job.seeds))} are left to other processes; when all have ended, "
            "the same command prints the whole ranking, or computes what one of them has lost"
        )
    if share.index == 0 and not ranking.frame.empty:
        _print_ranking(ranking, run.results, config.rhos[0], format, 20, top, plot)


def _select(job: "Job", cells: str, table: Path | None, seed: int) -> tuple[Architecture, ...]:
    """The networks that --cells names, perhaps by a table."""
    accuracies = None if table is None else ntkscore.load_table(table, job.data.name)
    return job.select(cells, accuracies, seed)


def _print_fit(
    target: str,
    job: "Job",
    cells: str,
    table: Path | None,
    seed: int,
    batch: int | None,
    format: Format,
) -> None:
    """Print whether a scoring fits on a device that need not be at hand."""
    import jax

    # The plugins of devices that are not at hand would otherwise be started, and complain.
    jax.config.update("jax_platforms", "cpu")
    from ntkscore.api.targets import fits

    chosen = _select(job, cells, table, seed)
    how = {"space": job.space, "seeds": job.seeds, "batch": batch}
    with stderr.status(f"compiling for {target}"):
        frame = fits(target, chosen, job.data, job.config, **how)
    note = (
        "Compiled here, not run. at_best_seconds: the arithmetic at the device's published rate. "
        "launches, moved_gb: operations of the most expensive network, and what they read and "
        "write. moved_seconds: that for every network at the published bandwidth, without a cache."
    )
    print_frame(frame, format, f"Fit on {target}", note)


def search(
    out: Annotated[str, typer.Option(help=f"{o.RUN}; continued if it exists.", metavar=o.PLACE)],
    method: Annotated[
        str, typer.Option(help=f"How to go on from network to network: {' or '.join(METHODS)}.")
    ] = "local",
    budget: Annotated[int, typer.Option(help="Networks to visit.")] = 200,
    at_most: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=NUMBER: bound on a cost or count of the networks that would be trained, "
            "such as params=3e5 or flops=5e7; repeatable."
        ),
    ] = None,
    top: o.Top = None,
    plot: o.Plot = None,
    batch: o.BatchSize = None,
    *,
    ordered: Ordered,
    config: Config,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Search for the best-scored architecture, and score only those on the way. Resumes, too."""
    from ntkscore.explore.pictures import check_picture
    from ntkscore.results import ResultSet

    check_picture(plot)
    job = ordered.job(config, space)
    bounds = _bounds(at_most or [])
    job = job.ranked_by(ordered.by, ordered.reference, check(method, budget, job.space, bounds))
    job.check(out, batch)
    devices.keep_compiled(alone=True)
    with interruptible(lambda: _on_disk(out)), stderr.status("compiling") as status:
        ranking = job.search(
            out,
            method,
            budget,
            at_most=bounds,
            batch=batch,
            report=lambda step: status.update(
                f"{step.visited} of {step.budget} networks, the best "
                f"{' '.join(map(str, space.names(step.best).values()))}"
            ),
        )
    _print_ranking(ranking, ResultSet.open(out), config.rhos[0], format, 10, top, plot)


def _bounds(texts: Sequence[str]) -> dict[str, float]:
    """Bounds by name, from texts such as `params=3e5`."""
    bounds = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            bounds[name.strip()] = float(number)
        except ValueError:
            raise InputError(
                f"expected NAME=NUMBER such as params=3e5, got {text!r}; write a name and a number"
            ) from None
    return bounds


def _print_ranking(
    ranking: "Ranking",
    results: "ResultSet",
    rho: float,
    format: Format,
    few: int,
    top: int | None,
    plot: Path | None = None,
) -> None:
    """Print a ranking, and draw it.

    Args:
        ranking: the ranking.
        results: its scores.
        rho: the radius of those that count.
        format: a table, or for programs.
        few: rows of a table where `top` is left out.
        top: rows to print.
        plot: the file of the picture; none is drawn if left out.
    """
    frame, space = ranking.frame, ranking.space
    lacking = frame[list(ranking.by.terms)].isna()
    failed, last = int(lacking.any(axis=1).sum()), ""
    if failed:
        absent = [term for term in ranking.by.terms if lacking[term].any()]
        others = [term for term in ranking.by.terms if term not in absent]
        last = "they come last"
        if others:
            last += f": they lack {' or '.join(absent)}; --by {'+'.join(others)} orders them too"
        last = f" ({last})"
    note = f"{len(frame)} networks, {failed} without this score{last}, "
    note += describe_choices(results.configuration, space, rho)
    note += f"; all scores are in {results.directory}"
    scored = space.choices().items()
    if sizes := [f"{n} {v}" for n, v in space.trained().choices().items() if (n, v) not in scored]:
        trained = ", ".join(sizes)
        note += f"\nparams, flops and counts are of the networks that would be trained: {trained}"
    if ranking.among is not None:
        note += f"\nPercentiles are among {ranking.among.source}."
    if format is Format.table:
        # A genotype string is for programs; it would push the numbers off the terminal.
        frame = frame.drop(columns="string", errors="ignore")
        top = few if top is None else top
    frame = frame if top is None else frame.head(top)
    print_frame(frame, format, f"Ranked by {ranking.by}, best first", note)
    if plot is not None:
        _draw_ranking(ranking, few if top is None else top, plot)


def _draw_ranking(ranking: "Ranking", top: int, plot: Path) -> None:
    """Draw a ranking beside the first of the space's costs, and the cells of its best network."""
    from ntkscore.analysis.ranking import LOG_RANKS, PERCENTILE
    from ntkscore.explore.pictures import FIRST, ranking_picture

    space, frame = ranking.space, ranking.frame
    value = next(n for n in (PERCENTILE, LOG_RANKS, ranking.by.terms[0]) if n in frame)
    best = space.parse(frame.iloc[0, 1])
    cost, names = next(iter(space.costs(best))), list(space.names(best))
    by = "" if value == str(ranking.by) else str(ranking.by)
    graphs = space.graphs(best)
    ranking_picture(frame, value, cost, names, plot, by=by, first=min(FIRST, top), graphs=graphs)
    stderr.print(f"drawn in {plot}", soft_wrap=True)


def _on_disk(out: str) -> str:
    """What a result directory holds, as the beginning of a sentence."""
    from ntkscore.results import ResultSet

    run = ResultSet.find(out)
    done = run.finished() if run else ()
    return f"{units(len(done), len({seed for _, seed in done}))} are on disk"
