"""A cache of traced programs between starts.

JAX keeps compiled code between starts, but traces the Python code of a program again, which for one
small network takes several times as long as its kernel. A traced program is kept here under a name
made of everything that it depends on: the source of this package and of those with spaces and
attacks, the versions of all libraries, JAX's own settings, what is scored and how, and the shapes
of the arrays.
"""

import dataclasses
import hashlib
import os
import sys
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from attacks.lazy import PyTree, jax
from ntkscore.platforms import is_foreign
from ntkscore.registry import packages

_folder: Path | None = None


def keep_traced(folder: Path) -> None:
    """Keep traced programs in a folder from now on, where flatbuffers is installed.

    Only for a process that runs only our code: what a caller replaces in these packages while they
    run is not part of a program's name.
    """
    global _folder
    if find_spec("flatbuffers") is not None:
        _folder = folder


def compiled(
    function: Callable[..., Any], described: tuple[Any, ...], options: dict[str, Any]
) -> Callable[..., Any]:
    """A function of a hashable value and of arrays, compiled once for each value and shapes.

    Of programs for other machines no trace is kept; they can be traced as what `jax.jit` gives.

    Args:
        function: what to compile; its arrays and results lie in tuples, lists and dicts.
        described: what it depends on besides its arguments and its code: plain values, and
            functions and dataclasses of these packages. With anything else, no trace is kept.
    """
    folder = _folder
    if folder is None or is_foreign() or jax.process_count() > 1:
        return jax.jit(function, static_argnums=0, compiler_options=options)
    return _CachedProgram(function, described, options, folder)


class _CachedProgram:
    """A function as `jax.jit` gives it, whose traces are kept in a folder."""

    def __init__(
        self,
        function: Callable[..., Any],
        described: tuple[Any, ...],
        options: dict[str, Any],
        folder: Path,
    ) -> None:
        self._function, self._folder = function, folder
        self._described, self._options = described, options
        self._programs: dict[Hashable, Any] = {}

    def __call__(self, static: Hashable, *arrays: PyTree) -> Any:
        return self._program(static, arrays)(*arrays)

    def trace(self, static: Hashable, *arrays: PyTree) -> Any:
        """As the method of what `jax.jit` gives."""
        return self._program(static, arrays).trace(*arrays)

    def _program(self, static: Hashable, arrays: tuple[PyTree, ...]) -> Any:
        leaves, tree = jax.tree.flatten(arrays)
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
        if (static, tree, shapes) not in self._programs:
            own = partial(self._function, static)
            program = jax.jit(own, compiler_options=self._options)
            # Not every program has a name, or can be written to a file on every platform.
            with suppress(ValueError, NotImplementedError):
                name = _name((static, str(tree), shapes, self._described), self._function)
                traced = _traced(self._folder / name, jax.jit(own), arrays)
                program = jax.jit(traced, compiler_options=self._options)
            self._programs[static, tree, shapes] = program
        return self._programs[static, tree, shapes]


def _traced(file: Path, function: Any, arrays: tuple[PyTree, ...]) -> Callable[..., Any]:
    """The traced function from a file, which is written first where it is missing or damaged."""
    from jax import export

    with suppress(Exception):  # whatever a damaged file makes a reader do
        return export.deserialize(bytearray(file.read_bytes())).call
    traced = export.export(function)(*arrays)
    with suppress(OSError):  # a cache that cannot be written is no reason to fail
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(traced.serialize())
        unfinished.replace(file)
    return traced.call


def _name(described: Any, function: Callable[..., Any]) -> str:
    """A file name that differs wherever something differs that the program depends on.

    Raises:
        ValueError: if it depends on something whose source is not that of these packages.
    """
    if not isinstance(function, FunctionType):
        raise ValueError(function)
    own = function.__module__, function.__qualname__, _instructions(function.__code__)
    # A setting may have another value in this thread than for the whole process.
    settings = {k: str(getattr(jax.config, k, v)) for k, v in jax.config.values.items()}
    everything = (_source(), _versions(), settings, jax.default_backend(), own, _plain(described))
    return hashlib.sha256(repr(everything).encode()).hexdigest()


def _instructions(code: CodeType) -> Any:
    """What a function's code does, whatever names its file and lines have."""
    constants = [_instructions(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code.hex(), code.co_names, constants


def _plain(value: Any) -> Any:
    """A value in terms of plain ones, whose representation identifies it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    kind = value if isinstance(value, FunctionType) else type(value)
    if kind.__module__.split(".")[0] in packages() and "<" not in kind.__qualname__:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if kind is value:
            return name
        if dataclasses.is_dataclass(value):
            fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return name, fields
    raise ValueError(value)


@lru_cache
def _versions() -> list[str]:
    """Names and versions of all libraries, since those of spaces and attacks may import any."""
    return sorted(info.name for path in sys.path for info in Path(path).glob("*-info"))


@lru_cache
def _source() -> str:
    """A digest of every module of these packages."""
    digest = hashlib.sha256()
    for package in packages():
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for file in sorted(Path(folder).rglob("*.py")):
                digest.update(file.read_bytes())
    return digest.hexdigest()
