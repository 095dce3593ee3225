"""The commands that train a network and evaluate it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

import ntkscore
from ntkscore.cli import options as o
from ntkscore.cli.display import Format, duration, interruptible, print_frame, stderr
from ntkscore.data.datasets import DATASETS
from ntkscore.data.images import ImageSet, load_images
from ntkscore.errors import InputError
from ntkscore.run import devices
from ntkscore.space import Space
from ntkscore.training.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd

    from ntkscore.training.runs import TrainedNetwork


def train(
    cell: o.Cell,
    out: Annotated[Path, typer.Option(help="Folder for the run; continued if it exists.")],
    data: o.Data = "synthetic",
    data_dir: o.DataDir = None,
    seed: o.Seed = 0,
    seeds: Annotated[
        int, typer.Option(help="How many seeds to train side by side, from --seed on.")
    ] = 1,
    kernels: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="After how many epochs to record how the kernels have moved, in kernels.csv.",
            show_default=False,
        ),
    ] = None,
    plot: o.Plot = None,
    *,
    recipe: Recipe,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Train a network adversarially. Run the same command again to resume."""
    from ntkscore.explore.pictures import check_picture, kernels_picture
    from ntkscore.training.fit import Diverged
    from ntkscore.training.runs import train as run

    check_picture(plot)
    if plot is not None and kernels is None:
        raise InputError("--kernels beside --plot, which draws them", "--plot", "add --kernels 1")
    images = ntkscore.load_images(data, data_dir)
    devices.keep_compiled()
    with interruptible(lambda: "whole epochs are on disk"), stderr.status("compiling") as status:
        try:
            trained = run(
                cell,
                images,
                recipe,
                space=space,
                seeds=range(seed, seed + seeds),
                out=out,
                kernels=kernels,
                report=lambda at: status.update(
                    f"epoch {at.epoch} of {at.epochs}, step {at.step} of {at.steps}, loss "
                    f"{at.loss:.3f}, {duration(at.seconds_left)} left"
                ),
            )
        except Diverged as error:
            stderr.print(Text("diverged:", "red"), str(error), soft_wrap=True)
            raise typer.Exit(1) from None
    if plot is not None and trained.kernels is not None:
        kernels_picture(trained.kernels, plot)
        stderr.print(f"drawn in {plot}", soft_wrap=True)
    frame = trained.history
    if format is Format.table:
        frame = frame[frame["epoch"] == frame["epoch"].max()]
        frame = frame.drop(columns="string", errors="ignore")
    print_frame(
        frame,
        format,
        f"Trained for {recipe.epochs} epochs on {images.name}, recipe {recipe.recipe}, "
        f"β = {recipe.beta:g}",
        "Accuracies of the last epoch's own training batches; "
        f"`ntkscore evaluate {out}` has others.",
    )


