"""Choices that are declared once: fields of a dataclass with their help, types and bounds."""

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from numbers import Real
from typing import Any, ClassVar

from ntkscore.errors import InputError, check_choice


def option(
    default: Any,
    help: str,
    *,
    flag: str | None = None,
    choices: Callable[[], Sequence[str]] | None = None,
) -> Any:
    """A dataclass field that is also a command-line option, with help, and a column of rows.

    Args:
        default: its value if left out.
        help: a sentence for `--help`.
        flag: the command line's name for it, without dashes; the field's own if left out.
        choices: a function that returns the allowed values, so that a registry may grow.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Sizes:
        ...     width: int = option(64, "Features of each hidden layer.")
        >>> [field.metadata["help"] for field in options(Sizes)]
        ['Features of each hidden layer.']
    """
    metadata = {"help": help, "flag": flag, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


def options(value: Any) -> tuple[dataclasses.Field, ...]:
    """The fields of a dataclass, or of an instance, that were declared with `option`."""
    return tuple(field for field in dataclasses.fields(value) if "help" in field.metadata)


def check_choices(value: Any) -> None:
    """Refuse a field that is not of its default's type, or none of its `choices`."""
    for field in options(value):
        entry = getattr(value, field.name)
        if field.default is not None and not _fits(entry, field.default):
            raise InputError(
                f"{field.name} to be of the type {type(field.default).__name__}, such as "
                f"{field.default!r}",
                repr(entry),
                "correct it",
            )
        choices = field.metadata["choices"]
        if choices is not None:
            check_choice(entry, choices(), field.name)


def _fits(entry: Any, default: Any) -> bool:
    """Whether an entry is of a default's type; of a tuple, each of its elements."""
    kind = type(default)
    if kind is tuple and default:
        return isinstance(entry, tuple) and all(_fits(each, default[0]) for each in entry)
    # Python counts truth values as integers, and an integer is as good as a float.
    return isinstance(entry, bool) == (kind is bool) and isinstance(
        entry, Real if kind is float else kind
    )


@lru_cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, by name."""
    return inspect.signature(function).parameters


class Named:
    """A dataclass of choices, whose unknown names are refused with the nearest known ones.

    Attributes:
        elsewhere: what to write for names that belong to something else.
    """

    elsewhere: ClassVar[Mapping[str, str]] = {}

    def __new__(cls, *_: Any, **choices: Any) -> Any:
        known = _parameters(cls.__init__)
        if any(each.kind is each.VAR_KEYWORD for each in known.values()):
            return super().__new__(cls)
        for name in choices:
            if name not in known:
                names = [each for each in known if each != "self"]
                near = difflib.get_close_matches(name, names, cutoff=0.7)
                raise InputError(
                    f"choices of {cls.__name__}, {', '.join(names)}",
                    repr(name),
                    cls.elsewhere.get(name) or (f"write {near[0]}" if near else "leave it out"),
                )
        return super().__new__(cls)


def check_least(value: Any, **least: int) -> None:
    """Refuse a field that is smaller than its least value, given by name."""
    for name, bound in least.items():
        if (entry := getattr(value, name)) < bound:
            raise InputError(f"{name} to be at least {bound}", entry, "raise it")
