"""Correlation of scores with measured accuracies, and accuracies by name."""

from collections.abc import Sequence
from numbers import Number
from os import PathLike

import pandas as pd

from ntkscore.analysis.agreement import agreement_table
from ntkscore.analysis.comparison import in_keys_of, keys_of, scores_of, trained_on
from ntkscore.analysis.correlation import FEWEST
from ntkscore.analysis.frames import cost_table
from ntkscore.analysis.score_names import default_sum
from ntkscore.data.benchmarks import metric_name
from ntkscore.data.datasets import dataset_name
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.measures.registry import direction_of
from ntkscore.space import Architecture, Space
from ntkscore.spaces import default_space, space_in


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
        resamples: of the bootstrap behind the 95 % intervals, over the functions that the networks
            compute (`Space.canonical`).

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
    scores = scores_of(source, dataset, rho)
    if not isinstance(source, pd.DataFrame):
        space = space or space_in(source)
    space = space or default_space()
    table = in_keys_of(space, table, dataset)
    names = list(scores.index)
    keys, _ = keys_of(space, names, str(scores.index.name or ""))
    # A number is no name of a network whose key is a text: it is the index of another space's.
    pairs = zip(names, keys, strict=True)
    keys = [n if isinstance(n, Number) and isinstance(k, str) else k for n, k in pairs]
    scores = scores.set_axis(pd.Index(keys, name=scores.index.name, tupleize_cols=False))
    if scores.index.has_duplicates:
        twice = scores.index[scores.index.duplicated()][0]
        raise InputError("scores of each network once", f"{twice} twice", "keep one row")
    table.metrics(dataset)
    measured = [key for key in scores.index if table.has(key)]
    if len(measured) < FEWEST:
        absent = [str(key) for key in scores.index if not table.has(key)]
        others = f", none for {', '.join(absent[:3])}" if absent else ""
        raise InputError(
            f"at least {FEWEST} networks that {table.name} has results for",
            f"{len(measured)} of {len(scores)}{others}{' and others' if len(absent) > 3 else ''}",
            "use a table of the same architectures" if absent else "score more networks",
        )
    scores = scores.loc[measured]
    accuracy = table.accuracies(dataset, metric, list(scores.index))
    costs = cost_table(scores.index, trained_on(space, dataset)).set_axis(scores.index)
    default = default_sum(space, tuple(costs), tuple(scores.columns[scores.notna().any()]))
    costs = costs.drop(columns=scores.columns, errors="ignore")
    if any("." in term and term in scores for term in default.terms):
        scores = scores.assign(**{str(default): default.of(scores.join(costs))})
    every = scores.join(costs)
    directions = {str(default): +1} | {
        name: direction_of(name, space.smaller) for name in map(str, every) if name != str(default)
    }
    functions = [space.key(space.canonical(space.parse(key))) for key in scores.index]
    frame = agreement_table(every, accuracy, directions, groups=functions, resamples=resamples)
    frame = frame.reset_index()
    best = frame["best_cell"].dropna()
    short = pd.DataFrame([space.names(space.parse(key)) for key in best], index=best.index)
    place = list(frame.columns).index("best_cell") + 1
    for name in short.columns[1:]:
        column = short[name].reindex(frame.index).astype(object)
        frame.insert(place, f"best_{name}", column.where(column.notna(), None))
    return frame


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
        space: where the architectures come from; NAS-Bench-201 if left out.

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
    space = space or default_space()
    table = in_keys_of(space, table, dataset)
    datasets = table.datasets if dataset is None else (dataset_name(dataset),)
    rows = []
    for architecture in space.parse_all(architectures):
        key = space.key(architecture)
        for name in datasets:
            accuracies = {
                metric_name(metric): table.accuracy(key, name, metric, seed)
                for metric in table.metrics(name)
            }
            row = {"results of": table.representative(key), "dataset": name, **accuracies}
            costs = trained_on(space, name).costs(architecture)
            rows.append({**space.names(architecture), **row, **costs})
    return pd.DataFrame(rows)
