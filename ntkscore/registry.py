"""Spaces and attacks by name, which installed packages declare as entry points."""

import tomllib
from collections.abc import Iterator, MutableMapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any, TypeVar

from ntkscore.errors import InputError

SPACES_GROUP, ATTACKS_GROUP = "ntkscore.spaces", "ntkscore.attacks"
"""Groups of entry points in a package's `pyproject.toml`."""
CLONE = Path(__file__).parents[1] / "pyproject.toml"
"""Declares this package's own where it runs from a clone."""
T = TypeVar("T")


def points_of(group: str) -> list[Any]:
    """The entry points of a group, of all installed packages.

    They are `importlib.metadata`'s, or of the package importlib_metadata where it is imported.
    A clone that was not installed, or not since its own changed, has those that it declares.
    """
    points = [*_installed(group)]
    known = {(point.name, point.value) for point in points}
    own = _of_clone().get(group, {}).items()
    return points + [EntryPoint(n, value, group) for n, value in own if (n, value) not in known]


@cache
def _installed(group: str) -> EntryPoints:
    """The entry points of installed packages, of which all metadata are read for it."""
    return entry_points(group=group)


@cache
def _of_clone() -> dict[str, dict[str, str]]:
    """The entry points that a clone declares, by group; none where there is no clone."""
    if not CLONE.is_file():
        return {}
    project = tomllib.loads(CLONE.read_text(encoding="utf-8")).get("project", {})
    return project["entry-points"] if project.get("name") == "ntkscore" else {}


class Registry(MutableMapping[str, T]):
    """Values by name: of a group of entry points of installed packages, and what a program adds.

    A package's value is imported when it is first asked for; its name needs no import.

    Example:
        >>> registry = Registry("ntkscore.attacks")
        >>> registry["none"] = lambda rho: lambda gradient, x, key: x
        >>> list(registry)
        ['apgd', 'fgsm', 'none', 'pgd', 'square']
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self._added: dict[str, T] = {}

    @cached_property
    def _declared(self) -> dict[str, list[Any]]:
        declared: dict[str, list[Any]] = {}
        for point in points_of(self.group):
            declared.setdefault(point.name, []).append(point)
        return declared

    def __getitem__(self, name: str) -> T:
        if name in self._added:
            return self._added[name]
        point, *others = self._declared[name]
        if any(other.value != point.value for other in others):
            places = ", ".join(each.value for each in (point, *others))
            raise InputError(
                f"one {name} of {self.group}", places, "uninstall all packages but one"
            )
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"{name} of {self.group} at {point.value}",
                error,
                "install its package again, or take another package of that name off the path",
            ) from error

    def __setitem__(self, name: str, value: T) -> None:
        self._added[name] = value

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._declared, *self._added}))

    def __len__(self) -> int:
        return len({*self._declared, *self._added})

    def __contains__(self, name: object) -> bool:
        return name in self._added or name in self._declared


@cache
def packages() -> tuple[str, ...]:
    """This package, and those whose spaces and attacks it finds, by their top-level names."""
    points = (*points_of(SPACES_GROUP), *points_of(ATTACKS_GROUP))
    return tuple(sorted({"ntkscore", *(point.module.partition(".")[0] for point in points)}))
