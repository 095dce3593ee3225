"""The commands that rank networks, search for them, and ask of devices that are not at hand."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ntkscore
from ntkscore.cli import options as o
from ntkscore.cli.display import Format, front_title, interruptible, print_frame, stderr, units
from ntkscore.cli.options import Drawn
from ntkscore.cli.sheets import describe_choices
from ntkscore.config import Config
from ntkscore.run.search import METHODS
from ntkscore.space import WEIGHTS, Space

if TYPE_CHECKING:
    from ntkscore.analysis.ranking import Ranking
    from ntkscore.results import ResultSet


def rank(
    directory: Annotated[
        str,
        typer.Argument(
            help="A run, finished or not, or `recorded` for the package's own scores.",
            metavar=o.PLACE,
        ),
    ],
    networks: Annotated[
        list[str] | None,
        typer.Argument(help="Which of its networks, as for `score`; all if left out."),
    ] = None,
    by: o.By = None,
    among: o.Among = None,
    at_most: o.AtMost = None,
    pareto: o.Pareto = None,
    costs: o.Costs = None,
    at_rho: o.AtRho = None,
    top: o.Top = None,
    plot: o.Plot = None,
    space: o.SpaceName = None,
    format: o.OutputFormat = "table",
) -> None:
    """Rank the networks that a run has scored. Nothing is computed."""
    from ntkscore.explore.pictures import check_picture
    from ntkscore.spaces import space_class

    check_picture(plot)
    run = ntkscore.open_run(directory, space_class(space) if space else None)
    if costs is not None:
        run = run.with_costs(ntkscore.load_costs(costs, run.results.configuration["dataset"]))
    if networks:
        run = run.of(",".join(networks))
    if bounds := o.bounds_of(at_most):
        run = run.within(bounds)
    rho = o.radius_of(at_rho)
    ranking = run.ranking(by, among, rho, o.names_in(pareto))
    rho = run.results.configuration["rhos"][0] if rho is None else rho
    _print_ranking(ranking, run.results, rho, format, 20, top, plot, bounds, o.names_in(pareto))


def fits(
    target: Annotated[str, typer.Argument(help="Device: a100, h100, h200, v4, v5e or v6e.")],
    networks: o.Networks,
    table: o.NetworksTable = None,
    batch: o.BatchSize = None,
    *,
    drawn: Drawn,
    config: Config,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = "table",
) -> None:
    """Compile for a GPU or TPU that is not at hand; say whether it fits, and how fast at best."""
    import jax

    # The plugins of devices that are not at hand would otherwise be started, and complain.
    jax.config.update("jax_platforms", "cpu")
    scoring = drawn.scoring(config, space)
    chosen = o.select(scoring, networks, table)
    how = {"space": scoring.space, "seeds": scoring.seeds, "batch": batch}
    with stderr.status(f"compiling for {target}"):
        frame = ntkscore.fits(target, chosen, scoring.data, config, **how)
    note = (
        "Compiled here, not run. at_best_seconds: the arithmetic at the device's published rate. "
        "launches, moved_gb: operations of the most expensive network, and what they read and "
        "write. moved_seconds: that for every network at the published bandwidth, without a cache."
    )
    print_frame(frame, format, f"Fit on {target}", note)


def measure_latency(
    networks: o.Networks,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A .csv file for --costs, written after every network; continued if it exists."
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images of a pass.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Passes that are timed.")] = 50,
    target: Annotated[
        str | None,
        typer.Option(
            help="A device that is not at hand, as for `fits`: what its compiler says, a bound."
        ),
    ] = None,
    data: o.Data = "synthetic",
    data_dir: o.DataDir = None,
    table: o.NetworksTable = None,
    space_name: o.SpaceName = None,
    *,
    space: Space,
    format: o.OutputFormat = "table",
) -> None:
    """Time the forward pass of networks on this machine's device, for --costs and --at-most."""
    from ntkscore.run.scoring import Scoring

    if target is not None:
        import jax

        jax.config.update("jax_platforms", "cpu")
    scoring = Scoring.of(ntkscore.load_images(data, data_dir), space=space)
    chosen = o.select(scoring, networks, table)
    stop = nullcontext() if out is None else interruptible(lambda: f"what was timed is in {out}")
    with stop, stderr.status("compiling") as status:
        frame = ntkscore.measure_latency(
            [scoring.space.key(each) for each in chosen],
            scoring.data,
            space=scoring.space,
            batch=batch_size,
            repeats=repeats,
            target=target,
            out=out,
            report=lambda done, count: status.update(f"{done} of {count} networks"),
        )
    words = "image" if batch_size == 1 else "images"
    note = f"Milliseconds: medians of {repeats} passes of {batch_size} {words}, and the range of "
    note += "the middle half. The networks are those that would be trained."
    if target is not None:
        note = f"Compiled here, not run, for passes of {batch_size} {words}. latency_bound: the "
        note += "arithmetic's milliseconds at the published rate. moved_ms: those of reads and "
        note += "writes at the published bandwidth, without a cache."
    print_frame(frame.reset_index(), format, f"Latency on {target or 'this machine'}", note)


