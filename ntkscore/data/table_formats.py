"""Benchmark tables in files: the known formats, told apart by content, and checked."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntkscore.data.datasets import altered
from ntkscore.data.robbench import OFFICIAL, OLDER, PAGE
from ntkscore.data.table_files import FETCH, Column, TableFormat, read_json
from ntkscore.errors import InputError

FORMATS: tuple[TableFormat, ...] = (OFFICIAL, PAGE, OLDER)
"""All formats; a new entry is all that a new one needs. In a folder, the first found is read."""


@dataclass(frozen=True)
class TableFile:
    """Content of a table file.

    Attributes:
        form: the format it was read by.
        checksum: SHA-256 of the file, in hexadecimal.
        columns: data set, metric and seed of every column.
        rows: the accuracies, as fractions, of every architecture that has its own.
        targets: for every other one, the one in `rows` that it is taken to be isomorphic to.
    """

    form: TableFormat
    checksum: str
    columns: list[Column]
    rows: Mapping[Hashable, list[float]]
    targets: Mapping[Hashable, Hashable]


def find_table(folder: Path) -> Path:
    """Find the best file in a folder that has the name of a table.

    Raises:
        InputError: if there is none.
    """
    names = [name for form in FORMATS for name in form.files]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise InputError(
        f"expected one of {', '.join(names)} in {folder}, but none is there: "
        f"{FETCH} or give the file's own path"
    )


def read_table(path: Path) -> TableFile:
    """Read and check a table in any of its published formats, told apart by their content.

    Args:
        path: the table; the official one may have `meta.json` beside it.

    Returns:
        The checked content.

    Raises:
        InputError: if there is no such file, or it is truncated or altered.
    """
    content, checksum = read_json(path, "acc")
    if not isinstance(content, dict):
        raise altered(path, "a table of accuracies", f"a {type(content).__name__}")
    form = next((form for form in FORMATS if form.recognises(content)), None)
    if form is None:
        names = ", ".join(form.name for form in FORMATS)
        raise altered(path, f"a table of accuracies in a known form ({names})", "another form")
    columns, rows, targets = form.parse(content, path)
    if len(set(columns)) < len(columns):
        raise altered(path, "different names for all columns", "one name twice")
    _check_values(rows, len(columns), path)
    measured = {key: row for key, row in rows.items() if targets.get(key, key) == key}
    astray = [target for target in targets.values() if target not in measured]
    if astray or not measured:
        came = f"a pointer to {astray[0]}, which has none" if astray else "no cells"
        raise altered(path, "cells with results of their own", came)
    others = {key: target for key, target in targets.items() if key not in measured}
    return TableFile(form, checksum, columns, measured, others)


def _check_values(rows: Mapping[Hashable, list[Any]], width: int, path: Path) -> None:
    for key, row in rows.items():
        if len(row) != width:
            raise altered(path, f"{width} accuracies per cell", f"{len(row)} for cell {key}")
        for value in row:
            # Written so that it also refuses NaN, which Python's JSON lets through.
            if type(value) not in (int, float) or not 0 <= value <= 1:
                raise altered(path, "accuracies in [0, 1]", f"{value!r} for cell {key}")
