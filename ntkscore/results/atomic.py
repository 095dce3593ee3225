"""Files that appear whole or not at all, also when several processes share a directory."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ntkscore.errors import InputError
from ntkscore.paths import local

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".lock"
STALE_SECONDS = 3600.0


def publish(path: Path, content: bytes) -> None:
    """Make a file appear whole: a kill at any moment leaves a dot-temporary at most.

    Raises:
        InputError: if its folder cannot be written to.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    with writing_to(path.parent):
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def create(path: Path, content: bytes) -> None:
    """Make a file appear whole, unless there is one with its name."""
    if path.exists():
        return
    whole = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    publish(whole, content)
    try:
        os.link(whole, path)
    except FileExistsError:
        pass
    except OSError:  # Some file systems have no links; there the last of two writers counts.
        os.replace(whole, path)
    finally:
        whole.unlink(missing_ok=True)


def is_temporary(name: str) -> bool:
    """Tell whether a name is that of a file which a killed `publish` left behind."""
    return name.startswith(".") and name.endswith(".tmp")


def remove_stale(directory: Path) -> None:
    """Delete temporary files that were left behind over an hour ago.

    By age alone: process numbers mean nothing when several machines share the directory.
    """
    for path in directory.glob(".*.tmp"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()


def make_folder(directory: Path) -> None:
    """Make a directory and those above it, where they are missing."""
    with writing_to(directory):
        directory.mkdir(parents=True, exist_ok=True)


@contextmanager
def locked(directory: Path, wait: bool = True) -> Iterator[bool]:
    """Make a directory, and let one process at a time into this block.

    Args:
        wait: for the process that is in the block; without it the block is entered all the same.

    Yields:
        Whether no other process is in the block.
    """
    make_folder(directory)
    with (directory / LOCK).open("ab") as file:
        alone = True
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                alone = False
            except OSError:
                pass  # Some network file systems have no locks; there a lost update is the risk.
        yield alone


def refuse_file(directory: Path) -> None:
    """Refuse a directory that is a file, or would lie below one."""
    for place in (directory, *directory.parents):
        if place.is_file():
            raise InputError(
                f"a directory for the results at {directory}",
                f"but {place} is a file",
                "name another",
            )


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Turn an error of the file system into a sentence about the directory; refuse a URL."""
    local(directory)
    try:
        yield
    except OSError as error:
        refuse_file(directory)
        raise InputError(
            "a directory that can be written",
            f"but {directory} cannot be ({error.strerror})",
            "check its permissions and its space",
        ) from error
