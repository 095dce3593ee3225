"""Trained networks from a run's folder, or from a file of weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ntkscore.candidates import Candidates, on_images
from ntkscore.data.images import ImageSet
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.space import Space
from ntkscore.spaces import SPACES, space_class
from ntkscore.training.runs import TrainedNetwork, open_trained


class Networks(NamedTuple):
    """Networks at trained weights, one for each seed.

    Attributes:
        pairs: identifying columns of each network, and its model with running statistics.
        space: on the networks' task.
        run: of which they are; None for a file of weights.
        images: to evaluate the weights of a file on; None for a run.
    """

    pairs: list[tuple[dict[str, Any], Model]]
    space: Space
    run: TrainedNetwork | None = None
    images: Any = None


def trained_networks(
    source: Path, cell: str | None, space: Space, images: Callable[[bool], ImageSet]
) -> Networks:
    """The networks in a folder that `train` writes, or in a file (`Space.read_weights`).

    Args:
        source: the folder or the file; of a Python file with a function `networks(images)` the
            networks that it returns for images that are not held out, as `score` has them.
        space: with the sizes of a file's network; that of a run, if it is one of your own.
        images: returns the images for a file's network, by whether they are held out, as networks
            are evaluated on; a run has its own.
    """
    if source.is_dir():
        # A space of the library is read from the run, whatever its options are here.
        run = open_trained(source, None if SPACES.get(space.name) is type(space) else space)
        identity = run.space.identity(run.architecture)
        if cell is not None and run.space.parse(cell) != run.architecture:
            raise InputError(
                f"weights of {cell}",
                f"those of {run.space.key(run.architecture)} in {source}",
                "name that one",
            )
        pairs = [
            ({**identity, "seed": seed, "epochs": run.epochs}, run.model(place))
            for place, seed in enumerate(run.seeds)
        ]
        return Networks(pairs, run.space, run)
    if not source.exists():
        raise InputError(
            f"a folder that `ntkscore train` left, or a file of weights, at {source}",
            "no such file",
            "check the path",
        )
    if source.suffix == ".py":
        image_set = images(True)
        own: Any = on_images(space_class(str(source))(), images(False))
        if not isinstance(own, Candidates):
            raise InputError(
                f"a function networks(images) in {source}", f"the space {own.name}", "write it"
            )
        named = own.models.items()
        pairs = [({"network": name}, model) for name, model in named]
        return Networks(pairs, own, images=image_set)
    if cell is None:
        raise InputError(
            f"the cell that the weights in {source} are of",
            "none",
            "name it with --cell, and its sizes as for training",
        )
    image_set = images(True)
    space = space.on(image_set.task)
    parsed = space.parse(cell)
    model = space.trained_model(parsed, *space.read_weights(source, parsed))
    columns = {**space.identity(parsed), "seed": -1, "epochs": -1}
    return Networks([(columns, model)], space, images=image_set)
