"""What studies read: tables, images, and our recorded scores; and what of it a study has read."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cells.darts import Darts
from cells.nasbench201.canonical import representatives
from cells.nasbench201.space import NASBench201
from ntkscore.analysis.comparison import ROBUST_METRICS, in_keys_of
from ntkscore.analysis.score_names import ScoreSum, sum_asked
from ntkscore.config import Config
from ntkscore.data.datasets import DATASETS
from ntkscore.data.images import ImageSet, load_images
from ntkscore.data.tables import Table, load_table
from ntkscore.errors import InputError
from ntkscore.results.result_set import ResultSet

RECORDED = Path(__file__).parent / "results"
"""Our own recorded runs."""
BENCHMARK = "nas-robbench-201"
OLDER = "robustness-dataset"
DARTS_TABLE = "tiny-robustbench"
TABLES = BENCHMARK, OLDER, DARTS_TABLE
DATASET = "cifar10"
"""The data set of all recordings, and of every study that does not compare data sets."""
METRICS = ("val_acc", *ROBUST_METRICS, "autoattack")
"""The benchmark's accuracies, the clean one first."""
METRIC = "val_pgd_8_acc"
"""The accuracy that scores are compared with where only one is shown."""
KERNELS = ("clean", "robust", "twice")
"""The symmetric kernels beside the joint ones."""
RESAMPLES = 500
"""Bootstrap resamples behind an interval."""
SPACE = NASBench201()
"""The networks that the benchmark trained."""


def functions_of(cells: Iterable[object]) -> np.ndarray:
    """What cells compute: of each the lowest index of a cell with the same function."""
    return np.array(representatives())[[int(str(cell)) for cell in cells]]


def bootstrap(cells: Iterable[object], seed: int = 0) -> dict[str, Any]:
    """Keywords of an interval over some cells: it draws those of one function together."""
    return {"groups": functions_of(cells), "resamples": RESAMPLES, "seed": seed}


def sum_named(name: str) -> ScoreSum:
    """The score, cost or count that a text names, or the sum of several; joint ones at β = 0.5."""
    found = sum_asked(name, SPACE, SPACE.parse(0), Config(proxies=True))
    assert found is not None
    return found


DEFAULT = sum_named(SPACE.order)
"""The order of the space where nobody names one."""
BEFORE = "params+path_pools+field+clean.naswot"
"""The default order until 28 November 2026."""


@dataclass(frozen=True)
class Data:
    """Tables, images and recordings by name.

    Attributes:
        data_dir: the folder with the data sets and tables.
        read: SHA-256 of the files that were read, by name of the table or recording and their
            own.
    """

    data_dir: Path
    read: dict[str, str] = field(default_factory=dict)

    def check(self, names: Sequence[str]) -> None:
        """Refuse at once what is missing, and name all of it.

        Args:
            names: of tables by their folders, of images by their data set, of recordings as
                `python -m experiments list` prints them, or folders of results.

        Raises:
            InputError: if the folder of any is missing.
        """
        ways = []
        for name in names:
            if not self.folder(name).is_dir():
                way = f"run `ntkscore fetch {name}`"
                if name not in DATASETS and name not in TABLES:
                    way = (
                        "give a folder that `ntkscore score` wrote, or, of a recording, run "
                        f"`python -m experiments record {name}`"
                    )
                ways.append(f"no {self.folder(name)}: {way}")
        if ways:
            raise InputError(
                ", ".join(names),
                "; ".join(ways),
                "or name another folder of tables and images by --data-dir",
            )

    def folder(self, name: str) -> Path:
        """Where a table, a data set or a recording lies."""
        if name in DATASETS and (source := DATASETS[name].source):
            return self.data_dir / source.folder
        if name in TABLES:
            return self.data_dir / name
        return RECORDED / name if (RECORDED / name).is_dir() else Path(name)

    def _note(self, name: str, pattern: str = "*") -> Path:
        """The folder of a name, whose files count as read."""
        folder = self.folder(name)
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and (key := f"{name}/{path.name}") not in self.read:
                self.read[key] = hashlib.sha256(path.read_bytes()).hexdigest()
        return folder

    def result_set(self, name: str) -> ResultSet:
        """A recording by name, or the folder of any run."""
        self.check([name])
        return ResultSet.open(self._note(name, "*.parquet"))

    def rows(self, name: str) -> pd.DataFrame:
        """The tidy rows of a recording; seeds that lack networks are left out."""
        recorded = self.result_set(name)
        rows = recorded.read()
        networks = rows.groupby("seed")[recorded.identity[0]].nunique()
        return rows[rows["seed"].isin(networks.index[networks == networks.max()])]

    def images(self, name: str = DATASET) -> ImageSet:
        """Images of a data set."""
        self.check([name])
        return load_images(name, self.data_dir)

    @cached_property
    def table(self) -> Table:
        """NAS-RobBench-201: adversarially trained networks."""
        return self._table(BENCHMARK)

    @cached_property
    def older(self) -> Table:
        """The older table: the same cells, trained without attacks."""
        return self._table(OLDER)

    @cached_property
    def darts(self) -> Table:
        """Tiny-RobustBench: DARTS cells, trained adversarially."""
        return in_keys_of(Darts(), self._table(DARTS_TABLE))

    def _table(self, name: str) -> Table:
        self.check([name])
        return load_table(self._note(name))

    def accuracy(self, cells: Iterable[object], metric: str = METRIC) -> np.ndarray:
        """Accuracies of cells on CIFAR-10, as fractions."""
        return self.table.accuracies(DATASET, metric, [int(str(cell)) for cell in cells])

    def accuracies(self, cells: Iterable[object]) -> dict[str, np.ndarray]:
        """Robust accuracies of cells, by data set."""
        wanted = [int(str(cell)) for cell in cells]
        return {name: self.table.accuracies(name, METRIC, wanted) for name in self.table.datasets}
