"""Content of a page: networks, and numbers of each by column."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ntkscore.analysis.comparison import in_keys_of
from ntkscore.analysis.frames import cost_table, score_table
from ntkscore.analysis.ranking import LOG_RANKS
from ntkscore.analysis.score_names import ScoreName, default_sum
from ntkscore.data.datasets import DATASETS
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.explore.graphs import Graph
from ntkscore.kernels.joint import JOINT
from ntkscore.measures.registry import NOT_GIVEN, direction_of
from ntkscore.results import ResultSet
from ntkscore.space import Space
from ntkscore.text import format_rho

METRIC = "val_pgd_8_acc"
"""The accuracy that a page begins with, where a table has it."""
PREDICTED = "Predicted accuracy"
FIRST = "robust.frobenius"
"""The score that two runs are compared by at first."""


@dataclass(frozen=True)
class Column:
    """A number of each network.

    Attributes:
        group: the heading that it stands under.
        direction: +1 if larger is better, −1 if smaller is.
        values: by key of the network; NaN where it failed.
        score: name of the score; None for what is not measured.
        rho: its radius, as text.
        run: its run, or "" for the only one.
    """

    id: str
    group: str
    direction: int
    values: pd.Series = field(compare=False)
    score: ScoreName | None = None
    rho: str = ""
    run: str = ""

    @property
    def family(self) -> str:
        """The score of a joint kernel without its β and ρ, and its run; else ""."""
        if self.score is None or self.score.kernel not in JOINT:
            return ""
        return f"{self.score.kernel}.{self.score.score}" + (f" ({self.run})" if self.run else "")


@dataclass(frozen=True)
class Content:
    """Networks with their columns, and the first view of a page.

    Attributes:
        names: of each network: its names in its space, the key first.
        terms: columns of the first sum of log-ranks, with their directions.
        x, y, x2: columns of the first view; the last one is "" without a second plot.
        graphs: drawings of each network (`Space.graphs`); [] where there are none.
    """

    about: str
    names: list[list[str]]
    columns: list[Column]
    terms: dict[str, int]
    x: str
    y: str
    x2: str
    graphs: list[tuple[Graph, ...]] = field(default_factory=list)


def content_of(
    runs: Sequence[Any],
    table: Table | None = None,
    predicted: pd.DataFrame | None = None,
) -> Content:
    """Read the content of a page: results, beside costs, counts and accuracies.

    It has a column per score, each radius and run by itself, averaged over the seeds; and per cost,
    count and accuracy. A run without rows, several spaces, and a table without results for any of
    the networks are refused.
    """
    where = runs[0].space
    if other := next((run.space for run in runs if run.space.name != where.name), None):
        raise InputError(
            "runs of one space", f"{where.name} and {other.name}", "make a page of each"
        )
    columns: list[Column] = []
    about = []
    for name, run in zip(_names_of(runs), runs, strict=True):
        rows = run.rows
        if rows.empty:
            empty = run.results.directory
            raise InputError(f"networks in {empty}", "none", "score some first")
        columns += _scores(rows, name if len(runs) > 1 else "")
        about.append(f"{name}: {_described(run.results, rows)}")
    keys = pd.Index(dict.fromkeys(key for column in columns for key in column.values.index))
    columns = [replace(column, values=column.values.reindex(keys)) for column in columns]
    architectures = [where.parse(key) for key in keys]
    costs = cost_table(keys, where.trained()).set_axis(keys)
    terms = _terms(columns, tuple(map(str, costs)), where)
    columns += [
        Column(name, "Costs and counts", direction_of(name, where.smaller), costs[name])
        for name in map(str, costs)
    ]
    if predicted is not None:
        columns += [
            Column(f"predicted {name}", PREDICTED, +1, predicted[name].reindex(keys))
            for name in ("mean", "low", "high")
        ]
        told = int(predicted["measured"].notna().sum())
        about.append(f"accuracies predicted from {told:,}")
    accuracies = []
    if table is not None:
        accuracies = _accuracies(table, keys, where)
        known = int(max(column.values.notna().sum() for column in accuracies))
        about.append(f"accuracies of {known:,} networks from {table.name}")
    by_run: dict[str, str] = {}
    for column in columns:
        if str(column.score) == FIRST:
            by_run.setdefault(column.run, column.id)
    firsts = [*by_run.values()]
    x, x2 = firsts[:2] if len(firsts) > 1 else (LOG_RANKS, "")
    wanted = [c.id for c in accuracies if METRIC in c.id] + [c.id for c in accuracies]
    guessed = [column.id for column in columns if column.group == PREDICTED][:1]
    if guessed and wanted and not x2:
        x = guessed[0]
    y, *_ = [*wanted, *guessed, *firsts, columns[0].id]
    return Content(
        about="; ".join(about) + ". Scores are means over the seeds.",
        names=[[str(v) for v in where.names(a).values() if v != ""] for a in architectures],
        columns=columns + accuracies,
        terms=terms,
        x=x,
        y=y,
        x2=x2,
        graphs=[where.graphs(a) for a in architectures],
    )


def _names_of(runs: Sequence[Any]) -> list[str]:
    """The names of the runs' folders; runs of one place, such as memory, are numbered."""
    places = [str(run.results.directory) for run in runs]
    names = [_name_of(place, [*dict.fromkeys(places)]) for place in places]
    return [
        name if names.count(name) == 1 else f"{name} {names[: i + 1].count(name)}"
        for i, name in enumerate(names)
    ]


