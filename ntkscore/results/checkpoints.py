"""Stages of a long computation on disk, so that the same call goes on from the last one."""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from attacks.lazy import PyTree, jax, jnp
from ntkscore.errors import UNREADABLE, InputError
from ntkscore.results.atomic import make_folder, publish, writing_to

Tree = TypeVar("Tree", bound=PyTree)
RUN, STATE = "run.json", "state.npz"


def begin(folder: Path, described: Mapping[str, object]) -> None:
    """Write in a folder what decides a computation's numbers, unless it is there.

    Args:
        folder: new, empty, or of an earlier call.
        described: all that decides the numbers, as JSON types.

    Raises:
        InputError: if the folder is of another computation, or cannot be written.
    """
    settings, path = json.dumps(described, indent=2), folder / RUN
    make_folder(folder)
    with writing_to(folder):
        if not path.exists():
            return publish(path, settings.encode())
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                "a run's settings", f"but {path} is damaged ({error})", "choose another folder"
            ) from error
    if stored != (asked := json.loads(settings)):
        names = [name for name in asked if stored.get(name) != asked[name]]
        raise InputError(
            f"in {folder} a run with the same settings",
            f"one with others ({', '.join(names)})",
            "choose another folder",
        )


def latest(folder: Path | None, start: Tree) -> tuple[int, Tree]:
    """The last stage in a folder and its state; stage 0 and `start` where there is none.

    Raises:
        InputError: if the state is damaged.
    """
    if folder is None:
        return 0, start
    old = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    try:
        if (folder / STATE).exists():
            return _read(folder / STATE, start)
        return (max(old), _read_old(folder / str(max(old)), start)) if old else (0, start)
    except Exception as error:  # a damaged file may raise anything
        raise InputError(
            f"the state after a stage in {folder}",
            f"but it is damaged ({type(error).__name__})",
            "choose another folder, or delete this one",
        ) from error


def save(folder: Path | None, stage: int, state: PyTree) -> None:
    """Write the state of a stage, whole or not at all, in place of the one before."""
    if folder is not None:
        content = io.BytesIO()
        np.savez(content, *map(np.asarray, jax.tree.leaves(state)), stage=stage)
        publish(folder / STATE, content.getvalue())


class ArrayFolder(MutableMapping[str, dict[str, np.ndarray]]):
    """Named arrays under names, each in a file of a folder that appears whole or not at all.

    Arguments are those of `begin`.
    """

    def __init__(self, folder: Path, described: Mapping[str, object]) -> None:
        self._folder = folder
        begin(folder, described)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name.replace(' ', '-')}.npz"

    def __getitem__(self, name: str) -> dict[str, np.ndarray]:
        file = self._file(name)
        if not file.exists():
            raise KeyError(name)
        try:
            with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception as error:  # a damaged file may raise anything
            raise InputError(
                f"arrays in {file}", f"but it is damaged ({type(error).__name__})", "delete it"
            ) from error

    def __setitem__(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        publish(self._file(name), content.getvalue())

    def __delitem__(self, name: str) -> None:
        if not self._file(name).exists():
            raise KeyError(name)
        with writing_to(self._folder):
            self._file(name).unlink()

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in sorted(self._folder.glob("[!.]*.npz")))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _read(file: Path, start: Tree) -> tuple[int, Tree]:
    likes, tree = jax.tree.flatten(start)
    with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as arrays:
        stage = int(arrays["stage"])
        leaves = [arrays[f"arr_{i}"] for i in range(len(likes))]
    for i, like in enumerate(likes):
        if (leaves[i].shape, leaves[i].dtype) != (like.shape, like.dtype):
            raise ValueError("an array of another shape")
        if not isinstance(like, np.ndarray):
            leaves[i] = jnp.asarray(leaves[i])
    return stage, tree.unflatten(leaves)


def _read_old(folder: Path, start: Tree) -> Tree:
    """A state that version 0.3 wrote, by a package that flax brings."""
    from orbax.checkpoint import StandardCheckpointer

    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), start)
    return StandardCheckpointer().restore((folder / "default").absolute(), like)


def fingerprint(arrays: Iterable[ArrayLike]) -> str:
    """The SHA-256 of arrays, their shapes and types, in hexadecimal.

    Example:
        >>> fingerprint([np.zeros(2)]) == fingerprint([np.zeros(3)])
        False
    """
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def load_npz(path: str | Path, expected: str, remedy: str) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file.

    Raises:
        InputError: if it cannot be read.
    """
    try:
        # NumPy leaves a damaged file open, which it has opened itself.
        with Path(path).open("rb") as source, np.load(source, allow_pickle=False) as arrays:
            return dict(arrays)
    except (*UNREADABLE, TypeError) as error:  # a lone array is no context
        found = f"but reading it failed ({type(error).__name__}: {error})"
        raise InputError(expected, found, remedy) from error
