"""NAS-Bench-201 state dicts, read into and written from the network's parameters.

A state dict has an entry for every parameter of one cell's own network under PyTorch's names and
layout: `stem.0.weight` (out, in, height, width), `cells.7.layers.2.op.1.weight`,
`classifier.weight` (class, feature). Running statistics are read and written on request, since the
modes in `cells.normalization` do not use them. A leading `module.` (from data-parallel
training) is dropped.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from cells.cell_space import STATISTICS, Variables
from cells.nasbench201.cell import KERNEL_SIZES, OPERATIONS, Cell
from cells.nasbench201.network import abstract_variables, fresh_variables
from cells.nasbench201.space import NASBench201
from ntkscore.errors import InputError
from ntkscore.results.checkpoints import load_npz

IGNORED = ("running_mean", "running_var", "num_batches_tracked")
Entry = tuple[str, tuple[str, ...], int | None]
"""A name in PyTorch, a path in the parameters, and a place on its first axis."""


def entries(cell: Cell, cells_per_stage: int) -> Iterator[Entry]:
    """Entries of a state dict."""

    def normalised(
        prefix: str, first: int, path: tuple[str, ...], place: int | None = None
    ) -> Iterator[Entry]:
        """A convolution at a place of a sequence, and the normalisation behind it."""
        yield f"{prefix}.{first}.weight", (*path, "kernel"), place
        yield f"{prefix}.{first + 1}.weight", (*path, "scale"), place
        yield f"{prefix}.{first + 1}.bias", (*path, "shift"), place

    yield from normalised("stem", 0, ("stem", "conv"))
    position = 0
    for stage in range(3):
        if stage:
            block = f"reduction_{stage}"
            for conv in ("conv_a", "conv_b"):
                yield from normalised(f"cells.{position}.{conv}.op", 1, (block, conv, "conv"))
            yield f"cells.{position}.downsample.1.weight", (block, "downsample", "kernel"), None
            position += 1
        for place in range(cells_per_stage):
            for edge, operation in enumerate(cell.operations):
                if operation in KERNEL_SIZES:
                    path = (f"stage_{stage}", f"edge_{edge}", OPERATIONS[operation])
                    yield from normalised(f"cells.{position}.layers.{edge}.op", 1, path, place)
            position += 1
    yield "lastact.0.weight", ("head", "scale"), None
    yield "lastact.0.bias", ("head", "shift"), None
    yield "classifier.weight", ("head", "kernel"), None
    yield "classifier.bias", ("head", "bias"), None


def variable_entries(cell: Cell, cells_per_stage: int, running: bool) -> Iterator[Entry]:
    """Entries with their paths in a network's variables; running statistics come last."""
    for name, path, place in entries(cell, cells_per_stage):
        yield name, ("params", *path), place
    for name, path, place in entries(cell, cells_per_stage):
        if running and path[-1] == "shift":
            # A layer's statistics are stored one level above its weights, except in the head.
            layer = path[:-1] if path[0] == "head" else path[:-2]
            for theirs, ours in (("running_mean", "mean"), ("running_var", "var")):
                yield f"{name.removesuffix('bias')}{theirs}", (STATISTICS, *layer, ours), place


def _to_jax(array: np.ndarray) -> np.ndarray:
    """An array in JAX's layout: OIHW to HWIO, (out, in) to (in, out), vectors as they are."""
    return array.transpose((2, 3, 1, 0)) if array.ndim == 4 else array.T


def _to_torch(array: np.ndarray) -> np.ndarray:
    return array.transpose((3, 2, 0, 1)) if array.ndim == 4 else array.T


def read_state_dict(
    state: Mapping[str, ArrayLike], cell: Cell, space: NASBench201, running: bool = False
) -> Variables:
    """Parameters of the network for this cell, from a NAS-Bench-201 state dict.

    Weights of operations that the cell does not use are zero.

    Args:
        state: arrays (anything that numpy takes) under torch names.
        cell: the architecture that the weights belong to.
        space: width, depth and number of classes of the network.
        running: whether running statistics are read too, as an evaluation needs them.

    Returns:
        Parameters and statistics (running ones, or mean 0 and variance 1), as a space's `model`
        takes them.

    Raises:
        InputError: if an entry is missing, left over, or of another shape.
    """
    left = {name.removeprefix("module."): value for name, value in state.items()}
    shapes = abstract_variables(space)["params"]
    blank = fresh_variables(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))
    variables = jax.tree.map(np.array, blank)
    for name, path, place in variable_entries(cell, space.cells_per_stage, running):
        if name not in left:
            raise InputError(
                f"the entry {name!r} for cell {cell.digits}",
                "a state dict without it",
                "check the cell and the number of cells per stage",
            )
        leaf = _leaf(variables, path, place)
        value = _to_jax(np.asarray(left.pop(name)))
        if value.shape != leaf.shape:
            raise InputError(
                f"shape {leaf.shape} for {name!r} (in the order of JAX)",
                value.shape,
                "check the channels and the number of classes",
            )
        leaf[...] = value
    if names := sorted(name for name in left if not name.endswith(IGNORED)):
        raise InputError(
            f"only the entries of cell {cell.digits}",
            f"also {names[0]!r} ({len(names)} left over)",
            "check the cell and the number of cells per stage",
        )
    return jax.tree.map(jnp.asarray, variables)


def _leaf(variables: Variables, path: tuple[str, ...], place: int | None) -> np.ndarray:
    """An array of a network's variables, or one of its entries."""
    leaf = reduce(getitem, path, variables)
    return leaf if place is None else leaf[place]


def write_state_dict(
    variables: Variables, cell: Cell, space: NASBench201, running: bool = False
) -> dict[str, np.ndarray]:
    """The NAS-Bench-201 state dict of this cell's own network; the inverse of `read_state_dict`."""
    return {
        name: _to_torch(np.asarray(_leaf(variables, path, place)))
        for name, path, place in variable_entries(cell, space.cells_per_stage, running)
    }


def load_state_dict(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a state dict in an `.npz` file, or in one that PyTorch wrote.

    Args:
        path: a file of PyTorch holds a state dict, or a dict with one under `state_dict` or
            `model`.

    Raises:
        InputError: if the file holds none, or PyTorch, which it needs, is not installed.
    """
    if path.suffix == ".npz":
        return load_npz(path, f"a state dict in {path}", "write it with numpy.savez")
    try:
        import torch  # type: ignore[import-not-found]
    except ImportError as error:
        raise InputError(
            f"PyTorch to read {path}",
            "no module named 'torch'",
            "install it, or save the arrays as .npz under their torch names",
        ) from error
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        content = content.get("state_dict", content.get("model", content))
        return {name: tensor.numpy() for name, tensor in content.items()}
    except Exception as error:
        raise InputError(
            f"a PyTorch state dict of tensors in {path}",
            type(error).__name__,
            "save it again with torch.save(network.state_dict(), path)",
        ) from error
