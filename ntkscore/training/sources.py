"""Trained networks from a run's folder or a NAS-Bench-201 state dict."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cells.nasbench201.checkpoints import load_pth, read_state_dict
from cells.nasbench201.network import STATISTICS
from cells.nasbench201.space import NASBench201
from cells.space import Space
from ntkscore.data.images import ImageSet
from ntkscore.errors import UNREADABLE, InputError
from ntkscore.model import Model
from ntkscore.spaces import SPACES
from ntkscore.training.runs import TrainedNetwork, open_trained


class Networks(NamedTuple):
    """Networks at trained weights, one for each seed.

    Attributes:
        pairs: identifying columns of each network, and its model with running statistics.
        space: on the networks' task.
        run: of which they are; None for a state dict.
        images: to evaluate a state dict on; None for a run.
    """

    pairs: list[tuple[dict[str, Any], Model]]
    space: Space
    run: TrainedNetwork | None = None
    images: Any = None


def trained_networks(
    source: Path, cell: str | None, space: Space, images: Callable[[], ImageSet]
) -> Networks:
    """The networks in a folder that `train` writes, or in a state dict (.npz, .pth).

    Args:
        source: the folder or the file.
        cell: of a state dict.
        space: with the sizes of a state dict's network; that of a run, if it is one of your own.
        images: returns the images for a state dict's network; a run has its own.

    Raises:
        InputError: if there is no such source, or it is of another cell or size.
    """
    if source.is_dir():
        # A space of the library is read from the run, whatever its options are here.
        run = open_trained(source, None if type(space) in SPACES.values() else space)
        identity = run.space.identity(run.architecture)
        if cell is not None and run.space.parse(cell) != run.architecture:
            raise InputError(
                f"expected weights of {cell}, got those of "
                f"{run.space.key(run.architecture)} in {source}; name that one"
            )
        pairs = [
            ({**identity, "seed": seed, "epochs": run.epochs}, run.model(place))
            for place, seed in enumerate(run.seeds)
        ]
        return Networks(pairs, run.space, run)
    if not source.exists():
        raise InputError(
            f"expected a folder that `ntkscore train` left, or a state dict, at {source}, got no "
            "such file; check the path"
        )
    if cell is None or not isinstance(space, NASBench201):
        raise InputError(
            "expected the cell of NAS-Bench-201 that a state dict is of, got none; name it with "
            "--cell, and its sizes with --channels and --cells-per-stage"
        )
    image_set = images()
    space = space.on(image_set.task)
    parsed = space.parse(cell)
    variables = read_state_dict(_read(source), parsed, space.flax_network, running=True)
    model = space.trained_model(parsed, variables["params"], variables[STATISTICS])
    columns = {**space.identity(parsed), "seed": -1, "epochs": -1}
    return Networks([(columns, model)], space, images=image_set)


def _read(source: Path) -> dict[str, np.ndarray]:
    if source.suffix != ".npz":
        return load_pth(source)
    try:
        with np.load(source, allow_pickle=False) as arrays:
            return dict(arrays)
    except UNREADABLE as error:
        raise InputError(
            f"expected a state dict in {source}, but reading it failed ({error}); write it with "
            "numpy.savez"
        ) from error