def search(
    out: Annotated[str, typer.Option(help=f"{o.RUN}; continued if it exists.", metavar=o.PLACE)],
    method: Annotated[
        str | None,
        typer.Option(
            help="How to go on from network to network; nsga2 with --pareto, else local.",
            metavar="|".join(METHODS),
        ),
    ] = None,
    budget: Annotated[int, typer.Option(help="Networks to visit.")] = 200,
    at_most: o.AtMost = None,
    pareto: o.Pareto = None,
    costs: o.Costs = None,
    top: o.Top = None,
    plot: o.Plot = None,
    batch: o.BatchSize = None,
    scheduler: o.Scheduler = None,
    by: o.By = None,
    among: o.Among = None,
    *,
    drawn: Drawn,
    config: Config,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = "table",
) -> None:
    """Search for the best-scored architecture, and score only those on the way. Resumes, too."""
    from ntkscore.explore.pictures import check_picture
    from ntkscore.run.cluster import connected

    check_picture(plot)
    bounds, beside = o.bounds_of(at_most), o.names_in(pareto)
    images = drawn.images
    stop = interruptible(lambda: on_disk(out))
    with stop, connected(scheduler) as executor, stderr.status("compiling") as status:
        run = ntkscore.search(
            images,
            out,
            config,
            space=space,
            method=method,
            budget=budget,
            seed=drawn.seed,
            seeds=drawn.seeds,
            by=by,
            at_most=bounds,
            pareto=beside,
            costs=None if costs is None else ntkscore.load_costs(costs, images.name),
            among=among,
            batch=batch,
            executor=executor,
            report=lambda step: status.update(
                f"{step.visited} of {step.budget} networks, the best "
                f"{' '.join(map(str, space.names(step.best).values()))}"
                + (f", {step.front} that none beats" if beside else "")
            ),
        )
    rho = config.rhos[0]
    ranking = run.ranking(by, among, rho, beside)
    _print_ranking(ranking, run.results, rho, format, 10, top, plot, bounds, beside)


def _print_ranking(
    ranking: "Ranking",
    results: "ResultSet",
    rho: float,
    format: Format,
    few: int,
    top: int | None,
    plot: Path | None = None,
    bounds: Iterable[str] = (),
    pareto: Sequence[str] = (),
) -> None:
    """Print a ranking, a table of at most `few` rows where `top` is left out, and draw it.

    A table has those measured costs that rank or are named in `bounds` or `pareto`; beside the
    latter only the networks of the front are printed.
    """
    frame, space, front = ranking.frame, ranking.space, ranking.front
    lacking = frame[[*ranking.by.terms, *pareto]].isna()
    failed, last = int(lacking.any(axis=1).sum()), ""
    title = f"Ranked by {ranking.by}, best first"
    note = f"{len(frame)} networks, {failed} without this score"
    if pareto:
        title = front_title(len(front), str(ranking.by), pareto)
        note = f"of {len(frame)} networks, {failed} without the score or a cost"
    elif failed:
        absent = [term for term in ranking.by.terms if lacking[term].any()]
        others = [term for term in ranking.by.terms if term not in absent]
        last = "they come last"
        if others:
            last += f": they lack {' or '.join(absent)}; --by {'+'.join(others)} orders them too"
        last = f" ({last})"
    note += f"{last}, "
    note += describe_choices(results.configuration, space, rho)
    note += f"; all scores are in {results.directory}"
    scored = space.choices().items()
    if sizes := [f"{n} {v}" for n, v in space.trained().choices().items() if (n, v) not in scored]:
        trained = ", ".join(sizes)
        note += f"\nparams, flops and counts are of the networks that would be trained: {trained}"
    if ranking.among is not None:
        note += f"\nPercentiles are among {ranking.among.source}."
    if format == "table":
        # A genotype string, digests and other devices would push the numbers off.
        aside = {"string", WEIGHTS, *space.measured_names}.difference(
            ranking.by.terms, bounds, pareto
        )
        front = front.drop(columns=list(aside), errors="ignore")
        # A front is short, and each of its networks is an answer.
        top = few if top is None and not pareto else top
    print_frame(front if top is None else front.head(top), format, title, note)
    if plot is not None:
        _draw_ranking(ranking, few if top is None else top, plot, pareto)


def _draw_ranking(ranking: "Ranking", top: int, plot: Path, pareto: Sequence[str]) -> None:
    """Draw a ranking beside a cost, and the cells of its best network, or a front."""
    from ntkscore.analysis.ranking import LOG_RANKS, PERCENTILE
    from ntkscore.explore.pictures import FIRST, front_picture, ranking_picture

    space, frame = ranking.space, ranking.frame
    value = next(n for n in (PERCENTILE, LOG_RANKS, ranking.by.terms[0]) if n in frame)
    best = space.parse(frame.iloc[0, 1])
    costs, names = list(pareto) or [next(iter(space.costs(best)))], list(space.names(best))
    by = "" if value == str(ranking.by) else str(ranking.by)
    if pareto:
        front_picture(frame, ranking.front, value, costs, names, plot, by=by)
    else:
        graphs = space.graphs(best)
        first = min(FIRST, top)
        ranking_picture(frame, value, costs[0], names, plot, by=by, first=first, graphs=graphs)
    stderr.print(f"drawn in {plot}", soft_wrap=True)


def on_disk(out: str) -> str:
    """What a result directory holds, as the beginning of a sentence."""
    from ntkscore.results import ResultSet

    run = ResultSet.find(out)
    done = run.finished() if run else ()
    return f"{units(len(done), len({seed for _, seed in done}))} are on disk"
