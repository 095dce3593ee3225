"""Names of architectures as people and files write them."""

import re
from collections.abc import Sequence
from numbers import Real
from typing import Any

DIGITS = "digits"
"""Heading of a column of names that are digits, whose leading zeros count."""
INDICES = ("cell", "cells", "index", "indices", "idx", "arch_index")
"""Headings of a column of names that are numbers."""


INTEGER = "0|-?[1-9][0-9]{0,17}"
"""A name in a file that is a whole number: `7`, and not `07`, where zeros may count."""


def names_of(architectures: Any) -> list[Any]:
    """Names from a sequence, an array or a series of them, or from one alone.

    Example:
        >>> names_of("323133"), names_of((2581, 0))
        (['323133'], [2581, 0])
    """
    if hasattr(architectures, "tolist"):
        architectures = architectures.tolist()
    several = isinstance(architectures, Sequence) and not isinstance(architectures, str)
    # Papers' code has architectures that are named tuples.
    several = several and not hasattr(architectures, "_fields")
    return list(architectures) if several else [architectures]


def as_text(name: Any) -> Any:
    """A name from a table as text, a whole number without decimals; an architecture as it is."""
    if isinstance(name, str):
        return re.sub(r"^(\d+)\.0+$", r"\1", name.strip())
    if isinstance(name, Real):
        number = float(name)
        return str(int(number) if number.is_integer() else name)
    return name
