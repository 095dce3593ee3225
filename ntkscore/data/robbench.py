"""Published forms of NAS-RobBench-201 and of the older table over the same cells."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from cells.nasbench201.cell import EDGES, OPERATIONS, SIZE
from ntkscore.data.datasets import DATASETS, Source, altered, dataset_name
from ntkscore.data.table_files import Column, Parsed, TableFormat, metric_name, read_json

_DIGITS = f"[0-{len(OPERATIONS) - 1}]{{{len(EDGES)}}}"

_SEEDS = (1, 2, 3)
# Metric, key of the value in a cell's entry (None: the entry is the value) and seed.
_OFFICIAL_COLUMNS = [
    (metric, key, seed)
    for metric in (
        "val_acc",
        "val_fgsm_3.0_acc",
        "val_pgd_3.0_acc",
        "val_fgsm_8.0_acc",
        "val_pgd_8.0_acc",
    )
    for key, seed in (("threeseed", None), *((str(seed), seed) for seed in _SEEDS))
] + [("autoattack", None, None)]


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
    content, _ = read_json(path, "arch")
    if not isinstance(content, list) or len(content) != SIZE:
        came = len(content) if isinstance(content, list) else f"a {type(content).__name__}"
        raise altered(path, f"a list of {SIZE} strings", f"{came}")
    for digits in content:
        if not (isinstance(digits, str) and re.fullmatch(_DIGITS, digits)):
            raise altered(path, "six digits 0-4 per cell", repr(digits))
    return content


def _is_page(content: dict[str, Any]) -> bool:
    return "" in content and not _is_older(content)


def _is_older(content: dict[str, Any]) -> bool:
    # Both pages name their columns under ""; only the older one has a metric called `clean`.
    names = content.get("")
    return isinstance(names, list) and any(str(name).endswith("#clean") for name in names)


def _has_data_sets(content: dict[str, Any]) -> bool:
    return all(dataset_name(key) in DATASETS for key in content)


def _parse_page(content: dict[str, Any], path: Path) -> Parsed:
    """The project pages' form: the key "" names the columns, a bare id is a pointer."""
    names = content[""]
    if not isinstance(names, list) or not all("#" in str(name) for name in names):
        raise altered(path, "column names of the form dataset#metric", repr(names))
    pairs = [str(name).split("#", 1) for name in names]
    columns: list[Column] = [(dataset_name(d), metric_name(m), None) for d, m in pairs]
    cells = {_index(key, path): value for key, value in content.items() if key != ""}
    rows: dict[Hashable, list[Any]] = {
        index: value for index, value in sorted(cells.items()) if isinstance(value, list)
    }
    targets: dict[Hashable, Hashable] = {
        index: _index(value, path) for index, value in cells.items() if index not in rows
    }
    return Parsed(columns, rows, targets)


def _parse_official(content: dict[str, Any], path: Path) -> Parsed:
    """The official download: data set, id, metric, seed; the pointers are in `meta.json`."""
    columns: list[Column] = []
    rows: dict[int, list[Any]] = {}
    for dataset, cells in content.items():
        if not isinstance(cells, dict) or (rows and len(cells) != len(rows)):
            raise altered(path, "the same cells for every data set", f"others for '{dataset}'")
        columns += [(dataset_name(dataset), metric_name(m), s) for m, _, s in _OFFICIAL_COLUMNS]
        for key, cell in cells.items():
            try:
                values = [cell[m] if k is None else cell[m][k] for m, k, _ in _OFFICIAL_COLUMNS]
            except (KeyError, TypeError):
                raise altered(
                    path,
                    "every metric and seed for every cell",
                    f"not all of them for cell {key} on '{dataset}'",
                ) from None
            rows.setdefault(_index(key, path), []).extend(values)
    ordered: dict[Hashable, list[Any]] = {index: rows[index] for index in sorted(rows)}
    return Parsed(columns, ordered, _isomorphs(path.with_name("meta.json")))


def _isomorphs(path: Path) -> dict[Hashable, Hashable]:
    """The representative of every index, from the official `meta.json`; none without the file."""
    if not path.is_file():
        return {}
    content, _ = read_json(path, "meta")
    try:
        pairs = [(key, entry["isomorph"]) for key, entry in content["ids"].items()]
    except (KeyError, TypeError, AttributeError):
        raise altered(path, "{'ids': {id: {'isomorph': id}}}", "another form") from None
    return {_index(key, path): _index(target, path) for key, target in pairs}


def _index(value: object, path: Path) -> int:
    # At most ten digits, because Python refuses to convert thousands of them.
    if not (re.fullmatch("0|[1-9][0-9]{0,9}", str(value)) and int(str(value)) < SIZE):
        raise altered(path, f"indices 0..{SIZE - 1}", repr(value))
    return int(str(value))


OFFICIAL = TableFormat(
    name="nas-robbench-201 (official)",
    files=("NAS-RobBench-201_all.json",),
    recognises=_has_data_sets,
    parse=_parse_official,
    remedy="the official one needs meta.json beside it",
)
OLDER = TableFormat(
    name="robustness-dataset",
    files=("acc.json",),
    recognises=_is_older,
    parse=_parse_page,
)
PAGE = TableFormat(
    name="nas-robbench-201 (project page)",
    files=("NAS-RobBench-201_html.json",),
    recognises=_is_page,
    parse=_parse_page,
    source=Source(
        folder="nas-robbench-201",
        contents=("NAS-RobBench-201_html.json", "ops.json"),
        base_url="https://tt2408.github.io/nasrobbench201hp/files/",
        files={
            "NAS-RobBench-201_html.json": (
                "sha256:b3dc99b96324de07b1dd9f3c39830fe0f82aae7fbd1b20eb0a6885cabd4f2388"
            ),
            "ops.json": None,
        },
        checks={"ops.json": load_operations},
    ),
)
