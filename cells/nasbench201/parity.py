"""Parity files: weights, images, and the results of an independent float64 implementation.

A file holds the weights of one cell under NAS-Bench-201's names, a few images of CIFAR-10, and
logits, gradients, attacked images and kernels.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from attacks.lazy import PyTree, jax, jnp
from cells.cell_space import Variables
from cells.nasbench201.cell import Cell
from cells.nasbench201.space import NASBench201
from ntkscore.data.datasets import DATASETS
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.results.checkpoints import load_npz
from ntkscore.verify.reference import ARRAYS, KERNELS, Reference


def load_parity(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a parity file.

    Raises:
        InputError: if it cannot be read, or lacks an array of every parity file.
    """
    expected = f"a parity file (.npz) at {path}"
    arrays = load_npz(path, expected, "check the path, or get the file again")
    needed = {"arch_str", "channels", "cells_per_stage", "num_classes", *ARRAYS}
    needed |= KERNELS.keys()
    if missing := sorted(needed - arrays.keys()):
        raise InputError(
            f"the array {missing[0]!r} in the parity file {path}",
            f"a file without it ({len(missing)} missing)",
            "get the file again",
        )
    return arrays


def sizes_of(arrays: Mapping[str, np.ndarray]) -> dict[str, PyTree]:
    """Task, with CIFAR-10's normaliser, and sizes, as the space of the network takes them."""
    task = DATASETS["cifar10"].task._replace(num_classes=int(arrays["num_classes"]))
    return {"task": task, **{name: int(arrays[name]) for name in ("channels", "cells_per_stage")}}


def network_in(arrays: Mapping[str, np.ndarray]) -> tuple[Cell, Variables]:
    """The cell of a parity file; and its weights, with statistics that nothing has measured."""
    from cells.nasbench201.checkpoints import read_state_dict  # which imports JAX

    cell = Cell.parse(str(arrays["arch_str"]))
    state = {
        name.removeprefix("state_dict/"): value
        for name, value in arrays.items()
        if name.startswith("state_dict/")
    }
    return cell, read_state_dict(state, cell, NASBench201(**sizes_of(arrays)))


def reference_of(
    space_class: type[NASBench201], arrays: Mapping[str, np.ndarray], dtype: DTypeLike
) -> Reference:
    """A parity file as a reference in this precision, which must be enabled in JAX."""
    cell, variables = network_in(arrays)
    cast = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), variables)

    def model(bn: str = "calibrated") -> Model:
        space = space_class(**sizes_of(arrays), bn=bn)
        code, own = jnp.asarray(space.encode(cell)), jax.tree.map(jnp.asarray, cast)
        return space.model((), own, code, found.images)

    found = Reference(arrays, dtype, model)
    return found
