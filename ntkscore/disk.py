"""Arrays on disk, where memory does not hold them."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ntkscore.errors import InputError


def _saved(array: Array, path: Path) -> Callable[[], np.ndarray]:
    """Write an array to a file that others may be in; return the function that reads it."""
    try:
        with path.open("ab") as file:
            offset = file.tell()
            file.write(np.ascontiguousarray(array).tobytes())
    except OSError as error:
        raise InputError(
            f"room for {array.nbytes:,} bytes more in {path.parent}",
            error,
            "set TMPDIR to a folder on a larger disk",
        ) from error
    shape, dtype, size = array.shape, array.dtype, array.nbytes

    def read() -> np.ndarray:
        # Bytes, since NumPy's files do not know bfloat16.
        return np.fromfile(path, np.uint8, size, offset=offset).view(dtype).reshape(shape)

    return read


def from_disk(factors: Any) -> Any:
    """Factors of a block in memory."""
    return jax.tree.map(lambda each: each() if callable(each) else each, factors)


@contextmanager
def keeper(memory: int, points: int) -> Iterator[Callable[[Any, int], Any]]:
    """A function that keeps the factors of a block of points until the end: on disk if need be."""
    with tempfile.TemporaryDirectory(prefix="ntkscore-") as folder:
        # One file for all: systems limit how many are open at once.
        save = partial(_saved, path=Path(folder) / "factors")

        def keep(factors: Any, size: int) -> Any:
            each = sum(leaf.nbytes for leaf in jax.tree.leaves(factors)) / size
            return factors if each * points <= memory else jax.tree.map(save, factors)

        yield keep
