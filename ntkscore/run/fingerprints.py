"""Fingerprints of the functions behind a run's numbers.

A configuration names an attack or a measure; another function under the same name gives others.
"""

import dataclasses
import dis
import functools
import hashlib
import inspect
import platform
import sys
import sysconfig
from collections.abc import Mapping, Set
from contextlib import suppress
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ntkscore.config import Config
from ntkscore.kernels.attacks import ATTACKS
from ntkscore.kernels.readouts import READOUTS
from ntkscore.measures import MEASURES
from ntkscore.registry import packages
from ntkscore.space import Space

BUILT_IN = "built in"
NUMBERS = ("draw", "model", "shape", "encode")
"""The methods of a space that decide its networks' numbers."""
_NAMED = type | ModuleType | FunctionType | BuiltinFunctionType | np.ufunc
_PARTS: dict[type, tuple[str, ...]] = {
    CodeType: ("co_code", "co_names", "co_consts"),
    functools.partial: ("func", "args", "keywords"),
    MethodType: ("__func__", "__self__"),
    property: ("fget",),
    functools.cached_property: ("func",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
}
_MOVED = {
    "ntkscore.space": "cells.space",
    "ntkscore.options": "cells.options",
    "ntkscore.task": "cells.tasks",
    "ntkscore.names": "cells.names",
    "ntkscore.measures.activations": "ntkscore.measures.inside",
    "ntkscore.measures.forward_pass": "ntkscore.measures.forward",
    "ntkscore.measures.registry": "ntkscore.measures.declaration",
    "ntkscore.measures.report": "ntkscore.measures.reading",
    "ntkscore.trace.activations": "ntkscore.trace.inside",
    "ntkscore.trace.receptive_field": "ntkscore.trace.field",
    "ntkscore.trace.weight_uses": "ntkscore.trace.contributions",
}
"""Modules by the names that they had when runs recorded them first."""
_INSTALLED = (sysconfig.get_paths()["stdlib"], "site-packages", "dist-packages")
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_WRITTEN = ("__call__", "__init__", "__new__", "__post_init__")


def functions_of(space: Space, config: Config) -> dict[str, Any]:
    """Fingerprints of a space's networks, and of what a config names, as plain values.

    These are its attack, its reading of the logits, and every measure that it takes.
    """
    measures = {n: m for n, m in MEASURES.items() if config.proxies or not m.of.own_passes}
    return {
        "space": fingerprint(*_methods(type(space))),
        "attack": fingerprint(ATTACKS[config.attack]),
        "output": fingerprint(READOUTS[config.output]),
        "measures": {
            n: fingerprint(m.value, m.of.compute, m.of.on_host) for n, m in measures.items()
        },
    }


def _methods(space: type[Space]) -> list[object]:
    """What decides the networks of a space: four methods, and all that it has beside a `Space`."""
    options = {field.name for field in dataclasses.fields(space)}
    others = {*dir(Space), *options} - {*NUMBERS}
    added = [
        vars(cls)[name]
        for cls in space.__mro__
        for name in sorted(vars(cls).keys() - others)
        if not _is_installed(cls) and not name.startswith("__")
    ]
    return [*(inspect.getattr_static(space, name) for name in NUMBERS), *added]


def fingerprint(*functions: object) -> str:
    """`built in` for what packages that are installed define, else a digest.

    It is of the compiled code, of the numbers, texts and arrays that it refers to, and of one's own
    functions and classes that it calls; comments, names of files and line numbers change nothing.

    Example:
        >>> from functools import partial
        >>> fingerprint(len, np.sum)
        'built in'
        >>> fingerprint(partial(pow, 2)) == fingerprint(partial(pow, 2))
        True
        >>> fingerprint(partial(pow, 2)) == fingerprint(partial(pow, 3))
        False
    """
    if all(each is None or _is_installed(each) for each in functions):
        return BUILT_IN
    seen: list[Any] = []
    found = hashlib.sha256(repr(_plain(functions, seen)).encode()).hexdigest()[:16]
    if not any(isinstance(each, CodeType) for each in seen):
        return found
    # Another Python compiles the same function to other code.
    return f"{found} in Python {'.'.join(platform.python_version_tuple()[:2])}"


def _is_installed(value: object) -> bool:
    """Whether a function, class or module is Python's, ours, or an installed package's."""
    if not isinstance(value, _NAMED) and not hasattr(value, "__wrapped__"):
        return False
    name = getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None)
    executed = name == "builtins" and hasattr(value, "__code__")
    if not isinstance(name, str) or name == "__main__" or executed:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return name.split(".")[0] in sys.stdlib_module_names
    return name.split(".")[0] in packages() or any(part in file for part in _INSTALLED)


def _plain(value: Any, seen: list[Any]) -> Any:
    """A value in texts and lists, equal for what computes the same; what was seen comes once."""
    plain = functools.partial(_plain, seen=seen)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, tuple):
        return [*map(plain, value)]
    if isinstance(value, Set):
        return sorted(map(str, map(plain, value)))
    if _is_installed(value):
        if isinstance(value, ModuleType):
            return value.__name__
        module = str(getattr(value, "__module__", ""))
        return f"{_MOVED.get(module, module)}.{getattr(value, '__qualname__', value.__name__)}"
    if any(value is each for each in seen):
        return "again"
    seen.append(value)
    for kind, names in _PARTS.items():
        if isinstance(value, kind):
            return [*map(plain, (getattr(value, name) for name in names))]
    if isinstance(value, FunctionType):
        code = value.__code__
        if value.__doc__ is not None and code.co_consts[:1] == (value.__doc__,):
            code = code.replace(co_consts=(None, *code.co_consts[1:]))
        return [*map(plain, (code, value.__defaults__, value.__kwdefaults__, _used(value)))]
    if isinstance(value, type):
        own = {n: v for n, v in vars(value).items() if n in _WRITTEN or not n.startswith("__")}
        return [plain(value.__bases__), plain(own)]
    if isinstance(value, list):
        return [*map(plain, value)]
    if isinstance(value, Mapping):
        pairs = [(str(plain(key)), plain(each)) for key, each in value.items()]
        return sorted(pairs, key=lambda pair: pair[0])
    if hasattr(value, "__array__") and not isinstance(value, ModuleType):
        from ntkscore.results.checkpoints import fingerprint as digest  # and with it JAX

        with suppress(Exception):  # such as JAX's keys, which are no numbers
            return digest([value])
    if hasattr(value, "__wrapped__"):  # such as what `jax.jit` gives
        return plain(value.__wrapped__)
    return [plain(type(value)), plain(getattr(value, "__dict__", None))]


def _used(function: FunctionType) -> dict[str, Any]:
    """What a function refers to by name outside of itself, as far as that has a value now."""
    names: set[str] = set()
    outside: set[str] = set()  # without attributes, which may have the name of a global value
    for code in (pending := [function.__code__]):
        names |= {*code.co_names}
        outside |= {i.argval for i in dis.get_instructions(code) if i.opname in _LOADS}
        pending += [each for each in code.co_consts if isinstance(each, CodeType)]
    found = {name: function.__globals__[name] for name in outside & function.__globals__.keys()}
    for name, value in [*found.items()]:
        if isinstance(value, ModuleType) and not _is_installed(value):
            found[name] = {n: each for n, each in vars(value).items() if n in names}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not filled yet
            found[name] = cell.cell_contents
    found.pop("__class__", None)  # where a method says `super`
    return found
