"""The one error that a user is meant to read."""

import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

UNREADABLE = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)
"""What numpy raises where a file of arrays is damaged or absent."""


class InputError(ValueError):
    """Input from outside cannot be used.

    The message is one sentence that says what was expected, what was found and what to do;
    the command line prints it and exits with code 2.

    Example:
        >>> from cells.nasbench201 import Cell
        >>> try:
        ...     Cell.parse("32313")
        ... except InputError as error:
        ...     print(str(error).partition(";")[0])
        expected a cell index from 0 to 15624, or six digits such as 323133, got 32313
    """


def check_choice(given: object, choices: Collection[str], what: str = "") -> None:
    """Refuse what is not one of some names; `what` says what it should be.

    Raises:
        InputError: if it is not.
    """
    if given not in choices:
        be = f"{what} to be " if what else ""
        names = ", ".join(choices)
        raise InputError(f"expected {be}one of {names}, got {given!r}; choose one")


def altered(path: Path, expected: str, found: str) -> InputError:
    """Return the error for a file that is not as it was published."""
    return InputError(
        f"expected {expected} in {path}, but it has {found}: get the official file again"
    )
