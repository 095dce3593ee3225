"""Description of a benchmark table's published format, and the reading of its JSON."""

import hashlib
import json
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ntkscore.data.datasets import Source, altered
from ntkscore.errors import InputError

FETCH = "run `ntkscore fetch nas-robbench-201`"
"""Advice to a person who has no table yet."""

Column = tuple[str, str, int | None]
"""Data set, metric and training seed; None for the mean over seeds."""


class Parsed(NamedTuple):
    """A table as a format's parser finds it, with values still to be checked.

    Attributes:
        columns: data set, metric and seed of every column.
        rows: a value per column, by the key of an architecture, in the order of the table.
        targets: for an architecture without results of its own, the key of the one whose it has.
    """

    columns: list[Column]
    rows: dict[Hashable, list[Any]]
    targets: dict[Hashable, Hashable]


@dataclass(frozen=True)
class TableFormat:
    """One form that a benchmark table is published in.

    Attributes:
        name: which table it is, and in which of its forms.
        files: names that its file has in a folder, the best first.
        recognises: tells from the content of a JSON file whether it has this form.
        parse: takes such content and the file's path, and raises `InputError` if it was altered.
        source: where to download it; None where there is no free download.
        remedy: what else may help if an architecture is not in such a table, or "".
    """

    name: str
    files: tuple[str, ...]
    recognises: Callable[[dict[str, Any]], bool]
    parse: Callable[[dict[str, Any], Path], Parsed]
    source: Source | None = None
    remedy: str = ""


def read_json(path: Path, variable: str) -> tuple[Any, str]:
    """Read a JSON file, or JavaScript that assigns JSON to a variable.

    Args:
        path: the file.
        variable: name of the variable.

    Returns:
        The content, and the SHA-256 of the file in hexadecimal.

    Raises:
        InputError: if there is no such file or it holds something else.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"expected a readable file at {path}, but reading it failed ({error.strerror}): "
            f"{FETCH} or give another path"
        ) from error
    try:
        text = re.sub(rf"^\s*{variable}\s*=", "", raw.decode("utf-8")).rstrip().removesuffix(";")
        return json.loads(text), hashlib.sha256(raw).hexdigest()
    except (ValueError, RecursionError) as error:
        raise altered(
            path, f"JSON, or '{variable}=' and JSON,", f"something else ({error})"
        ) from error


def metric_name(name: str) -> str:
    """The one name of a metric, whatever its spelling; an unknown one in lower case.

    Example:
        >>> metric_name("clean"), metric_name("pgd8"), metric_name("AA")
        ('val_acc', 'val_pgd_8_acc', 'autoattack')
    """
    key = name.strip().lower()
    if key in ("clean", "acc", "accuracy", "val_acc"):
        return "val_acc"
    if key in ("aa", "auto_attack", "auto-attack", "autoattack"):
        return "autoattack"
    match = re.fullmatch(r"(?:val_)?(fgsm|pgd)[-_]?(\d+)(?:\.0)?(?:/255)?(?:_acc)?", key)
    return "val_{}_{}_acc".format(*match.groups()) if match else key
