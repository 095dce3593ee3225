"""NAS-Bench-201 state dicts, read into and written from the network's parameters.

A state dict has an entry for every parameter of one cell's own network under PyTorch's names and
layout: `stem.0.weight` (out, in, height, width), `cells.7.layers.2.op.1.weight`,
`classifier.weight` (class, feature). Running statistics are ignored: every mode in
`cells.nasbench201.normalization` brings its own. A leading `module.` (from data-parallel training)
is dropped.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from cells.nasbench201.cell import EDGES, KERNEL_SIZES, OPERATIONS, Cell, CellError
from cells.nasbench201.network import Network, abstract_variables, fresh_variables

Params = dict[str, Any]
IGNORED = ("running_mean", "running_var", "num_batches_tracked")


def _conv_norm(prefix: str, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The three entries of a sequence (…, convolution at 1, normalisation at 2)."""
    yield f"{prefix}.1.weight", (*path, "kernel")
    yield f"{prefix}.2.weight", (*path, "scale")
    yield f"{prefix}.2.bias", (*path, "shift")


def entries(cell: Cell, cells_per_stage: int) -> Iterator[tuple[str, tuple[str, ...], int | None]]:
    """Entries of a state dict: torch name, path in the parameters, place on their first axis."""
    yield "stem.0.weight", ("stem", "conv", "kernel"), None
    yield "stem.1.weight", ("stem", "conv", "scale"), None
    yield "stem.1.bias", ("stem", "conv", "shift"), None
    position = 0
    for stage in range(3):
        if stage:
            block = f"reduction_{stage}"
            for conv in ("conv_a", "conv_b"):
                path = (block, conv, "conv")
                for name, leaf in _conv_norm(f"cells.{position}.{conv}.op", path):
                    yield name, leaf, None
            yield f"cells.{position}.downsample.1.weight", (block, "downsample", "kernel"), None
            position += 1
        for place in range(cells_per_stage):
            for edge in range(len(EDGES)):
                operation = cell.operations[edge]
                if operation in KERNEL_SIZES:
                    path = (f"stage_{stage}", f"edge_{edge}", OPERATIONS[operation])
                    for name, leaf in _conv_norm(f"cells.{position}.layers.{edge}.op", path):
                        yield name, leaf, place
            position += 1
    yield "lastact.0.weight", ("head", "scale"), None
    yield "lastact.0.bias", ("head", "shift"), None
    yield "classifier.weight", ("head", "kernel"), None
    yield "classifier.bias", ("head", "bias"), None


def _to_jax(array: np.ndarray) -> np.ndarray:
    """An array in JAX's layout: OIHW to HWIO, (out, in) to (in, out), vectors as they are."""
    return array.transpose((2, 3, 1, 0)) if array.ndim == 4 else array.T


def _to_torch(array: np.ndarray) -> np.ndarray:
    return array.transpose((3, 2, 0, 1)) if array.ndim == 4 else array.T


def abstract_params(network: Network) -> Params:
    """The network's parameters as shapes only."""
    return abstract_variables(network)["params"]  # type: ignore[arg-type]


def read_state_dict(state: Mapping[str, Any], cell: Cell, network: Network) -> dict[str, Params]:
    """Parameters of the network for this cell, from a NAS-Bench-201 state dict.

    Weights of operations that the cell does not use are zero.

    Args:
        state: arrays (anything that numpy takes) under torch names.
        cell: the architecture that the weights belong to.
        network: of the same width, depth and number of classes.

    Returns:
        Parameters, and statistics that nothing has measured yet, as the network's `apply` takes
        them.

    Raises:
        CellError: if an entry is missing, left over, or of another shape.
    """
    state = {
        name.removeprefix("module."): value
        for name, value in state.items()
        if not name.endswith(IGNORED)
    }
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), abstract_params(network))
    for name, path, place in entries(cell, network.cells_per_stage):
        if name not in state:
            raise CellError(
                f"expected the entry {name!r} for cell {cell.digits}, got a state dict without it; "
                "check the cell and the number of cells per stage"
            )
        target = params
        for key in path:
            target = target[key]
        target = target if place is None else target[place]
        value = _to_jax(np.asarray(state.pop(name)))
        if value.shape != target.shape:
            raise CellError(
                f"expected shape {target.shape} for {name!r} (in the order of JAX), got "
                f"{value.shape}; check the channels and the number of classes"
            )
        target[...] = value
    if state:
        raise CellError(
            f"expected only the entries of cell {cell.digits}, got also {sorted(state)[0]!r} "
            f"({len(state)} left over); check the cell and the number of cells per stage"
        )
    return fresh_variables(jax.tree.map(jnp.asarray, params), network)


def write_state_dict(
    variables: Mapping[str, Any], cell: Cell, network: Network
) -> dict[str, np.ndarray]:
    """The NAS-Bench-201 state dict of this cell's own network; the inverse of `read_state_dict`."""
    state = {}
    for name, path, place in entries(cell, network.cells_per_stage):
        leaf: Array = variables["params"]
        for key in path:
            leaf = leaf[key]
        state[name] = _to_torch(np.asarray(leaf if place is None else leaf[place]))
    return state


def load_pth(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a PyTorch `.pth` state dict.

    Args:
        path: a file that holds a state dict, or a dict with one under `state_dict` or `model`.

    Raises:
        CellError: if PyTorch is not installed, or the file holds no state dict.
    """
    try:
        import torch  # type: ignore[import-not-found]
    except ImportError as error:
        raise CellError(
            f"expected PyTorch to read {path}, got no module named 'torch'; "
            "install it, or save the arrays as .npz under their torch names"
        ) from error
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        content = content.get("state_dict", content.get("model", content))
        return {name: tensor.numpy() for name, tensor in content.items()}
    except Exception as error:
        raise CellError(
            f"expected a PyTorch state dict of tensors in {path}, got {type(error).__name__}; "
            "save it again with torch.save(network.state_dict(), path)"
        ) from error
