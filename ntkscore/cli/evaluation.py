"""The command that evaluates a trained network."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ntkscore.cli import options as o
from ntkscore.cli.display import Format, interruptible, print_frame, stderr
from ntkscore.data.datasets import DATASETS
from ntkscore.data.images import ImageSet, load_images
from ntkscore.errors import InputError
from ntkscore.run import devices
from ntkscore.space import Space
from ntkscore.text import format_rho, parse_fraction

if TYPE_CHECKING:
    import pandas as pd

    from ntkscore.training.runs import TrainedNetwork


def evaluate(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder that `train` left, a NAS-Bench-201 state dict (.pth, .npz), or a Python "
            "file with a function networks(images), which returns your own networks by name."
        ),
    ],
    cell: Annotated[str | None, typer.Option(help="Cell of a state dict.")] = None,
    data: Annotated[str | None, typer.Option(help="Images; those of the run if left out.")] = None,
    data_dir: o.DataDir = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="How many images to evaluate on; all if left out.")
    ] = None,
    queries: Annotated[
        int,
        typer.Option(min=0, help="Queries of the Square attack, 5000 in the paper; 0 for none."),
    ] = 0,
    corruptions: Annotated[
        Path | None, typer.Option(help="Folder with CIFAR-10-C; left out if not given.")
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help="Instead of the paper's attacks autoattack, autoattack-plus, or one of apgd-ce, "
            "apgd-dlr, apgd-margin, apgd-t, pgd, cw, fab, fab-t, fmn, square. "
            "A stopped one goes on."
        ),
    ] = None,
    norm: Annotated[
        str | None, typer.Option(help="Norm of --attack: linf, l2 or l1; linf if left out.")
    ] = None,
    rho: Annotated[
        list[str] | None,
        typer.Option(
            help="Radius of --attack, such as 8/255; repeatable. 8/255 in linf, 0.5 in l2 and 12 "
            "in l1 if left out."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for what --attack has done; the run's own if left out."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Also draw the accuracy by radius: a .png, .svg or .pdf file."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the attacks.")] = 0,
    export: Annotated[
        Path | None,
        typer.Option(help="Also write the weights as a NAS-Bench-201 state dict (.npz)."),
    ] = None,
    *,
    space_name: o.SpaceName = None,
    space: Space,
    format: o.OutputFormat = "table",
) -> None:
    """Print accuracies of a trained network: clean, attacked, and signs of masked gradients."""
    import pandas as pd

    from ntkscore.explore.pictures import check_picture
    from ntkscore.results.atomic import publish, writing_to
    from ntkscore.training.evaluation import evaluate as ask
    from ntkscore.training.sources import trained_networks

    if export is not None and export.suffix != ".npz":
        raise InputError("a name that ends in .npz after --export", export, "name one")
    check_picture(plot)
    own = {"--rho": rho, "--norm": norm, "--out": out, "--plot": plot}
    if attack is None and (given := [name for name, value in own.items() if value is not None]):
        raise InputError(f"--attack beside {', '.join(own)}", given[0], "add --attack NAME")
    papers = {"--queries": queries or None, "--corruptions": corruptions}
    if attack and (given := [name for name, value in papers.items() if value is not None]):
        raise InputError(
            f"--attack without {' and '.join(papers)}, which are of the paper's attacks",
            given[0],
            "leave one of them out",
        )
    devices.keep_compiled()
    networks = trained_networks(
        source, cell, space, partial(load_images, data or "cifar10", data_dir)
    )
    run = networks.run
    images = networks.images if run is None else _images_for(run, source, data, data_dir)
    images = replace(images, images=images.images[:rows], labels=images.labels[:rows])
    if export is not None:
        if run is None:
            raise InputError(
                "a folder of a run to export", "a state dict already", "name what `train` left"
            )
        with writing_to(export.parent):
            for place, (columns, _) in enumerate(networks.pairs):
                numbered = export.with_name(f"{export.stem}-{columns['seed']}{export.suffix}")
                run.write_weights(numbered if place else export, place)
    if attack is not None:
        radii = [None] if rho is None else [parse_fraction(text) for text in rho]
        folder = out or (source / "attacks" if source.is_dir() else None)
        _attack(networks.pairs, images, attack, radii, norm or "linf", seed, folder, plot, format)
        return
    found = []
    for columns, model in networks.pairs:
        with stderr.status("clean") as status:
            frame = ask(
                model,
                images.images,
                images.labels,
                queries=queries,
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
        publish(source / "evaluation.csv", frame.to_csv(index=False).encode())


def _attack(
    pairs: Sequence[tuple[dict[str, Any], Any]],
    images: ImageSet,
    attack: str,
    radii: Sequence[float | None],
    norm: str,
    seed: int,
    folder: Path | None,
    plot: Path | None,
    format: Format,
) -> None:
    """Attack networks at radii, print their accuracies, and keep them with a claim of each."""
    import pandas as pd

    from ntkscore.explore.pictures import security_picture
    from ntkscore.results.atomic import publish
    from ntkscore.training.robustness import RADII, claim, robustness

    rows = []
    for columns, model in pairs:
        for radius in radii:
            rho = RADII.get(norm, 0.0) if radius is None else radius
            names = [str(next(iter(columns.values())))]
            names += [str(columns["seed"])] if columns.get("seed", -1) >= 0 else []
            name = "-".join([*names, attack, norm, format_rho(rho).replace("/", "-")])
            kept = None if folder is None else folder / name
            leaves = lambda kept=kept: f"what is done is in {kept}"  # noqa: E731
            stop = nullcontext() if kept is None else interruptible(leaves)
            with stop, stderr.status("compiling") as status:

                def report(at: str, done: int, of: int, right: float, status: Any = status) -> None:
                    status.update(f"{at}: {done} of {of} images, accuracy {right:.1%}")

                how: dict[str, Any] = {"seed": seed, "out": kept, "report": report}
                found = robustness(model, images.images, images.labels, attack, rho, norm, **how)
            for after, accuracy in found.accuracies.items():
                same = {"attack": attack, "norm": norm, "rho": rho}
                rows.append({**columns, **same, "after": after, "accuracy": accuracy})
            for flag in found.flags:
                stderr.print(Text("doubtful:", "yellow"), flag, soft_wrap=True)
            if kept is not None:
                made = claim(found, rho, norm, names[0], images.name, attack)
                text = json.dumps(made, indent=2)
                publish(kept / "claim.json", text.encode())
                publish(kept / "right.csv", pd.DataFrame(found.right).to_csv().encode())
    frame = pd.DataFrame(rows)
    note = "" if folder is None else f"which images are right, and claims: {folder}"
    shown = frame.drop(columns="string", errors="ignore") if format == "table" else frame
    print_frame(shown, format, f"Accuracies on {len(images.labels)} images of {images.name}", note)
    if plot is not None:
        security_picture(frame, plot)
        stderr.print(f"drawn in {plot}", soft_wrap=True)


def _print_accuracies(frame: "pd.DataFrame", name: str, format: Format) -> None:
    """Print what a network reaches on some images; a table leaves out single classes."""
    from ntkscore.training.evaluation import CHECKS

    if format != "table":
        print_frame(frame, format)
        return
    shown = frame[frame["class"] == -1].drop(
        columns=["class", "severity", "string"], errors="ignore"
    )
    signs = {name: text for name, text in CHECKS.items() if (shown["metric"] == name).any()}
    notes = [f"{name}: {text} (1 if so)" for name, text in signs.items()]
    print_frame(shown, format, f"Accuracies on {name}", "\n".join(notes))


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