def choose(
    run: Annotated[
        str,
        typer.Argument(
            help="A run that scored the networks, or `recorded`.",
            show_default=False,
            metavar=o.PLACE,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the trainings; continued if it exists.")],
    budget: Annotated[int, typer.Option(help="How many networks to train in all.")] = 16,
    suggest: Annotated[
        int, typer.Option(help="How many to choose at a time, before their accuracies are known.")
    ] = 1,
    scheduler: o.Scheduler = None,
    at_rho: o.AtRho = None,
    data: o.Data = "cifar10",
    data_dir: o.DataDir = None,
    seed: o.Seed = 0,
    *,
    recipe: Recipe,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Train networks of a run one by one, each chosen by the results so far. Resumes."""
    from ntkscore.api.prediction import Campaign
    from ntkscore.run.cluster import connected
    from ntkscore.spaces import space_in
    from ntkscore.training.few import (
        CHOOSES,
        DIVERGED,
        PENDING,
        Entry,
        FewTrainings,
        train_few,
    )
    from ntkscore.training.fit import Moment

    where = space_in(run, type(space)) if space_name else None
    scored = Campaign.of(run, None, space=where, rho=o.radius_of(at_rho))
    if type(space) is not type(scored.space):
        if space != type(space)():
            raise InputError(
                f"options of {scored.space.name}, whose networks {run} has",
                f"those of {space.name}",
                f"give --space {scored.space.name}",
            )
        space = scored.space.trained()
    few = FewTrainings(
        out=out, space=space, predictor=scored.predictor, budget=budget, batch=suggest
    )
    images = ntkscore.load_images(data, data_dir)
    devices.keep_compiled()
    load = partial(load_images, data, data_dir)
    stop = interruptible(lambda: f"the trainings are in {out}")
    with stop, connected(scheduler) as executor, stderr.status("compiling") as status:

        def report(each: Entry, at: Moment) -> None:
            status.update(f"{each.key}: epoch {at.epoch} of {at.epochs}, loss {at.loss:.3f}")

        how = {"seed": seed, "report": report, "executor": executor, "load": load}
        for each in train_few(few, images, recipe, **how):
            others = each.status == PENDING
            text = "another process trains it; nothing else is left here until it ends"
            stderr.print(f"{each.key}: {text if others else each.status}", soft_wrap=True)
    frame = few.accuracies().sort_values(CHOOSES, ascending=False, kind="stable")
    if frame.empty:
        if all(each.status == DIVERGED for each in few.entries()):
            stderr.print(f"each training in {out} has diverged; lower --peak, in another folder")
        raise typer.Exit(1)
    frame.insert(0, next(iter(space.identity(space.parse(frame.index[0])))), frame.index)
    print_frame(
        frame,
        format,
        "Trained, best first",
        f"accuracies on the {recipe.held_out} images held out of training; `ntkscore predict {run} "
        f"--table {out / 'accuracies.csv'} --metric {CHOOSES}` predicts the others",
    )


def evaluate(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder that `train` left, or a NAS-Bench-201 state dict (.pth, .npz).",
            show_default=False,
        ),
    ],
    cell: Annotated[str | None, typer.Option(help="Cell of a state dict.")] = None,
    data: Annotated[str | None, typer.Option(help="Images; those of the run if left out.")] = None,
    data_dir: o.DataDir = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="How many images to evaluate on; all if left out.")
    ] = None,
    queries: Annotated[
        int, typer.Option(help="Queries of the Square attack, 5000 in the paper; 0 leaves it out.")
    ] = 0,
    autoattack: Annotated[
        bool,
        typer.Option(help="Also AutoAttack at 8/255, by PyTorch and its authors' package."),
    ] = False,
    corruptions: Annotated[
        Path | None, typer.Option(help="Folder with CIFAR-10-C; left out if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the attacks.")] = 0,
    export: Annotated[
        Path | None,
        typer.Option(help="Also write the weights as a NAS-Bench-201 state dict (.npz)."),
    ] = None,
    *,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Print accuracies of a trained network: clean, attacked, and signs of masked gradients."""
    import pandas as pd

    from ntkscore.results.atomic import publish, writing_to
    from ntkscore.training.evaluation import evaluate as ask
    from ntkscore.training.sources import trained_networks

    if export is not None and export.suffix != ".npz":
        raise InputError("a name that ends in .npz after --export", export, "name one")
    devices.keep_compiled()
    networks = trained_networks(
        source, cell, space, lambda: load_images(data or "cifar10", data_dir, True)
    )
    run = networks.run
    images = networks.images if run is None else _images_for(run, source, data, data_dir)
    if export is not None:
        if run is None:
            raise InputError(
                "a folder of a run to export", "a state dict already", "name what `train` left"
            )
        _export(run, [columns["seed"] for columns, _ in networks.pairs], export)
    found = []
    for columns, model in networks.pairs:
        with stderr.status("clean") as status:
            frame = ask(
                model,
                images.images[:rows],
                images.labels[:rows],
                queries=queries,
                autoattack=autoattack,
                corruptions=corruptions,
                seed=seed,
                report=status.update,
            )
        for at, (name, value) in enumerate(columns.items()):
            frame.insert(at, name, value)
        found.append(frame)
    frame = pd.concat(found, ignore_index=True)
    _print_accuracies(frame, images.name, format)
    if source.is_dir():
        with writing_to(source):
            publish(source / "evaluation.csv", frame.to_csv(index=False).encode())


def _print_accuracies(frame: "pd.DataFrame", name: str, format: Format) -> None:
    """Print what a network reaches on some images; a table leaves out single classes."""
    from ntkscore.training.evaluation import CHECKS

    if format is not Format.table:
        print_frame(frame, format)
        return
    shown = frame[frame["class"] == -1].drop(
        columns=["class", "severity", "string"], errors="ignore"
    )
    signs = {name: text for name, text in CHECKS.items() if (shown["metric"] == name).any()}
    notes = [f"{name}: {text} (1 if so)" for name, text in signs.items()]
    print_frame(shown, format, f"Accuracies on {name}", "\n".join(notes))


def _export(run: "TrainedNetwork", seeds: Sequence[int], file: Path) -> None:
    """Write the weights of each seed to a file; names after the first end with the seed."""
    from ntkscore.results.atomic import writing_to

    with writing_to(file.parent):
        for place, seed in enumerate(seeds):
            numbered = file.with_name(f"{file.stem}-{seed}{file.suffix}")
            run.write_weights(numbered if place else file, place)


def _images_for(
    run: "TrainedNetwork", source: Path, data: str | None, data_dir: Path | None
) -> ImageSet:
    """The images to evaluate a run's networks on: held-out ones, else the official test images."""
    held, file = run.recipe.held_out, data is not None and data.endswith(".npz")
    if data is None and run.dataset not in DATASETS:
        raise InputError(
            f"the file of the images that {source} was trained on",
            "none",
            f"name it, such as --data {run.dataset}.npz",
        )
    # A file has one set, and the run may have been trained on a part of it.
    official = not file and (data is not None or not held)
    images = load_images(data or run.dataset, data_dir, test=official)
    asked, found = (
        f"the shape {task.image_shape} and {task.num_classes} classes"
        for task in (run.space.task, images.task)
    )
    if asked != found:
        raise InputError(
            f"images of {asked}, as the network was trained on",
            f"{found} in {images.name}",
            "choose others",
        )
    if official:
        return images
    if images.checksum != run.checksum:
        if file:
            return images
        raise InputError(
            f"the images that {source} was trained on",
            f"others by the name {images.name}",
            "name the same ones with --data-dir",
        )
    if not held:
        raise InputError(
            f"images that {source} was not trained on",
            "those of its training",
            "name others, or train with --held-out",
        )
    from ntkscore.training.fit import split

    _, subset = split(len(images.labels), held)
    return replace(images, images=images.images[subset], labels=images.labels[subset])
