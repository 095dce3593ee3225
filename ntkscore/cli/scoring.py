"""The command that scores networks: it parses, calls, prints.

A command imports what it needs when it runs, so that help is quick, and what computes after its
input is checked, so that errors are quick.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ntkscore
from ntkscore.cli import options as o
from ntkscore.cli.display import Format, print_frame, stderr
from ntkscore.cli.options import Drawn
from ntkscore.cli.sheets import describe_choices, failures_in, score_sheet, title_of
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.run import devices
from ntkscore.space import Space
from ntkscore.text import format_rho

if TYPE_CHECKING:
    import pandas as pd


def score(
    cells: o.Cells,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Trained weights of the one architecture: a folder that `train` left, or a "
            "NAS-Bench-201 state dict (.pth, .npz). Untrained if left out."
        ),
    ] = None,
    *,
    drawn: Drawn,
    config: Config,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Print every score of every kernel of the given architectures."""
    if weights is not None:
        _score_trained(cells, weights, drawn, config, space, format)
        return
    job = drawn.job(config, space)
    chosen, images, space = job.select(cells), job.data, job.space
    titles = {space.key(architecture): title_of(space, architecture) for architecture in chosen}
    pixels, labels = job.draws[drawn.seed]

    from ntkscore.analysis.frames import network_table

    among = None
    if drawn.reference is not None or format is Format.table:
        among = job.ranked_by(None, drawn.reference, chosen[0]).among
    devices.keep_compiled(alone=True)
    with stderr.status("compiling, then scoring"):
        frame = ntkscore.score(
            list(titles),
            pixels,
            labels,
            config,
            space=space,
            seed=drawn.seed,
            mean=images.mean,
            std=images.std,
            num_classes=images.num_classes,
            dataset=images.name,
        )
    if format is not Format.table:
        print_frame(frame, format)
        return
    by_radius = frame.groupby([frame.columns[0], "rho"], sort=False)
    for (key, radius), rows in by_radius:
        percentile = ""
        if among is not None and radius == config.rhos[0]:
            (place,) = among.percentiles(network_table(rows, space))
            percentile = f"Better than {place:.1f} % of {among.source}, by {among.by}."
        scored = {**config.to_dict(), "dataset": images.name}
        choices = describe_choices(scored, space, radius)
        _print_sheet(rows, titles[key], choices, percentile)


def _print_sheet(rows: "pd.DataFrame", title: str, choices: str, percentile: str = "") -> None:
    """Print the scores of one network and radius, and why some of them failed."""
    notes = filter(None, [choices, failures_in(rows), percentile])
    print_frame(score_sheet(rows), Format.table, title, "\n".join(notes))


def _score_trained(
    cells: list[str], weights: Path, drawn: Drawn, config: Config, space: Space, format: Format
) -> None:
    """Print every score of every kernel of a network at trained weights."""
    import pandas as pd

    from ntkscore.training.sources import trained_networks

    if drawn.reference is not None:
        raise InputError(
            "expected no --reference beside --weights, whose network is trained, got "
            f"{drawn.reference}; leave one of the two out"
        )
    if len(cells) != 1:
        raise InputError(
            f"expected one architecture with --weights, got {len(cells)}; name the one"
        )
    images, seed = ntkscore.load_images(drawn.data, drawn.data_dir), drawn.seed
    networks = trained_networks(weights, cells[0], space, lambda: images)
    if images.task.image_shape != networks.space.task.image_shape:
        raise InputError(
            f"expected images of the shape {networks.space.task.image_shape}, as the network was "
            f"trained on, got {images.task.image_shape}; choose others with --data"
        )
    pixels, labels = ntkscore.draw_images(images, config.samples, seed, config.balanced)
    devices.keep_compiled(alone=True)
    frames = []
    for columns, model in networks.pairs:
        with stderr.status("compiling, then scoring"):
            rows = ntkscore.score_network(
                model, pixels, labels, config, name=cells[0], seed=seed, dataset=images.name
            )
        frames.append(rows.assign(trained_seed=columns["seed"], epochs=columns["epochs"]))
        if format is Format.table:
            for radius, part in rows.groupby("rho", sort=False):
                title = f"{cells[0]}, seed {columns['seed']}, after {columns['epochs']} epochs"
                choices = f"{images.name}, ρ = {format_rho(radius)}, running statistics"
                _print_sheet(part, title, choices)
    if format is not Format.table:
        print_frame(pd.concat(frames, ignore_index=True), format)
