"""Comparison of scores with measured accuracies, and the reading of both."""

from collections.abc import Hashable, Sequence
from os import PathLike
from pathlib import Path

import pandas as pd

from cells.space import Architecture, Space
from ntkscore.analysis.agreement import agreement_table
from ntkscore.analysis.correlation import FEWEST
from ntkscore.analysis.frames import cost_table, pick_rho, score_table
from ntkscore.analysis.score_names import default_sum
from ntkscore.data.benchmarks import metric_name
from ntkscore.data.datasets import DATASETS, dataset_name
from ntkscore.data.tables import Table, load_table
from ntkscore.errors import InputError
from ntkscore.measures.declaration import direction_of
from ntkscore.paths import place
from ntkscore.results import RUN, ResultSet

ROBUST_METRICS = ("val_fgsm_3_acc", "val_pgd_3_acc", "val_fgsm_8_acc", "val_pgd_8_acc")
ROBUST_MEAN = "robust_mean"
"""The mean of the FGSM and PGD accuracies at 3/255 and 8/255, by which the benchmark ranks."""


def table_scores(table: Table, dataset: str) -> pd.DataFrame:
    """The table's metrics as a frame like `score_table`'s: a row per cell with its own results.

    Args:
        table: with the accuracies, as fractions.
        dataset: one of the table's.
    """
    frame = pd.DataFrame(
        {metric: table.accuracies(dataset, metric) for metric in table.metrics(dataset)},
        index=pd.Index(table.own, name="cell"),
    )
    if set(ROBUST_METRICS) <= set(frame.columns):
        frame[ROBUST_MEAN] = frame[list(ROBUST_METRICS)].mean(axis=1)
    return frame


def scores_in(
    source: str | PathLike[str], dataset: str, rho: float | None = None
) -> tuple[pd.DataFrame, str]:
    """Scores by network from a result directory, or a table's metrics, and a note on their source.

    Args:
        source: a folder with results, or with a benchmark table (or the table itself).
        dataset: of a table's metrics.
        rho: radius, for results with several.
    """
    path = place(source)
    if isinstance(path, Path) and (
        path.is_file() or (not (path / RUN).exists() and any(path.glob("*.json")))
    ):
        table = load_table(path)
        return table_scores(table, dataset), f"metrics of {table.name}"
    results = ResultSet.open(path)
    rows, scored = pick_rho(results.read(), rho), results.configuration
    seeds = rows["seed"].nunique()
    mean = f"mean of {seeds} seed{'' if seeds == 1 else 's'}"
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


def in_keys_of(space: Space, table: Table) -> Table:
    """The table with the space's keys in place of any names of its architectures.

    A row that is no architecture of the space keeps its name. A published table keeps its indices:
    10 is a cell there, and no skip pattern.
    """
    if not table.by_any_name:
        return table

    def key(name: Hashable) -> Hashable:
        try:
            return space.key(space.parse(str(name)))
        except InputError:
            return name

    return table.renamed(key)


def correlate(
    scores: pd.DataFrame,
    table: Table,
    dataset: str,
    metric: str,
    space: Space,
    *,
    resamples: int = 1000,
) -> pd.DataFrame:
    """Agreement of every score with a column of a table; see `ntkscore.correlate`.

    Returns:
        A row per score, the default, costs and counts last: the fields of `Agreement`, and the
        best-scored network's short names.
    """
    table = in_keys_of(space, table)
    table.metrics(dataset)
    measured = [key for key in scores.index if table.has(key)]
    if len(measured) < FEWEST:
        absent = [str(key) for key in scores.index if not table.has(key)]
        raise InputError(
            f"expected at least {FEWEST} networks that {table.name} has results for, got "
            f"{len(measured)} of {len(scores)}, none for {', '.join(absent[:3])}"
            f"{' and others' if len(absent) > 3 else ''}; use a table of the same architectures"
        )
    scores = scores.loc[measured]
    accuracy = pd.Series(table.accuracies(dataset, metric, list(scores.index)), index=scores.index)
    costs = cost_table(scores.index, trained_on(space, dataset))
    costs.index = scores.index
    default = default_sum(tuple(costs), tuple(scores.columns[scores.notna().any()]))
    directions = {
        str(name): direction_of(str(name), space.fewer)
        for name in [*scores.columns, *costs.columns]
    }
    if set(default.terms) & set(scores.columns):
        scores = scores.assign(**{str(default): default.of(scores.join(costs))})
        directions[str(default)] = +1
    frame = agreement_table(scores, accuracy, directions, costs, resamples=resamples)
    frame = frame.reset_index()
    best = frame["best_cell"].dropna()
    short = pd.DataFrame([space.names(space.parse(key)) for key in best], index=best.index)
    place = list(frame.columns).index("best_cell") + 1
    for name in short.columns[1:]:
        column = short[name].reindex(frame.index).astype(object)
        frame.insert(place, f"best_{name}", column.where(column.notna(), None))
    return frame


def lookup(
    architectures: Sequence[Architecture],
    table: Table,
    space: Space,
    dataset: str | None = None,
    seed: int | None = None,
) -> pd.DataFrame:
    """Accuracies of networks in the space's own form; see `ntkscore.lookup`."""
    table = in_keys_of(space, table)
    datasets = table.datasets if dataset is None else (dataset_name(dataset),)
    rows = []
    for architecture in architectures:
        key = space.key(architecture)
        for name in datasets:
            accuracies = {
                metric_name(metric): table.accuracy(key, name, metric, seed)
                for metric in table.metrics(name)
            }
            rows.append(
                {
                    **space.names(architecture),
                    "results of": table.representative(key),
                    "dataset": name,
                    **accuracies,
                    **trained_on(space, name).costs(architecture),
                }
            )
    return pd.DataFrame(rows)
