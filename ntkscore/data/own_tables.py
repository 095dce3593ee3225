"""A person's own accuracies, in a frame or a `.csv` file, checked."""

import csv
import hashlib
import io
import operator
import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ntkscore.data.datasets import dataset_name
from ntkscore.data.table_files import Column, metric_name
from ntkscore.errors import InputError


class Accuracies(NamedTuple):
    """Keys, columns and values of a checked frame.

    Attributes:
        keys: of the architectures, one per row.
        columns: data set, metric and no seed of every column.
        values: (len(keys), len(columns)) float64, fractions.
    """

    keys: list[Hashable]
    columns: list[Column]
    values: np.ndarray

    @property
    def checksum(self) -> str:
        """SHA-256 of columns, keys and values, in hexadecimal."""
        digest = hashlib.sha256(repr((self.columns, self.keys)).encode())
        digest.update(self.values.astype("<f8").tobytes())
        return digest.hexdigest()


def key_of(architecture: Hashable) -> Hashable:
    """The key of an architecture: its index if it has one, as a `Cell` does, else itself."""
    # As `isinstance(…, SupportsIndex)`, which takes twenty times as long.
    has_index = hasattr(architecture, "__index__")
    return operator.index(architecture) if has_index else architecture  # type: ignore[arg-type]


def check_frame(frame: pd.DataFrame, name: str, dataset: str | None) -> Accuracies:
    """Check a frame of accuracies; see `Table.from_frame`."""
    if frame.empty:
        raise InputError(
            f"expected at least one architecture and one metric in {name}, but a frame of shape "
            f"{frame.shape} came: add what is missing"
        )
    keys = [key_of(key) for key in frame.index]
    columns = [_column(str(column), name, dataset) for column in frame.columns]
    if frame.index.to_flat_index().hasnans or "" in keys:
        raise InputError(
            f"expected a key for every architecture in {name}, but one is missing: "
            "fill it in or leave the row out"
        )
    _refuse_doubles(keys, f"one row per architecture in {name}", "row")
    _refuse_doubles(columns, f"one column per data set and metric in {name}", "column")
    values = np.column_stack(
        [_fractions(frame.iloc[:, i], keys, name) for i in range(len(columns))]
    )
    return Accuracies(keys, columns, values)


def read_csv(path: Path) -> tuple[pd.DataFrame, str]:
    """Read accuracies from a file whose first column has the keys of the architectures.

    Args:
        path: a file with commas and a header, in UTF-8.

    Returns:
        The frame, and the SHA-256 of the file in hexadecimal. The frame's index has the keys, as
        integers if each is written like one (`7`, not `07`), else as text; its columns have the
        values, as text.

    Raises:
        InputError: if the file cannot be read, is empty or has rows of different lengths.
    """
    try:
        raw = path.read_bytes()
        text = io.StringIO(raw.decode("utf-8-sig"), newline="")
        records = [row for row in csv.reader(text, skipinitialspace=True) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(
            f"expected a readable .csv file in UTF-8 at {path}, but reading it failed "
            f"({type(error).__name__}: {error}): give another path or save it again"
        ) from error
    header, *rows = records or [[]]
    if len(header) < 2 or not rows:
        raise InputError(
            f"expected a header and rows with a key and accuracies in {path}, but {len(rows)} "
            f"rows under the header {header} came: add what is missing"
        )
    for row in rows:
        if len(row) != len(header):
            raise InputError(
                f"expected {len(header)} values in every row of {path}, as in its header, but "
                f"{row} came: correct this row"
            )
    keys = [row[0].strip() for row in rows]
    # Digits may also spell out an architecture's operations; there a leading zero counts.
    integers = all(re.fullmatch("0|-?[1-9][0-9]{0,17}", key) for key in keys)
    frame = pd.DataFrame(
        [row[1:] for row in rows],
        index=pd.Index([int(key) for key in keys] if integers else keys, name=header[0]),
        columns=[name.strip() for name in header[1:]],
    )
    return frame, hashlib.sha256(raw).hexdigest()


def _column(column: str, name: str, dataset: str | None) -> Column:
    prefix, separator, metric = column.partition("#")
    if separator:
        return dataset_name(prefix), metric_name(metric), None
    if dataset is None:
        raise InputError(
            f"expected a data set for every column of {name}, but '{column}' came without one: "
            f"call the column 'cifar10#{column}', say, or give the data set of all columns"
        )
    return dataset_name(dataset), metric_name(column), None


def _refuse_doubles(names: Sequence[Hashable], expected: str, what: str) -> None:
    seen: set[Hashable] = set()
    for name in names:
        if name in seen:
            raise InputError(f"expected {expected}, but {name!r} came twice: keep one {what}")
        seen.add(name)


def _fractions(column: pd.Series, keys: Sequence[Hashable], name: str) -> np.ndarray:
    """A column's values (len(keys),) float64, all of them in [0, 1]."""
    values = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    for key, given, value in zip(keys, column, values, strict=True):
        if np.isnan(value):
            raise InputError(
                f"expected a number for every architecture and metric of {name}, but {given!r} "
                f"came for '{column.name}' of {key!r}: fill it in or leave the row out"
            )
        if not 0 <= value <= 1:
            raise InputError(
                f"expected accuracies as fractions in [0, 1] in {name}, but {value:g} came for "
                f"'{column.name}' of {key!r}: divide percentages by 100, correct other values"
            )
    return values
