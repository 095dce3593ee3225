"""The command that scores networks: it parses, calls, prints.

A command imports what it works with when it runs, so that help is quick, and what computes when
its input is checked, so that a refusal is.
"""

from pathlib import Path
from typing import Annotated

import typer

import ntkscore
from cells.space import Space
from ntkscore.cli import options as o
from ntkscore.cli.options import Drawn
from ntkscore.cli.output import Format, stderr
from ntkscore.config import Config
from ntkscore.data.images import ImageSet
from ntkscore.errors import InputError
from ntkscore.run import devices
from ntkscore.text import format_rho


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
        images = ntkscore.load_images(drawn.data, drawn.data_dir)
        _score_trained(cells, weights, images, drawn.seed, config, space, format)
        return
    job = drawn.job(config, space)
    chosen, images, space = job.select(cells), job.data, job.space
    pixels, labels = job.draws[drawn.seed]

    from ntkscore.analysis.frames import network_table
    from ntkscore.cli.display import print_frame
    from ntkscore.cli.sheets import describe_choices, failures_in, score_sheet, title_of

    among = None
    if drawn.reference is not None or format is Format.table:
        among = job.ranked_by(None, drawn.reference, chosen[0]).among
    devices.keep_compiled(alone=True)
    with stderr.status("compiling, then scoring"):
        frame = ntkscore.score(
            chosen,
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
    devices.keep_compiled(alone=True)
    frames = []
    for columns, model in networks.pairs:
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
