"""Stages of a long computation, kept so that the same call goes on from the last one."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import PyTree

from ntkscore.errors import InputError
from ntkscore.lazy import jax
from ntkscore.results.atomic import publish, writing_to

Tree = TypeVar("Tree", bound=PyTree)
RUN = "run.json"


class Checkpoints:
    """A folder with the last stage of a computation, written whole or not at all.

    Args:
        folder: new, empty, or of an earlier call; with None nothing is kept.
        described: all that decides the numbers, as JSON types.

    Raises:
        InputError: if the folder is of another computation, or cannot be written.
    """

    def __init__(self, folder: Path | None, described: Mapping[str, Any]) -> None:
        self._manager = None
        if folder is None:
            return
        from orbax import checkpoint

        folder = self._folder = Path(folder).absolute()
        asked = json.loads(json.dumps(described))
        with writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / RUN).exists():
                _refuse_other(folder, asked)
            publish(folder / RUN, json.dumps(asked, indent=2).encode())
        options = checkpoint.CheckpointManagerOptions(
            max_to_keep=1, enable_async_checkpointing=False
        )
        self._manager = checkpoint.CheckpointManager(folder, options=options)

    def latest(self, start: Tree) -> tuple[int, Tree]:
        """The last stage and its state; stage 0 and `start` where there is none."""
        if self._manager is None or (stage := self._manager.latest_step()) is None:
            return 0, start
        from orbax.checkpoint.args import StandardRestore

        like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), start)
        try:
            return stage, self._manager.restore(stage, args=StandardRestore(like))
        except Exception as error:  # what a damaged file raises is the format's to choose
            raise InputError(
                f"expected the state after stage {stage} in {self._folder}, but it is damaged "
                f"({type(error).__name__}); choose another folder, or delete this one"
            ) from error

    def save(self, stage: int, state: PyTree) -> None:
        """Keep the state of a stage, in place of the one before."""
        if self._manager is not None:
            from orbax.checkpoint.args import StandardSave

            self._manager.save(stage, args=StandardSave(state))


def _refuse_other(folder: Path, asked: dict[str, Any]) -> None:
    try:
        stored = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"expected a run's settings, but {folder / RUN} is damaged ({error}); choose "
            "another folder"
        ) from error
    if stored != asked:
        names = [name for name in asked if stored.get(name) != asked[name]]
        raise InputError(
            f"{folder} holds a run with other settings ({', '.join(names)}); choose another folder"
        )


def fingerprint(arrays: Iterable[Any]) -> str:
    """A digest of arrays, their shapes and types.

    Example:
        >>> fingerprint([np.zeros(2)]) == fingerprint([np.zeros(3)])
        False
    """
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
