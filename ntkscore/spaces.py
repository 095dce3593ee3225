"""Search spaces by name, or from a Python file of your own."""

import importlib.util
import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ntkscore.candidates import Candidates, Described
from ntkscore.data.datasets import DATASETS
from ntkscore.errors import InputError
from ntkscore.options import options
from ntkscore.registry import SPACES_GROUP, Registry
from ntkscore.space import WEIGHTS, Space
from ntkscore.task import Task
from ntkscore.text import one_line

if TYPE_CHECKING:
    from ntkscore.results.result_set import ResultSet


SPACES: Registry[type[Space]] = Registry(SPACES_GROUP)
"""The search spaces of installed packages, by name."""
DEFAULT = "nasbench201"
"""Name of the space that is meant where none is named."""


def is_file(name: str) -> bool:
    """Whether a name is that of a Python file, with a space or networks of one's own."""
    return name.endswith(".py")


def default_space() -> Space:
    """The space that is meant where none is named, with its own defaults."""
    return space_class(DEFAULT)()


def space_class(name: str) -> type[Space]:
    """The class of a space, from its name or from a Python file that defines one.

    Args:
        name: of `SPACES`, or `FILE.py`, or `FILE.py:CLASS` where the file defines several. A file
            without any, but with a function `networks(images)`, is the space of the networks that
            this returns by name.
    """
    if name in SPACES:
        cls = SPACES[name]
        if not (isinstance(cls, type) and issubclass(cls, Space) and cls.name == name):
            raise InputError(
                f"a class that inherits from ntkscore.Space, named {name!r} as the entry "
                f"point of {SPACES_GROUP} is",
                repr(cls),
                "correct the package that has it",
            )
        return cls
    # A path may have colons of its own.
    file, _, wanted = name.rpartition(":") if not is_file(name) else (name, "", "")
    path = Path(file or name).expanduser()
    if path.suffix == ".py" and not path.is_file():
        raise InputError(f"a Python file at {path}", "no such file", "check the path")
    if path.suffix != ".py":
        raise InputError(
            f"a space: {', '.join(SPACES) or 'none is installed'}, or a Python file that "
            "defines one",
            repr(name),
            "choose one of these",
        )
    module = _executed(path.resolve(), path.stat().st_mtime_ns)
    defined = (v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Space))
    own = [cls for cls in defined if cls.__module__ == module.__name__]
    classes = {cls.__name__: cls for cls in own if not inspect.isabstract(cls)}
    if not own and not wanted and callable(networks := getattr(module, "networks", None)):
        return type("Networks", (Candidates,), {"made": staticmethod(networks)})
    if not wanted and len(classes) == 1:
        (wanted,) = classes
    if wanted not in classes:
        for cls in own:
            if inspect.isabstract(cls):
                raise InputError(
                    f"the space {cls.__name__} in {path} with the methods "
                    f"{', '.join(sorted(cls.__abstractmethods__))}",
                    "none of them",
                    "write them",
                )
        if not own and not wanted:
            raise InputError(
                f"networks(images), or a class that inherits from ntkscore.Space, in {path}",
                "neither",
                "write the function: it returns your networks by name",
            )
        raise InputError(
            "one class that inherits from ntkscore.Space in "
            f"{path}{f', {wanted!r}' if wanted else ''}",
            ", ".join(classes) or "none",
            "name it as FILE.py:CLASS",
        )
    if not isinstance(getattr(classes[wanted], "name", None), str):
        raise InputError(
            f"the class {wanted} in {path} to have a name for records and messages",
            "none",
            f"add a line such as name = {path.stem!r}",
        )
    return classes[wanted]


@lru_cache
def _executed(path: Path, changed: int) -> ModuleType:
    """The module of a file as it was changed last, executed once: it may register measures too."""
    name = f"space_of_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their own module up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise InputError(
            f"all that {path} imports",
            f"but {one_line(error)}",
            "install it; of another file in that folder write `import NAME`, not `from .NAME`, and "
            "put the folder on PYTHONPATH, for the workers of a cluster too",
        ) from error
    # Workers of a cluster do not have the file.
    with suppress(ImportError):
        import cloudpickle

        cloudpickle.register_pickle_by_value(module)
    return module


def recorded_space(
    configuration: Mapping[str, Any], place: object, cls: type[Space] | None = None
) -> Space:
    """The space of a run, from its configuration and, for one of your own, its class."""
    name = configuration.get("space")
    if cls is not None and cls.name != name:
        given = f"--space {name}" if name in SPACES else "the file that defines it"
        raise InputError(f"the space {name}, as in the run", cls.name, f"give {given}")
    if cls is None and name in SPACES:
        cls = space_class(str(name))
    if cls is None:
        raise InputError(
            f"a known space in {place}",
            name,
            "name the Python file that defines it with --space, or give the space",
        )
    recorded = {f.name: configuration[f.name] for f in options(cls) if f.name in configuration}
    # JSON has lists alone, and choices are hashable.
    choices: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in recorded.items()
    }
    return cls(**choices)


def known_space(run: "ResultSet", cls: type[Space] | None = None) -> Space:
    """The space of a run, on its images and classes as far as they are known.

    Without a class, networks of one's own are those that the run describes, without their weights.
    """
    found: Space
    if cls is None and WEIGHTS in run.identity and (networks := run.described()):
        of_its_name = type("Described", (Described,), {"name": run.configuration["space"]})
        found = of_its_name(networks=networks)
    else:
        found = recorded_space(run.configuration, run.directory, cls)
    images = run.configuration.get("dataset")
    task = DATASETS[images].task if images in DATASETS else None
    for session in run.sessions:
        if "num_classes" in session:
            task = Task(tuple(session["image_shape"]), session["num_classes"])
    return found if task is None else found.on(task)


def space_in(source: str | PathLike[str], cls: type[Space] | None = None) -> Space | None:
    """The space of a result directory, with its options; None where there is no run."""
    from ntkscore.results.result_set import ResultSet

    if run := ResultSet.find(source):
        return known_space(run, cls)
    return cls() if cls else None
