"""A person's own accuracies, in a frame or a `.csv` file, checked."""

import csv
import hashlib
import io
import re
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ntkscore.data.benchmarks import Column, metric_name
from ntkscore.data.datasets import dataset_name
from ntkscore.errors import InputError
from ntkscore.names import INTEGER


def check_frame(
    frame: pd.DataFrame, keys: list[Hashable], name: str, dataset: str | None
) -> dict[Column, np.ndarray]:
    """Check a frame of accuracies; see `Table.from_frame`.

    Args:
        name: what errors call the table.
        dataset: data set of the columns that do not name theirs.

    Returns:
        The accuracies (len(keys),) float64, fractions, by data set, metric and no seed.
    """
    if frame.empty:
        raise InputError(
            f"at least one architecture and one metric in {name}",
            f"a frame of shape {frame.shape}",
            "add what is missing",
        )
    columns = [_column(str(column), name, dataset) for column in frame.columns]
    if frame.index.to_flat_index().hasnans or any(str(key).strip() == "" for key in keys):
        raise InputError(
            f"a key for every architecture in {name}",
            "but one is missing",
            "fill it in or leave the row out",
        )
    _refuse_repeats(keys, f"one row per architecture in {name}", "row")
    _refuse_repeats(columns, f"one column per data set and metric in {name}", "column")
    return {column: _fractions(frame.iloc[:, i], keys, name) for i, column in enumerate(columns)}


def read_csv(path: Path, titled: bool = False) -> tuple[pd.DataFrame, str]:
    """Read numbers from a file whose first column has the keys of the architectures.

    Args:
        path: a file with commas and a header, in UTF-8.
        titled: whether a first line that begins with # says what the numbers are of. Who writes
            one, as `measure-latency` does, also ends each row.

    Returns:
        The frame, and the SHA-256 of the file in hexadecimal. The frame's index has the keys, as
        integers if each is written like one (`7`, not `07`), else as text; its columns have the
        values, as text.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
        if titled := titled and text.startswith("#"):
            _, _, text = text.partition("\n")
        lines = io.StringIO(text, newline="")
        records = [row for row in csv.reader(lines, skipinitialspace=True) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(
            f"a readable .csv file in UTF-8 at {path}",
            f"but reading it failed ({type(error).__name__}: {error})",
            "give another path or save it again",
        ) from error
    header, *rows = records or [[]]
    if len(header) < 2 or not rows:
        raise InputError(
            f"a header and rows with a key and numbers in {path}",
            f"{len(rows)} rows under the header {header}",
            "add what is missing",
        )
    if all(re.fullmatch(r"[\d.]+", name.strip()) for name in header[1:]):
        raise InputError(
            f"a header with the names of the columns in {path}, such as cell,pgd8",
            ",".join(header),
            "write one above the rows",
        )
    for row in rows:
        if len(row) != len(header):
            raise InputError(
                f"{len(header)} values in every row of {path}, as in its header",
                row,
                "correct this row",
            )
    if titled and not text.endswith("\n"):
        raise InputError(
            f"a line break behind the last row of {path}",
            f"but {','.join(rows[-1])} is cut off",
            "run the command that wrote it again, or delete the row",
        )
    keys = [row[0].strip() for row in rows]
    # Digits may also spell out an architecture's operations; there a leading zero counts.
    integers = all(re.fullmatch(INTEGER, key) for key in keys)
    frame = pd.DataFrame(
        [row[1:] for row in rows],
        index=pd.Index([int(key) for key in keys] if integers else keys, name=header[0].strip()),
        columns=[name.strip() for name in header[1:]],
    )
    return frame, hashlib.sha256(raw).hexdigest()


def _column(column: str, name: str, dataset: str | None) -> Column:
    prefix, separator, metric = column.partition("#")
    if separator:
        return dataset_name(prefix), metric_name(metric), None
    if dataset is None:
        raise InputError(
            f"a data set for every column of {name}",
            f"but '{column}' names none",
            f"call the column 'cifar10#{column}', say, or give the data set of all columns",
        )
    return dataset_name(dataset), metric_name(column), None


def _refuse_repeats(names: Sequence[Hashable], expected: str, what: str) -> None:
    repeated = pd.Index(names, dtype=object, tupleize_cols=False).duplicated()
    if repeated.any():
        name = names[int(repeated.argmax())]
        raise InputError(expected, f"{name!r} twice", f"keep one {what}")


def _fractions(column: pd.Series, keys: Sequence[Hashable], name: str) -> np.ndarray:
    """A column's values (len(keys),) float64, all of them in [0, 1]."""
    values = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    for key, entry, value in zip(keys, column, values, strict=True):
        if np.isnan(value):
            raise InputError(
                f"a number for every architecture and metric of {name}",
                f"{entry!r} for '{column.name}' of {key!r}",
                "fill it in or leave the row out",
            )
        if not 0 <= value <= 1:
            raise InputError(
                f"accuracies as fractions in [0, 1] in {name}",
                f"{value:g} for '{column.name}' of {key!r}",
                "divide percentages by 100, correct other values",
            )
    return values
