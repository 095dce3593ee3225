"""The published file formats of the benchmark tables, read and checked."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntkscore.errors import InputError
from ntkscore.names import dataset_name, metric_name

CELLS = 15_625

# Data set, metric and seed (None: the mean over seeds).
Column = tuple[str, str, int | None]

_OFFICIAL_COLUMNS = [
    (metric, key, seed)
    for metric in (
        "val_acc",
        "val_fgsm_3.0_acc",
        "val_pgd_3.0_acc",
        "val_fgsm_8.0_acc",
        "val_pgd_8.0_acc",
    )
    for key, seed in (("threeseed", None), ("1", 1), ("2", 2), ("3", 3))
] + [("autoattack", None, None)]


@dataclass(frozen=True)
class TableFile:
    """What a table file holds.

    Attributes:
        name: which table it is, and in which of its formats.
        checksum: SHA-256 of the file, in hexadecimal.
        columns: data set, metric and seed of every column.
        rows: the accuracies, as fractions, of every index that has its own, ascending.
        targets: for every other index, the one in `rows` that it is taken to be isomorphic to.
    """

    name: str
    checksum: str
    columns: list[Column]
    rows: dict[int, list[float]]
    targets: dict[int, int]


def read_table(path: Path) -> TableFile:
    """Read and check a table in any of its published formats, told apart by their content.

    Args:
        path: the table; the official one may have `meta.json` beside it.

    Returns:
        What it holds.

    Raises:
        InputError: if there is no such file, or it is truncated or altered.
    """
    content, checksum = _read_json(path, "acc")
    if not isinstance(content, dict):
        raise _altered(path, "a table of accuracies", f"a {type(content).__name__}")
    name, columns, rows, targets = (_parse_page if "" in content else _parse_official)(
        content, path
    )
    if len(set(columns)) < len(columns):
        raise _altered(path, "different names for all columns", "one name twice")
    _check_values(rows, len(columns), path)
    own = {index for index in rows if targets.get(index, index) == index}
    astray = set(targets.values()) - own
    if astray or not own:
        came = f"a pointer to {min(astray)}, which has none" if astray else "no cells"
        raise _altered(path, "cells with results of their own", came)
    return TableFile(
        name=name,
        checksum=checksum,
        columns=columns,
        rows={index: rows[index] for index in sorted(own)},
        targets={index: target for index, target in targets.items() if index not in own},
    )


def load_operations(path: str | Path) -> list[str]:
    """Read the project page's `ops.json`, the six operation digits of every index.

    Args:
        path: the file.

    Returns:
        15,625 strings of six digits 0-4, by index.

    Raises:
        InputError: if there is no such file, or it is truncated or altered.

    Source: https://tt2408.github.io/nasrobbench201hp.
    """
    path = Path(path).expanduser()
    content, _ = _read_json(path, "arch")
    if not isinstance(content, list) or len(content) != CELLS:
        came = len(content) if isinstance(content, list) else f"a {type(content).__name__}"
        raise _altered(path, f"a list of {CELLS} strings", f"{came}")
    for digits in content:
        if not (isinstance(digits, str) and re.fullmatch("[0-4]{6}", digits)):
            raise _altered(path, "six digits 0-4 per cell", repr(digits))
    return content


def _altered(path: Path, expected: str, came: str) -> InputError:
    return InputError(
        f"expected {expected} in {path}, but it has {came}: get the official file again"
    )


def _read_json(path: Path, variable: str) -> tuple[Any, str]:
    """The content of a JSON file, or of JavaScript that assigns JSON to a variable."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"expected a readable file at {path}, but {error.strerror or error} came: "
            "run `ntkscore fetch nas-robbench-201` or give another path"
        ) from error
    try:
        text = re.sub(rf"^\s*{variable}\s*=", "", raw.decode("utf-8")).rstrip().removesuffix(";")
        return json.loads(text), hashlib.sha256(raw).hexdigest()
    except (ValueError, RecursionError) as error:
        raise _altered(
            path, f"JSON, or '{variable}=' and JSON,", f"something else ({error})"
        ) from error


_Parsed = tuple[str, list[Column], dict[int, list[Any]], dict[int, int]]


def _parse_page(content: dict[str, Any], path: Path) -> _Parsed:
    """The project pages' form: the key "" names the columns, a bare id is a pointer."""
    names = content.pop("")
    if not isinstance(names, list) or not all("#" in str(name) for name in names):
        raise _altered(path, "column names of the form dataset#metric", repr(names))
    pairs = [str(name).split("#", 1) for name in names]
    columns: list[Column] = [(dataset_name(d), metric_name(m), None) for d, m in pairs]
    rows = {_index(k, path): v for k, v in content.items() if isinstance(v, list)}
    targets = {
        _index(k, path): _index(v, path) for k, v in content.items() if not isinstance(v, list)
    }
    older = any(metric == "clean" for _, metric in pairs)
    name = "robustness-dataset" if older else "nas-robbench-201 (project page)"
    return name, columns, rows, targets


def _parse_official(content: dict[str, Any], path: Path) -> _Parsed:
    """The official download: data set, id, metric, seed; the pointers are in `meta.json`."""
    columns: list[Column] = []
    rows: dict[int, list[Any]] = {}
    for dataset, cells in content.items():
        if not isinstance(cells, dict) or (rows and len(cells) != len(rows)):
            raise _altered(path, "the same cells for every data set", f"others for '{dataset}'")
        columns += [(dataset_name(dataset), metric_name(m), s) for m, _, s in _OFFICIAL_COLUMNS]
        for key, cell in cells.items():
            try:
                values = [cell[m] if k is None else cell[m][k] for m, k, _ in _OFFICIAL_COLUMNS]
            except (KeyError, TypeError):
                raise _altered(
                    path,
                    "every metric and seed for every cell",
                    f"not all of them for cell {key} on '{dataset}'",
                ) from None
            rows.setdefault(_index(key, path), []).extend(values)
    targets = _read_isomorphs(path.with_name("meta.json"))
    return "nas-robbench-201 (official)", columns, rows, targets


def _read_isomorphs(path: Path) -> dict[int, int]:
    if not path.is_file():
        return {}
    content, _ = _read_json(path, "meta")
    try:
        pairs = [(key, entry["isomorph"]) for key, entry in content["ids"].items()]
    except (KeyError, TypeError, AttributeError):
        raise _altered(path, "{'ids': {id: {'isomorph': id}}}", "another form") from None
    return {_index(key, path): _index(target, path) for key, target in pairs}


def _index(value: Any, path: Path) -> int:
    if not (re.fullmatch("0|[1-9][0-9]{0,4}", str(value)) and int(value) < CELLS):
        raise _altered(path, f"indices 0..{CELLS - 1}", repr(value))
    return int(value)


def _check_values(rows: Mapping[int, list[Any]], width: int, path: Path) -> None:
    for index, row in rows.items():
        if len(row) != width:
            raise _altered(path, f"{width} accuracies per cell", f"{len(row)} for cell {index}")
        for value in row:
            # Written so that it also refuses NaN, which Python's JSON lets through.
            if type(value) not in (int, float) or not 0 <= value <= 1:
                raise _altered(path, "accuracies in [0, 1]", f"{value!r} for cell {index}")
