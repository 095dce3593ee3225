"""What a measure knows of cells that counting cannot tell apart: a table of docs/ranking.md.

Cells of equal counts are a group. A measure is worth Kendall's τ-b over the pairs of a group's
cells, Σ s(x)s(a) / √(Σ s(x)² Σ s(a)²), s the sign of a pair's difference in the measure and in
accuracy. Two cells that compute one function are one network trained twice: they are no pair.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import typer
from jaxtyping import Float, Int

from experiments.data import BENCHMARK, DATASET, DEFAULT, Data, functions_of
from experiments.frame import Interval
from experiments.page import markdown_table
from experiments.paper.measures import HELD_EQUAL, measured
from ntkscore.analysis.correlation import percentile_interval
from ntkscore.analysis.frames import score_table
from ntkscore.measures.registry import direction_of
from ntkscore.paths import data_home

FAR = "imagenet16-120"
"""The data set that orders the cells in another way than `DATASET`."""
GROUPINGS = {"three counts": ("params", "layers", "path_pools"), "eight counts": HELD_EQUAL}
"""Counts that the cells of a group share."""
AGAIN = "another training of the function"
"""The mean accuracy of the other cells that compute what a cell computes; others have none."""
SHOWN = (
    "clean.vkdnw",
    "clean.jacov",
    "clean.naswot",
    "clean.lambda_min_normalized",
    "robust.lambda_min_normalized",
    "twice.lambda_min_normalized",
    "robust.frobenius",
    str(DEFAULT),
)


class Pairs(NamedTuple):
    """Pairs of cells of one group that compute two functions.

    Attributes:
        first, second: places of the cells.
        group: number of the pair's group.
        groups: how many groups have a pair.
        same: pairs that were left out, since both cells compute one function.
    """

    first: Int[np.ndarray, " pairs"]
    second: Int[np.ndarray, " pairs"]
    group: Int[np.ndarray, " pairs"]
    groups: int
    same: int


def pairs_of(scores: pd.DataFrame, counts: Sequence[str], functions: np.ndarray) -> Pairs:
    """The pairs of cells that have the same counts, without those of one function."""
    places = [each for each in scores.groupby(list(counts)).indices.values() if len(each) > 1]
    upper = [np.triu_indices(len(each), 1) for each in places]
    first, second = (
        np.concatenate([each[ends[k]] for each, ends in zip(places, upper, strict=True)])
        for k in (0, 1)
    )
    group = np.repeat(np.arange(len(places)), [len(ends[0]) for ends in upper])
    two = functions[first] != functions[second]
    names, group = np.unique(group[two], return_inverse=True)
    return Pairs(first[two], second[two], group, len(names), int((~two).sum()))


def tau(
    values: Float[np.ndarray, " cells"],
    accuracy: Float[np.ndarray, " cells"],
    pairs: Pairs,
    resamples: int,
    seed: int = 0,
    *,
    alike: bool = False,
    less: Float[np.ndarray, " cells"] | None = None,
) -> Interval:
    """τ within groups, with its 95 % interval by bootstrap over groups.

    Pairs with a cell whose value is not finite are left out.

    Args:
        values, accuracy: of the cells.
        pairs: those that count.
        resamples, seed: of the bootstrap.
        alike: whether the mean of the groups' own τ is taken, and not that of all pairs.
        less: values of another measure, whose τ in the same draws and of the same pairs is
            subtracted.
    """
    if less is not None:
        values, less = (np.where(np.isfinite(values + less), of, np.nan) for of in (values, less))
    how = (accuracy, pairs, resamples, seed, alike)
    found = _taus(values, *how) - (0 if less is None else _taus(less, *how))
    return Interval(float(found[0]), *percentile_interval(found[1:]))


def _taus(
    values: Float[np.ndarray, " cells"],
    accuracy: Float[np.ndarray, " cells"],
    pairs: Pairs,
    resamples: int,
    seed: int,
    alike: bool,
) -> Float[np.ndarray, " draws"]:
    """τ of all groups, and of each draw of them."""
    known = np.isfinite(values)[pairs.first] & np.isfinite(values)[pairs.second]
    first, second, group = (of[known] for of in (pairs.first, pairs.second, pairs.group))
    x, a = (np.sign(of[first] - of[second]) for of in (values, accuracy))
    sums = np.array([np.bincount(group, of, pairs.groups) for of in (x * a, x * x, a * a)])
    even = np.full(pairs.groups, 1 / pairs.groups)
    drawn = np.random.default_rng(seed).multinomial(pairs.groups, even, resamples)
    weights = np.vstack([np.ones(pairs.groups), drawn]).T
    with np.errstate(invalid="ignore"):
        if alike:
            each = sums[0] / np.sqrt(sums[1] * sums[2])
            there = np.isfinite(each)  # A group whose cells are all equal has none.
            found = each[there] @ weights[there] / weights[there].sum(0)
        else:
            agreeing, moved, apart = sums @ weights
            found = agreeing / np.sqrt(moved * apart)
    return found


def trained_again(
    accuracy: Float[np.ndarray, " cells"], functions: np.ndarray
) -> Float[np.ndarray, " cells"]:
    """Of each cell the mean accuracy of the others of its function; NaN where there are none.

    Example:
        >>> trained_again(np.array([0.2, 0.4, 0.5, 0.9]), np.array([7, 7, 7, 8])).round(2).tolist()
        [0.45, 0.35, 0.3, nan]
    """
    by = pd.Series(accuracy).groupby(functions)
    others = (by.transform("size") - 1).to_numpy(float)
    others[others == 0] = np.nan
    return (by.transform("sum").to_numpy() - accuracy) / others


def rows(
    data: Data,
    names: Sequence[str],
    resamples: int,
    alike: bool = False,
    less: str | None = None,
    among: str | None = None,
) -> Iterator[dict[str, str]]:
    """A row for each measure, and one for `AGAIN` of all cells: τ by grouping and data set.

    Args:
        data: has the recordings.
        names: of the measures.
        resamples, alike: as for `tau`.
        less: a measure whose τ is subtracted, by pairs.
        among: a recording of further measures, whose cells alone count.
    """
    further = score_table(data.rows(among)) if among else pd.DataFrame()
    wanted = [*names, less] if less else names
    scores = measured(data, [name for name in wanted if name not in further])
    if among:
        scores = scores.loc[further.index].assign(**further)

    def signed(name: str) -> Float[np.ndarray, " cells"]:
        return scores[name].to_numpy(float) * (direction_of(name) or 1)

    functions, accuracies = functions_of(scores.index), data.accuracies(scores.index)
    pairs = {name: pairs_of(scores, of, functions) for name, of in GROUPINGS.items()}
    for name in (*names, *([] if among else [AGAIN])):
        row = {"measure": name}
        for grouping, dataset in ((g, d) for g in pairs for d in (DATASET, FAR)):
            accuracy, of = accuracies[dataset], pairs[grouping]
            values = trained_again(accuracy, functions) if name == AGAIN else signed(name)
            head = f"{grouping}, {of.groups:,} groups, {len(of.group):,} pairs, {of.same:,} of one"
            other = signed(less) if less else None
            found = tau(values, accuracy, of, resamples, alike=alike, less=other)
            row[f"{head}: {dataset}"] = f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
        yield row


def equal_counts(
    measures: Annotated[
        list[str] | None, typer.Argument(help="Scores and sums; those of the page if left out.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the tables.")] = None,
    resamples: Annotated[int, typer.Option(min=1, help="Draws behind an interval.")] = 1000,
    alike: Annotated[bool, typer.Option("--alike", help="Take the mean of the groups' τ.")] = False,
    less: Annotated[str | None, typer.Option(help="Subtract this measure's τ, by pairs.")] = None,
    among: Annotated[
        str | None, typer.Option(help="A recording of more measures; its cells alone count.")
    ] = None,
) -> None:
    """Print how measures order cells of equal counts, one network trained twice being no pair."""
    data = Data(data_home(data_dir))
    data.check([BENCHMARK])
    found = pd.DataFrame(rows(data, measures or SHOWN, resamples, alike, less, among))
    typer.echo(markdown_table(found.columns, found.to_numpy(object)))
