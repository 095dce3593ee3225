"""Benchmark tables of trained accuracies: NAS-RobBench-201 and its older relative."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsIndex

import numpy as np

from ntkscore.errors import InputError
from ntkscore.names import dataset_name, metric_name
from ntkscore.tablefiles import Column, read_table
from ntkscore.tablefiles import load_operations as load_operations

SEEDS = (1, 2, 3)

_FILES = ("NAS-RobBench-201_all.json", "NAS-RobBench-201_html.json", "acc.json")


@dataclass(frozen=True, eq=False)
class Table:
    """Accuracies by cell, data set and metric, as fractions.

    Attributes:
        name: which table it is, and in which of its formats.
        checksum: SHA-256 of the file, in hexadecimal.
        own: the indices with results of their own, ascending; every other index of the table
            has the results of the one it is taken to be isomorphic to.
    """

    name: str
    checksum: str
    own: tuple[int, ...]
    _rows: Mapping[int, int]  # the row of every known index in the columns
    _columns: Mapping[Column, np.ndarray]

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
                f"expected a data set of {self.name}, which has {', '.join(self.datasets)}, "
                f"but '{dataset}' came: choose one of these"
            )
        return metrics

    def representative(self, index: SupportsIndex) -> int:
        """The index whose results serve for a cell; for an index of `own`, itself.

        Raises:
            InputError: if the table has no results for the index.
        """
        return self.own[self._row(index)]

    def accuracy(
        self, cell: SupportsIndex, dataset: str, metric: str, seed: int | None = None
    ) -> float:
        """One accuracy, as a fraction.

        Args:
            cell: index of the cell.
            dataset: any common spelling, see `dataset_name`.
            metric: any common spelling, see `metric_name`.
            seed: 1, 2 or 3 where the format has single seeds; None for their mean.

        Raises:
            InputError: if the table does not have it.
        """
        return float(self._column(dataset, metric, seed)[self._row(cell)])

    def accuracies(
        self,
        dataset: str,
        metric: str,
        cells: Iterable[SupportsIndex] | None = None,
        seed: int | None = None,
    ) -> np.ndarray:
        """Accuracies (len(cells),) float64, as fractions, of `cells` or else of `own`.

        Args and errors are those of `accuracy`.
        """
        column = self._column(dataset, metric, seed)
        if cells is None:
            return column.copy()
        return column[np.fromiter((self._row(cell) for cell in cells), dtype=np.intp)]

    def _row(self, index: SupportsIndex) -> int:
        try:
            return self._rows[operator.index(index)]
        except KeyError:
            raise InputError(
                f"expected one of the {len(self._rows)} cells of {self.name}, but it has no "
                f"results for index {index}: leave this cell out or use a table that has it "
                "(the official one needs meta.json beside it)"
            ) from None

    def _column(self, dataset: str, metric: str, seed: int | None) -> np.ndarray:
        metrics = self.metrics(dataset)
        key = dataset_name(dataset), metric_name(metric)
        if key[1] not in metrics:
            raise InputError(
                f"expected a metric of {self.name} on {key[0]}, which has {', '.join(metrics)}, "
                f"but '{metric}' came: choose one of these"
            )
        if (*key, seed) not in self._columns:
            seeds = [s for s in SEEDS if (*key, s) in self._columns]
            has = f"the seeds {seeds} and their mean" if seeds else "only the mean over seeds"
            raise InputError(
                f"expected a seed that {self.name} has, but it has {has} of {key[1]} on {key[0]} "
                f"and seed {seed} came: leave the seed out or use a table with single seeds"
            )
        return self._columns[*key, seed]


def load_table(path: str | Path) -> Table:
    """Read a table in any of its published formats.

    Args:
        path: the project page's `NAS-RobBench-201_html.json`, the official
            `NAS-RobBench-201_all.json` (with `meta.json` beside it for the isomorphic cells),
            the older `acc.json`, or a folder with one of them.

    Returns:
        The table.

    Raises:
        InputError: if there is no such file, or it is truncated or altered.

    Source: Wu et al. 2024, https://tt2408.github.io/nasrobbench201hp; Jung, Lukasik and
    Keuper 2023, http://robustness.vision.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        found = [path / name for name in _FILES if (path / name).is_file()]
        if not found:
            raise InputError(
                f"expected one of {', '.join(_FILES)} in {path}, but none is there: "
                "run `ntkscore fetch nas-robbench-201` or give the file's own path"
            )
        path = found[0]
    file = read_table(path)
    row = {index: i for i, index in enumerate(file.rows)}
    values = np.array(list(file.rows.values()), dtype=np.float64)
    return Table(
        name=file.name,
        checksum=file.checksum,
        own=tuple(file.rows),
        _rows=row | {index: row[target] for index, target in file.targets.items()},
        _columns=dict(zip(file.columns, values.T, strict=True)),
    )
