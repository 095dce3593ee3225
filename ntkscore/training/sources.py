"""Trained networks from wherever they lie: a run's folder, or a NAS-Bench-201 state dict."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cells.nasbench201.checkpoints import load_pth, read_state_dict
from cells.nasbench201.network import STATISTICS
from cells.nasbench201.space import NASBench201
from cells.space import Space
from ntkscore.data.images import ImageSet
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.training.runs import TrainedNetwork, open_trained


class Networks(NamedTuple):
    """Networks at trained weights, one for each seed.

    Attributes:
        columns: by network, what it is.
        models: by network, at its weights and by its running statistics.
        space: on the task that they fit.
        run: where they come from a run.
        images: of a state dict, those that it is asked about; None for a run.
    """

    columns: list[dict[str, Any]]
    models: list[Model]
    space: Space
    run: TrainedNetwork | None = None
    images: Any = None

    def pairs(self) -> Iterator[tuple[dict[str, Any], Model]]:
        """Pairs of a network's columns and its model."""
        return zip(self.columns, self.models, strict=True)


def trained_networks(
    source: Path, cell: str | None, space: Space, images: Callable[[], ImageSet]
) -> Networks:
    """The networks in a folder that `train` left, or in a state dict (.npz, .pth).

    Args:
        source: the folder or the file.
        cell: that a state dict is of.
        space: with its sizes.
        images: that a state dict's network fits; a run knows its own.

    Raises:
        InputError: if there is none, or it is of another cell or size.
    """
    if source.is_dir():
        run = open_trained(source)
        identity = run.space.identity(run.architecture)
        if cell is not None and run.space.parse(cell) != run.architecture:
            raise InputError(
                f"expected weights of {cell}, got those of "
                f"{run.space.key(run.architecture)} in {source}; name that one"
            )
        columns = [{**identity, "seed": seed, "epochs": run.epochs} for seed in run.seeds]
        models = [run.model(place) for place in range(len(run.seeds))]
        return Networks(columns, models, run.space, run)
    if cell is None or not isinstance(space, NASBench201):
        raise InputError(
            "expected the cell of NAS-Bench-201 that a state dict is of, got none; name it with "
            "--cell, and its sizes with --channels and --cells-per-stage"
        )
    given = images()
    space = space.on(given.task)
    parsed = space.parse(cell)
    state = _read(source)
    variables = read_state_dict(state, parsed, space.flax_network, running=True)
    model = space.trained_model(parsed, variables["params"], variables[STATISTICS])
    columns = {**space.identity(parsed), "seed": -1, "epochs": -1}
    return Networks([columns], [model], space, images=given)


def _read(source: Path) -> dict[str, np.ndarray]:
    if source.suffix != ".npz":
        return load_pth(source)
    try:
        with np.load(source, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError) as error:
        raise InputError(
            f"expected a state dict in {source}, but reading it failed ({error}); write it with "
            "numpy.savez"
        ) from error
