"""Correlation of scores with measured accuracies, and accuracies by name."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import pandas as pd

from cells.nasbench201.space import NASBench201
from cells.space import Architecture, Space
from ntkscore.analysis import comparison
from ntkscore.api.runs import space_in
from ntkscore.data.tables import Table, load_table


def correlate(
    source: str | PathLike[str] | pd.DataFrame,
    table: Table | str | PathLike[str],
    dataset: str = "cifar10",
    metric: str = "val_pgd_8_acc",
    *,
    space: Space | None = None,
    rho: float | None = None,
    resamples: int = 1000,
) -> pd.DataFrame:
    """Correlate scores with measured accuracies, beside the parameter count and the FLOPs.

    Networks that the table has no results for are left out.

    Args:
        source: a result directory, or a frame with a row per network and a column per score.
        table: with the accuracies, or its path.
        dataset, metric: which accuracy, in any common spelling.
        space: where the networks come from; that of the directory if left out.
        rho: radius, for results with several.
        resamples: of the bootstrap behind the 95 % intervals.

    Returns:
        A row per score: Spearman with its interval, Kendall, Spearman in the top 10 % and 30 % by
        accuracy, and the best-scored network with its accuracy and rank.

    Raises:
        InputError: if the table lacks the data set, the metric or nearly all networks.

    Example:
        >>> scores = pd.DataFrame({"robust.trace": [3.0, 2.0, 1.0]}, index=[2581, 1462, 0])
        >>> accuracies = pd.DataFrame({"pgd8": [0.48, 0.47, 0.30]}, index=[2581, 1462, 0])
        >>> table = Table.from_frame(accuracies, dataset="cifar10")
        >>> correlate(scores, table)[["score", "spearman"]].head(1)
                  score  spearman
        0  robust.trace       1.0
    """
    scores = comparison.scores_of(source, dataset, rho)
    if not isinstance(source, pd.DataFrame):
        space = space or space_in(source)
    loaded = table if isinstance(table, Table) else load_table(Path(table), dataset)
    space = space or NASBench201()
    return comparison.correlate(scores, loaded, dataset, metric, space, resamples=resamples)


def lookup(
    architectures: Architecture | Sequence[Architecture],
    table: Table | str | PathLike[str],
    dataset: str | None = None,
    *,
    seed: int | None = None,
    space: Space | None = None,
) -> pd.DataFrame:
    """Look up measured accuracies, as fractions.

    Args:
        architectures: one, or a list of them, by any name that the space knows.
        table: with the accuracies, or its path.
        dataset: only this one; all of the table's if left out.
        seed: of one training; their mean if left out.
        space: where the architectures come from; `NASBench201()` if left out.

    Returns:
        A row per architecture and data set, a column per metric.

    Raises:
        InputError: if the table lacks the data set, a network or the seed.

    Example:
        >>> accuracies = pd.DataFrame({"clean": [0.79]}, index=[2581])
        >>> table = Table.from_frame(accuracies, dataset="cifar10")
        >>> lookup("323133", table)["val_acc"].item()
        0.79
    """
    space = space or NASBench201()
    names = architectures if isinstance(architectures, list | tuple) else [architectures]
    loaded = table if isinstance(table, Table) else load_table(Path(table), dataset)
    return comparison.lookup([space.parse(n) for n in names], loaded, space, dataset, seed)
