"""The commands that rank networks, search for them, and compile for devices that are not at hand.

Each parses, calls, prints. A command imports what it needs when it runs, so that help is quick, and
what computes after its input is checked, so that errors are quick.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ntkscore
from ntkscore.cli import options as o
from ntkscore.cli.display import Format, interruptible, print_frame, stderr, units
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
            show_default=False,
            metavar=o.PLACE,
        ),
    ],
    by: o.By = None,
    among: o.Among = None,
    networks: Annotated[
        str | None,
        typer.Option(help="Which of its networks, as for `score`; all if left out."),
    ] = None,
    at_most: o.AtMost = None,
    costs: o.Costs = None,
    at_rho: o.AtRho = None,
    top: o.Top = None,
    plot: o.Plot = None,
    space: o.SpaceName = None,
    format: o.OutputFormat = Format.table,
) -> None:
    """Rank the networks that a run has scored. Nothing is computed."""
    from ntkscore.explore.pictures import check_picture
    from ntkscore.spaces import space_class

    check_picture(plot)
    run = ntkscore.open_run(directory, space_class(space) if space else None)
    if costs is not None:
        run = run.with_costs(ntkscore.load_costs(costs, run.results.configuration["dataset"]))
    if networks is not None:
        run = run.of(networks)
    if bounds := o.bounds_of(at_most):
        run = run.within(bounds)
    rho = o.radius_of(at_rho)
    ranking = run.ranking(by, among, rho)
    rho = run.results.configuration["rhos"][0] if rho is None else rho
    _print_ranking(ranking, run.results, rho, format, 20, top, plot, bounds)


def fits(
    target: Annotated[
        str,
        typer.Argument(help="Device: a100, h100, h200, v4, v5e or v6e.", show_default=False),
    ],
    networks: o.Networks,
    table: o.NetworksTable = None,
    batch: o.BatchSize = None,
    *,
    drawn: Drawn,
    config: Config,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Compile for a GPU or TPU that is not at hand; say whether it fits, and how fast at best."""
    import jax

    # The plugins of devices that are not at hand would otherwise be started, and complain.
    jax.config.update("jax_platforms", "cpu")
    scoring = drawn.scoring(config, space)
    chosen = o.select(scoring, networks, table, drawn.seed)
    how = {"space": scoring.space, "seeds": scoring.seeds, "batch": batch}
    with stderr.status(f"compiling for {target}"):
        frame = ntkscore.fits(target, chosen, scoring.data, config, **how)
    note = (
        "Compiled here, not run. at_best_seconds: the arithmetic at the device's published rate. "
        "launches, moved_gb: operations of the most expensive network, and what they read and "
        "write. moved_seconds: that for every network at the published bandwidth, without a cache."
    )
    print_frame(frame, format, f"Fit on {target}", note)


def search(
    out: Annotated[str, typer.Option(help=f"{o.RUN}; continued if it exists.", metavar=o.PLACE)],
    method: Annotated[
        str, typer.Option(help="How to go on from network to network.", metavar="|".join(METHODS))
    ] = "local",
    budget: Annotated[int, typer.Option(help="Networks to visit.")] = 200,
    at_most: o.AtMost = None,
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
    format: o.OutputFormat = Format.table,
) -> None:
    """Search for the best-scored architecture, and score only those on the way. Resumes, too."""
    from ntkscore.explore.pictures import check_picture
    from ntkscore.run.cluster import connected

    check_picture(plot)
    bounds = o.bounds_of(at_most)
    images = ntkscore.load_images(drawn.data, drawn.data_dir)
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
            costs=None if costs is None else ntkscore.load_costs(costs, images.name),
            among=among,
            batch=batch,
            executor=executor,
            report=lambda step: status.update(
                f"{step.visited} of {step.budget} networks, the best "
                f"{' '.join(map(str, space.names(step.best).values()))}"
            ),
        )
    rho = config.rhos[0]
    ranking = run.ranking(by, among, rho)
    _print_ranking(ranking, run.results, rho, format, 10, top, plot, bounds)


def _print_ranking(
    ranking: "Ranking",
    results: "ResultSet",
    rho: float,
    format: Format,
    few: int,
    top: int | None,
    plot: Path | None = None,
    shown: Iterable[str] = (),
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
        shown: measured costs to show in a table beside those that rank.
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
        # A genotype string, digests and other devices would push the numbers off.
        aside = {"string", WEIGHTS, *space.measured_names}.difference(ranking.by.terms, shown)
        frame = frame.drop(columns=list(aside), errors="ignore")
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


def on_disk(out: str) -> str:
    """What a result directory holds, as the beginning of a sentence."""
    from ntkscore.results import ResultSet

    run = ResultSet.find(out)
    done = run.finished() if run else ()
    return f"{units(len(done), len({seed for _, seed in done}))} are on disk"
