"""Comparison of scores with measured accuracies, and the reading of both."""

import itertools
import logging
from collections.abc import Hashable, Sequence
from os import PathLike
from pathlib import Path

import pandas as pd

from ntkscore.analysis.frames import pick_rho, score_table
from ntkscore.data.datasets import DATASETS, dataset_name
from ntkscore.data.tables import Table, load_table
from ntkscore.paths import results_path
from ntkscore.results import RUN, ResultSet
from ntkscore.space import Space

log = logging.getLogger("ntkscore")

ROBUST_METRICS = ("val_fgsm_3_acc", "val_pgd_3_acc", "val_fgsm_8_acc", "val_pgd_8_acc")
ROBUST_MEAN = "robust_mean"
"""The mean of the FGSM and PGD accuracies at 3/255 and 8/255, by which the benchmark ranks."""

TABLES = "*.json", "*.csv", "*.jsonl", "*.txz"
"""Files that a folder with a table has."""


def table_scores(table: Table, dataset: str) -> pd.DataFrame:
    """The table's metrics as a frame like `score_table`'s: a row per cell with its own results."""
    frame = pd.DataFrame(
        {metric: table.accuracies(dataset, metric) for metric in table.metrics(dataset)},
        index=pd.Index(table.own, name=table.heading if table.by_any_name else "cell"),
    )
    if set(ROBUST_METRICS) <= set(frame.columns):
        frame[ROBUST_MEAN] = frame[list(ROBUST_METRICS)].mean(axis=1)
    return frame


def scores_in(
    source: str | PathLike[str], dataset: str, rho: float | None = None
) -> tuple[pd.DataFrame, str]:
    """Scores by network of a run's folder, or a table's metrics, and a note on their source."""
    path = results_path(source)
    if isinstance(path, Path) and (
        path.is_file()
        or (not (path / RUN).exists() and any(itertools.chain(*map(path.glob, TABLES))))
    ):
        table = load_table(path, dataset)
        return table_scores(table, dataset), f"metrics of {table.name}"
    results = ResultSet.open(path)
    rows, scored = pick_rho(results.read(), rho), results.configuration
    seeds = rows.groupby(rows.columns[0])["seed"].nunique()
    mean = f"mean of {seeds.max()} seed{'' if seeds.max() == 1 else 's'}"
    if (fewer := int((seeds < seeds.max()).sum())) > 0:
        mean += f", of fewer for {fewer:,} of {len(seeds):,} networks"
    images = f"{scored['samples']} images of {scored['dataset']}"
    return score_table(rows), f"scores: {mean}, {images}, in {path}"


def scores_of(
    source: str | PathLike[str] | pd.DataFrame, dataset: str, rho: float | None = None
) -> pd.DataFrame:
    """Scores by network; those of a frame are itself, else as for `scores_in`."""
    return source if isinstance(source, pd.DataFrame) else scores_in(source, dataset, rho)[0]


def trained_on(space: Space, dataset: str) -> Space:
    """The space of the networks that were trained on a data set; of an unknown one as it is."""
    facts = DATASETS.get(dataset_name(dataset))
    return space.trained().on(facts.task) if facts else space.trained()


def in_keys_of(
    space: Space, table: Table | str | PathLike[str], dataset: str | None = None
) -> Table:
    """The table with the space's keys in place of any names of its architectures.

    A row that is no architecture of the space keeps its name. A published table keeps its indices:
    10 is a cell there, and no skip pattern. `dataset` is that of a file's columns that name none.
    """
    if not isinstance(table, Table):
        table = load_table(Path(table), dataset)
    if not table.by_any_name:
        return table
    keys, strangers = keys_of(space, table.own, table.heading)
    if strangers:
        log.warning(
            "%d of the %d rows of %s are no networks of the space %s, such as %r",
            *(len(strangers), len(keys), table.name, space.name, strangers[0]),
        )
    return table.renamed(dict(zip(table.own, keys, strict=True)).__getitem__)


def keys_of(
    space: Space, names: Sequence[Hashable], heading: str
) -> tuple[list[Hashable], list[Hashable]]:
    """The space's keys of the networks in a column, and the names that are of none of its networks.

    Such a name stands for itself among the keys. The heading of the column may be "".
    """
    keys: list[Hashable] = []
    strangers: list[Hashable] = []
    for name, text in zip(names, space.written(names, heading), strict=True):
        try:
            keys.append(space.key(space.parse(text)))
        except ValueError:
            keys.append(name)
            strangers.append(name)
    return keys, strangers
