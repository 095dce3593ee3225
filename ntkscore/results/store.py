"""Where the files of a result set lie: in a folder, or in object storage under a URL."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ntkscore.errors import InputError
from ntkscore.paths import place
from ntkscore.results.atomic import create, make_folder, publish, remove_stale, writing_to
from ntkscore.text import one_line


@dataclass(frozen=True)
class Folder:
    """The files of a folder, which is made with the first; a run writes every `part_seconds`."""

    part_seconds: ClassVar[float] = 2.0
    place: Path

    def names(self) -> list[str]:
        """The names of its files, none where there is no such folder."""
        with writing_to(self.place):
            return os.listdir(self.place) if self.place.is_dir() else []

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """The content of files by name; a FileNotFoundError where one is missing."""
        return {name: self._read(self.place / name) for name in names}

    def write(self, name: str, content: bytes) -> None:
        """Make a file appear whole, in place of one with its name."""
        publish(self.place / name, content)

    def delete(self, names: Sequence[str]) -> None:
        """Delete files; one that is not there is none to delete."""
        with writing_to(self.place):
            for name in names:
                (self.place / name).unlink(missing_ok=True)

    def create(self, name: str, content: bytes) -> None:
        """Write a file unless there is one with its name; makes the folder."""
        make_folder(self.place)
        with writing_to(self.place):
            remove_stale(self.place)
            create(self.place / name, content)

    @staticmethod
    def _read(path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise InputError(
                "a readable file",
                f"but {path} cannot be read ({error.strerror})",
                "mend its permissions and run the same command again",
            ) from error


@dataclass(frozen=True)
class Bucket:
    """The objects below a URL such as `s3://bucket/run`, through fsspec.

    An object that is written appears whole or not at all, so there are no temporary ones. Parts are
    written less often than in a folder: many small objects are slow to read.
    """

    part_seconds: ClassVar[float] = 60.0
    place: str

    def names(self) -> list[str]:
        """The names of its objects, none where there is no such place."""
        with self._reached():
            # What other processes wrote a moment ago counts.
            self._fs.invalidate_cache()
            try:
                paths = self._fs.ls(self._root, detail=False)
            except FileNotFoundError:
                return []
            paths = [path.rstrip("/") for path in paths]
            return [path.rpartition("/")[2] for path in paths if path != self._root]

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """The content of objects by name, many at a time; raises as `Folder.read` does."""
        with self._reached(FileNotFoundError):
            found = self._fs.cat(self._paths(names)) if names else {}
            return dict(zip(names, map(found.__getitem__, self._paths(names)), strict=True))

    def write(self, name: str, content: bytes) -> None:
        """Make an object appear whole, in place of one with its name."""
        with self._reached():
            self._fs.pipe_file(*self._paths([name]), content)

    def create(self, name: str, content: bytes) -> None:
        """Write an object unless there is one with its name."""
        with suppress(Exception):  # Each store says in its own words that it has or cannot.
            self._fs.pipe_file(*self._paths([name]), content, mode="create")
            return
        if name not in self.names():
            self.write(name, content)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; one that is not there is none to delete."""
        paths = self._paths(names)
        with self._reached():
            try:
                self._fs.rm(paths)
            except FileNotFoundError:  # Some stores delete none where one is missing.
                for path in paths:
                    with suppress(FileNotFoundError):
                        self._fs.rm_file(path)

    def _paths(self, names: Sequence[str]) -> list[str]:
        return [f"{self._root}/{name}" for name in names]

    @property
    def _root(self) -> str:
        return self._opened[1]

    @property
    def _fs(self) -> Any:
        return self._opened[0]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        """The file system, and the path of the URL in it."""
        scheme = self.place.partition(":")[0]
        try:
            import fsspec

            found, root = fsspec.url_to_fs(self.place)
        except ImportError as error:
            ours = scheme == "s3" or error.name == "fsspec"
            how = "run pip install 'ntkscore[cloud]'" if ours else "install what it names"
            raise InputError(
                f"the packages that {scheme}:// needs",
                f"but they are not installed ({one_line(error)})",
                how,
            ) from error
        except ValueError as error:
            raise InputError(
                "a folder or a URL that fsspec knows",
                f"{self.place} ({one_line(error)})",
                "write for example s3://bucket/run",
            ) from error
        return found, root.rstrip("/")

    @contextmanager
    def _reached(self, *passed: type[Exception]) -> Iterator[None]:
        """Turn an error of the store, other than those that are passed, into a sentence."""
        try:
            yield
        except (InputError, *passed):
            raise
        except Exception as error:  # Each store has errors of its own.
            raise InputError(
                "storage that can be reached",
                f"but {self.place} cannot be ({one_line(error) or type(error).__name__})",
                "check its name, your credentials and the network, and run the same command again",
            ) from error


@dataclass(frozen=True, eq=False, repr=False)
class Memory(Bucket):
    """The files of a run that is kept in memory; another of these is another place."""

    place: Any = None
    files: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Whoever opens this place again, opens these files.
        object.__setattr__(self, "place", self)

    def __str__(self) -> str:
        return "memory"

    def names(self) -> list[str]:
        return list(self.files)

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """The content of files by name; raises as `Folder.read` does, but for a missing one."""
        return {name: self.files[name] for name in names}

    def write(self, name: str, content: bytes) -> None:
        self.files[name] = content

    def create(self, name: str, content: bytes) -> None:
        self.files.setdefault(name, content)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.files.pop(name, None)


def store_at(directory: "str | os.PathLike[str] | Memory") -> Folder | Bucket:
    """The files of a folder, below a URL, or in memory.

    Example:
        >>> store_at("runs/mine").place.as_posix()
        'runs/mine'
    """
    if isinstance(directory, Memory):
        return directory
    chosen = place(directory)
    return Bucket(chosen) if isinstance(chosen, str) else Folder(chosen)
