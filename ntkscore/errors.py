"""The one error that a user is meant to read."""

import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

UNREADABLE = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)
"""What numpy raises where a file of arrays is damaged or absent."""


class InputError(ValueError):
    """Input from outside cannot be used.

    Its text is one sentence. The command line prints it and exits with code 2.

    Attributes:
        expected: what should have come.
        got: what came, or a clause that begins with `but`.
        remedy: what to do.

    Example:
        >>> from cells.nasbench201 import Cell
        >>> try:
        ...     Cell.parse("32313")
        ... except InputError as error:
        ...     print(error.expected, error.got, str(error).partition(";")[0], sep="\\n")
        a cell index from 0 to 15624, or six digits such as 323133
        32313
        expected a cell index from 0 to 15624, or six digits such as 323133, got 32313
    """

    def __init__(self, expected: str, got: object, remedy: str) -> None:
        super().__init__(expected, got, remedy)
        self.expected, self.got, self.remedy = expected, got, remedy

    def __str__(self) -> str:
        came = self.got if str(self.got).startswith("but ") else f"got {self.got}"
        return f"expected {self.expected}, {came}; {self.remedy}"


def check_choice(given: object, choices: Collection[str], what: str = "") -> None:
    """Refuse what is not one of some names; `what` says what it should be."""
    if given not in choices:
        be = f"{what} to be " if what else ""
        names = ", ".join(choices)
        raise InputError(f"{be}one of {names}", repr(given), "choose one")


def altered(path: Path, expected: str, found: str) -> InputError:
    """Return the error for a file that is not as it was published."""
    return InputError(f"{expected} in {path}", found, "get the official file again")
