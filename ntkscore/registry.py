"""Spaces and attacks by name, which installed packages declare as entry points."""

from collections.abc import Iterator, MutableMapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from ntkscore.errors import InputError

SPACES_GROUP, ATTACKS_GROUP = "ntkscore.spaces", "ntkscore.attacks"
"""Groups of entry points in a package's `pyproject.toml`."""
T = TypeVar("T")


class Registry(MutableMapping[str, T]):
    """Values by name: those of installed packages, and what a program adds.

    A package's value is imported when it is first asked for; its name needs no import.

    Args:
        group: of entry points, such as `ntkscore.spaces`.

    Example:
        >>> registry = Registry("ntkscore.attacks")
        >>> registry["none"] = lambda rho: lambda gradient, x, key: x
        >>> list(registry)
        ['fgsm', 'none', 'pgd']
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self._added: dict[str, T] = {}

    @cached_property
    def _declared(self) -> dict[str, list[EntryPoint]]:
        declared: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self.group):
            declared.setdefault(point.name, []).append(point)
        return declared

    def __getitem__(self, name: str) -> T:
        if name in self._added:
            return self._added[name]
        point, *others = self._declared[name]
        if any(other.value != point.value for other in others):
            places = ", ".join(each.value for each in (point, *others))
            raise InputError(
                f"expected one {name} of {self.group}, got {places}; uninstall all packages but one"
            )
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"expected {name} of {self.group} at {point.value}, got {error}; install its "
                "package again, or take another package of that name off the path"
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

    def is_declared(self, name: str) -> bool:
        """Whether a name has the value that an installed package declares."""
        return name in self._declared and name not in self._added


@cache
def packages() -> tuple[str, ...]:
    """This package, and those whose spaces and attacks it finds, by their top-level names."""
    points = (*entry_points(group=SPACES_GROUP), *entry_points(group=ATTACKS_GROUP))
    return tuple(sorted({"ntkscore", *(point.module.partition(".")[0] for point in points)}))
