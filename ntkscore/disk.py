"""Arrays on disk, where memory does not hold them."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ntkscore.errors import InputError


class _Saved:
    """An array on disk, which is no more than its place in a file."""

    def __init__(self, array: Array, path: Path) -> None:
        self.path, self.shape, self.dtype = path, array.shape, array.dtype
        try:
            with path.open("ab") as file:
                self.offset = file.tell()
                file.write(np.ascontiguousarray(array).tobytes())
        except OSError as error:
            raise InputError(
                f"room for {array.nbytes:,} bytes more in {path.parent}",
                error,
                "set TMPDIR to a folder on a larger disk",
            ) from error

    def read(self) -> np.ndarray:
        size = prod(self.shape) * self.dtype.itemsize
        # Bytes, since NumPy's files do not know bfloat16.
        values = np.fromfile(self.path, np.uint8, size, offset=self.offset)
        return values.view(self.dtype).reshape(self.shape)


def from_disk(factors: Any) -> Any:
    """Factors of a block in memory."""
    return jax.tree.map(lambda each: each.read() if isinstance(each, _Saved) else each, factors)


@contextmanager
def keeper(memory: int, points: int) -> Iterator[Callable[[Any, int], Any]]:
    """A function that keeps the factors of a block of points until the end: on disk if need be."""
    with tempfile.TemporaryDirectory(prefix="ntkscore-") as folder:
        # One file for all: systems limit how many are open at once.
        save = partial(_Saved, path=Path(folder) / "factors")

        def keep(factors: Any, size: int) -> Any:
            each = sum(leaf.nbytes for leaf in jax.tree.leaves(factors)) / size
            return factors if each * points <= memory else jax.tree.map(save, factors)

        yield keep