def _name_of(path: str, among: Sequence[str]) -> str:
    """The folder's name, preceded by parents of it where others have the same."""
    parts, others = Path(path).resolve().parts, [Path(p).resolve().parts for p in among]
    length = 1
    while sum(other[-length:] == parts[-length:] for other in others) > 1 and length < len(parts):
        length += 1
    return "/".join(parts[-length:])


def _described(run: ResultSet, rows: pd.DataFrame) -> str:
    """A run's size and images, and the number of networks with a failed score."""
    network, seeds = rows[rows.columns[0]], rows["seed"].nunique()
    wrong = ~rows["status"].isin(["ok", NOT_GIVEN])
    failed = network[wrong].nunique()
    images, samples = (run.configuration.get(name) for name in ("dataset", "samples"))
    return (
        f"{network.nunique():,} networks, {seeds} seed{'' if seeds == 1 else 's'}, {samples} "
        f"images of {images}"
        + (f", {failed:,} networks with a score that failed" if failed else "")
    )


def _scores(rows: pd.DataFrame, run: str) -> list[Column]:
    """A column per score and radius."""
    betas = sorted(set(rows["beta"].dropna()))
    radii = sorted(rows["rho"].unique())
    columns = []
    for rho in radii:
        frame = score_table(rows[rows["rho"] == rho])
        for name in map(str, frame):
            score, radius = ScoreName.parse(name, betas), format_rho(rho)
            # Without an attack a score is the same at every radius.
            if rho != radii[0] and score.kernel in ("clean", "network"):
                continue
            label = name if len(radii) == 1 else f"{name}, ρ = {radius}"
            label += f" ({run})" if run else ""
            group = f"Scores of {run}" if run else "Scores"
            values = frame[name]
            columns.append(Column(label, group, direction_of(name), values, score, radius, run))
    return columns


def _terms(columns: list[Column], costs: tuple[str, ...], space: Space) -> dict[str, int]:
    """The default sum, its scores those of the first run and radius."""
    named: dict[str, Column] = {}
    for column in columns:
        if column.score and column.values.notna().any():
            named.setdefault(str(column.score), column)
    terms = default_sum(space, costs, tuple(named)).terms
    return {
        named[term].id if term in named else term: direction_of(term, space.smaller)
        for term in terms
    }


def _accuracies(table: Table, keys: pd.Index, space: Space) -> list[Column]:
    """A column per data set and metric; refuses a table without results for the networks."""
    known = in_keys_of(space, table)
    measured = [key for key in keys if known.has(key)]
    if not measured:
        raise InputError(
            f"networks that {table.name} has results for",
            f"none of {len(keys):,}",
            "use a table of the same architectures",
        )
    columns = []
    for dataset in table.datasets:
        label = DATASETS[dataset].label if dataset in DATASETS else dataset
        for metric in table.metrics(dataset):
            values = pd.Series(known.accuracies(dataset, metric, measured), measured)
            name = f"{dataset} {metric}"
            columns.append(Column(name, f"Accuracy on {label}", +1, values.reindex(keys)))
    return columns
