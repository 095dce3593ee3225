"""The command that scores networks."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ntkscore
from ntkscore.cli import options as o
from ntkscore.cli.display import Format, interruptible, print_frame, progress_display, stderr, units
from ntkscore.cli.options import Drawn
from ntkscore.cli.ranking import on_disk
from ntkscore.cli.sheets import describe_choices, failures_in, over_seeds, score_sheet, title_of
from ntkscore.config import Config
from ntkscore.data.images import ImageSet
from ntkscore.errors import InputError
from ntkscore.space import Architecture, Space
from ntkscore.spaces import SPACES
from ntkscore.text import format_rho

if TYPE_CHECKING:
    import pandas as pd

    from ntkscore.run.scoring import Scoring


def score(
    networks: o.Networks,
    out: Annotated[
        str | None,
        typer.Option(
            help=f"{o.RUN}; continued if it exists. Printed and not kept if left out.",
            metavar=o.PLACE,
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Trained weights of the one network: a folder that `train` left, or a "
            "NAS-Bench-201 state dict (.pth, .npz). Untrained if left out."
        ),
    ] = None,
    table: o.NetworksTable = None,
    batch: o.BatchSize = None,
    scheduler: o.Scheduler = None,
    *,
    drawn: Drawn,
    config: Config,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = "table",
) -> None:
    """Score networks without training. With --out, the same command again goes on."""
    if weights is not None:
        for option, value in (("--out", out), ("--scheduler", scheduler), ("--batch", batch)):
            if value is not None:
                raise InputError(f"no {option} beside --weights", value, "leave it out")
        _score_trained(networks, weights, drawn, config, space, format)
        return
    from ntkscore.analysis.ranking import PERCENTILE
    from ntkscore.api.scoring import scored
    from ntkscore.run.cluster import leave_devices

    if scheduler is not None:
        if out is None:
            raise InputError(
                f"a folder for what the workers of {scheduler} compute", "none", "add --out DIR"
            )
        leave_devices()  # before networks of a file are made
    scoring = drawn.scoring(config, space)
    chosen = o.select(scoring, networks, table)
    if out is not None:
        own = space_name if space_name not in SPACES else None
        _score_into(out, scoring, chosen, batch, scheduler, networks, own, format)
        return
    with stderr.status("compiling, then scoring"):
        run = scored(scoring, chosen, batch=batch)
    if format != "table":
        print_frame(run.rows, format)
        return
    first = config.rhos[0]
    ranking = run.ranking(rho=first)
    key = run.results.identity[0]
    for (name, radius), rows in run.rows.groupby([key, "rho"], sort=False):
        percentile = ""
        if ranking.among is not None and radius == first:
            place = ranking.frame.set_index(key).loc[name, PERCENTILE]
            percentile = f"Better than {place:.1f} % of {ranking.among.source}, by {ranking.by}."
        title = title_of(scoring.space, scoring.space.parse(name))
        if len(scoring.seeds) > 1:
            title += f", means over the seeds {', '.join(map(str, scoring.seeds))}"
        choices = describe_choices(run.results.configuration, scoring.space, radius)
        _print_sheet(over_seeds(rows), title, choices, percentile)


def _score_into(
    out: str,
    scoring: "Scoring",
    chosen: Sequence[Architecture],
    batch: int | None,
    scheduler: str | None,
    networks: Sequence[str],
    own: str | None,
    format: Format,
) -> None:
    """Score into a result directory, and say what to do with it."""
    from ntkscore.run import engine
    from ntkscore.run.cluster import connected

    if scheduler is not None:
        engine.check(scoring, out, batch)  # before connecting
    stop = interruptible(lambda: on_disk(out))
    with stop, connected(scheduler) as executor, progress_display() as report:
        session = {"networks": ",".join(networks)}
        how = {"batch": batch, "executor": executor, "report": report, "session": session}
        results = engine.run(scoring, chosen, out, **how)
    if format == "table":
        wanted = {(scoring.space.key(each), seed) for each in chosen for seed in scoring.seeds}
        count = units(len(wanted), len(scoring.seeds))
        words = ["ntkscore", "rank", out]
        words += ["--space", own] if own and not results.described() else []
        stderr.print(f"{count} are scored; `{shlex.join(words)}` ranks them", soft_wrap=True)
    else:
        print_frame(results.read(), format)


def _print_sheet(rows: "pd.DataFrame", title: str, choices: str, percentile: str = "") -> None:
    """Print the scores of one network and radius, and why some of them failed."""
    notes = filter(None, [choices, failures_in(rows), percentile])
    print_frame(score_sheet(rows), "table", title, "\n".join(notes))


def _score_trained(
    cells: list[str], weights: Path, drawn: Drawn, config: Config, space: Space, format: Format
) -> None:
    """Print every score of every kernel of a network at trained weights."""
    import pandas as pd

    from ntkscore.training.sources import trained_networks

    if len(cells) != 1:
        raise InputError("one network with --weights", len(cells), "name the one")
    images, seed = drawn.images, drawn.seed
    networks = trained_networks(weights, cells[0], space, lambda held_out: images)
    if images.task.image_shape != networks.space.task.image_shape:
        raise InputError(
            f"images of the shape {networks.space.task.image_shape}, as the network was trained on",
            images.task.image_shape,
            "choose others with --data",
        )
    same = ImageSet.of(*images.draw(seed), name=images.name)
    frames = []
    for columns, model in networks.pairs:
        with stderr.status("compiling, then scoring"):
            rows = ntkscore.score({cells[0]: model}, same, config, seeds=[seed]).rows
        frames.append(rows.assign(trained_seed=columns["seed"], epochs=columns["epochs"]))
        if format == "table":
            for radius, part in rows.groupby("rho", sort=False):
                title = f"{cells[0]}, seed {columns['seed']}, after {columns['epochs']} epochs"
                choices = f"{images.name}, ρ = {format_rho(radius)}, running statistics"
                _print_sheet(part, title, choices)
    if format != "table":
        print_frame(pd.concat(frames, ignore_index=True), format)
