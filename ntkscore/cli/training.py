"""The commands that train networks."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import ntkscore
from ntkscore.cli import options as o
from ntkscore.cli.display import duration, interruptible, print_frame, stderr
from ntkscore.data.images import load_images
from ntkscore.errors import InputError
from ntkscore.run import devices
from ntkscore.space import Space
from ntkscore.training.recipe import Recipe


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
        ),
    ] = None,
    plot: o.Plot = None,
    *,
    recipe: Recipe,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = "table",
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
    if format == "table":
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
        str, typer.Argument(help="A run that scored the networks, or `recorded`.", metavar=o.PLACE)
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
    format: o.OutputFormat = "table",
) -> None:
    """Train networks of a run one by one, each chosen by the results so far. Resumes."""
    from ntkscore.api.prediction import Campaign
    from ntkscore.run.cluster import connected
    from ntkscore.spaces import space_in
    from ntkscore.training.few import CHOOSES, DIVERGED, PENDING, Entry, FewTrainings, train_few
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
