"""Parity files: weights, images, and the results of an independent float64 implementation.

A file holds the weights of one cell under NAS-Bench-201's names, a few images of CIFAR-10, and
logits, gradients, attacked images and kernels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from attacks.lazy import PyTree, jax, jnp
from cells.nasbench201.cell import Cell
from cells.nasbench201.space import NASBench201
from ntkscore.data.datasets import DATASETS
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.results.checkpoints import load_npz
from ntkscore.verify import reference


def load_parity(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a parity file.

    Raises:
        InputError: if it cannot be read, or lacks an array of every parity file.
    """
    expected = f"a parity file (.npz) at {path}"
    arrays = load_npz(path, expected, "check the path, or get the file again")
    needed = {"arch_str", "channels", "cells_per_stage", "num_classes", *reference.ARRAYS}
    needed |= reference.KERNELS.keys()
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


@dataclass(frozen=True)
class Reference(reference.Reference):
    """A parity file with its cell, and its network's variables from the file's weights.

    Attributes:
        space: NAS-Bench-201's class.
        cell: of the file.
        variables: the weights, and statistics that nothing has measured.
    """

    space: type[NASBench201]
    cell: Cell
    variables: Mapping[str, PyTree]

    @classmethod
    def of(
        cls, space: type[NASBench201], arrays: Mapping[str, np.ndarray], dtype: DTypeLike
    ) -> "Reference":
        """The reference in this precision, which must be enabled in JAX."""
        from cells.nasbench201.checkpoints import read_state_dict  # which imports JAX

        cell = Cell.parse(str(arrays["arch_str"]))
        state = {
            name.removeprefix("state_dict/"): value
            for name, value in arrays.items()
            if name.startswith("state_dict/")
        }
        variables = read_state_dict(state, cell, space(**sizes_of(arrays)))
        cast = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), variables)
        return cls(arrays, dtype, space, cell, cast)

    def model(self, bn: str = "calibrated") -> Model:
        """The network in a normalisation mode, with statistics of the file's clean images."""
        variables = jax.tree.map(jnp.asarray, dict(self.variables))
        space = self.space(**sizes_of(self.arrays), bn=bn)
        code = jnp.asarray(space.encode(self.cell))
        return space.model((), variables, code, self.images)
