"""The ranking of what a run has left."""

from collections.abc import Sequence
from os import PathLike
from typing import NamedTuple

import pandas as pd

from cells.space import Architecture, Space
from ntkscore.analysis.frames import given_scores, network_table, pick_rho
from ntkscore.analysis.percentiles import Population, shipped_population
from ntkscore.analysis.ranking import ranking
from ntkscore.analysis.score_names import ScoreSum, default_for, sum_named
from ntkscore.config import Config
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.paths import results_path
from ntkscore.results import ResultSet
from ntkscore.run.selection import select
from ntkscore.spaces import from_record, known_space


class Ranked(NamedTuple):
    """A ranking, and what it came about by.

    Attributes:
        frame: from best to worst.
        by: the score that counts.
        space: where the networks come from.
        among: the networks of a reference that they are ranked among.
    """

    frame: pd.DataFrame
    by: ScoreSum
    space: Space
    among: Population | None


def ranked(
    results: ResultSet,
    architectures: Sequence[Architecture],
    seeds: Sequence[int],
    config: Config,
    by: ScoreSum | None,
    space: Space,
    among: Population | None = None,
) -> Ranked:
    """Ranking of the given architectures, as far as a result directory has them.

    Of several radii the config's first counts. The default, None, goes without scores that none
    of the networks gives.
    """
    rows = rows_of(results, architectures, seeds, config, space)
    by = sum_for(rows, by, space, architectures[0], among)
    if rows.empty:
        return Ranked(pd.DataFrame(columns=["rank", results.identity[0]]), by, space, among)
    return Ranked(ranking(rows, by, space, among), by, space, among)


def sum_for(
    rows: pd.DataFrame,
    by: ScoreSum | None,
    space: Space,
    architecture: Architecture,
    among: Population | None,
) -> ScoreSum:
    """The score that counts: a reference's, the one asked for, or what rows have of the default."""
    if among is not None:
        return among.by
    return by or default_for(space, architecture, given_scores(rows))


def rows_of(
    results: ResultSet,
    architectures: Sequence[Architecture],
    seeds: Sequence[int],
    config: Config,
    space: Space,
) -> pd.DataFrame:
    """The rows of these architectures and seeds at the config's first radius."""
    rows = results.read()
    keys = [space.key(a) for a in architectures]
    rows = rows[rows[results.identity[0]].isin(keys) & rows["seed"].isin(list(seeds))]
    return rows if rows.empty else pick_rho(rows, config.rhos[0])


def rank_results(
    directory: str | PathLike[str] = "recorded",
    architectures: str | Sequence[Architecture] | None = None,
    *,
    by: str | None = None,
    table: Table | None = None,
    space: type[Space] | None = None,
) -> pd.DataFrame:
    """Rank what a run holds, over all its seeds, and compute nothing.

    Args:
        directory: a run's result directory; `recorded` for the scores that come with the package.
        architectures: which of its networks, as for `rank`; all of them if left out.
        by: a score, or several joined by `+`; the default sum if left out. Of several radii the
            run's first counts.
        table: for the specifications `table` and `table:K`.
        space: the class of a space of one's own.

    Returns:
        As `rank` does.

    Raises:
        InputError: if there is no run, or it lacks the networks or the scores.

    Example:
        >>> ranked = rank_results("recorded", by="clean.trace")
        >>> len(ranked), list(ranked.columns[:4])
        (6466, ['rank', 'cell', 'digits', 'clean.trace'])
    """
    results, where = run_of(directory, space)
    return ranked_results(results, architectures, where, by, table).frame


def ranked_results(
    results: ResultSet,
    architectures: str | Sequence[Architecture] | None,
    space: Space,
    by: str | None = None,
    table: Table | None = None,
) -> Ranked:
    """The ranking of a run's networks over all its seeds.

    Args:
        results: of the run.
        architectures, by, table: as for `rank_results`.
        space: of the run.

    Raises:
        InputError: if it lacks the networks or the scores.
    """
    config, key = from_record(Config, results.configuration), results.identity[0]
    rows = pick_rho(results.read(), config.rhos[0])
    there = [space.parse(str(name)) for name in rows[key].unique()]
    if isinstance(architectures, str):
        architectures = select(architectures, space, table)
    elif architectures is not None:
        architectures = [space.parse(name) for name in architectures]
    chosen = set(there if architectures is None else architectures) & set(there)
    if not chosen:
        raise InputError(
            f"expected some of the {len(there)} networks in {results.directory}, got none of "
            "them; choose others"
        )
    first = next(each for each in there if each in chosen)
    rows = rows[rows[key].isin([space.key(each) for each in chosen])]
    asked = None if by is None else sum_named(by, space, first, config.betas)
    if asked is not None:
        scores = network_table(rows, space)
        if absent := [term for term in asked.terms if term not in scores]:
            raise InputError(
                f"expected a score that {results.directory} holds, got {absent[0]!r}; choose one "
                f"of {', '.join(scores.columns)}"
            )
    seeds = sorted(set(rows["seed"].tolist()))
    among = shipped_population(results.configuration, seeds, config.rhos[0], asked, space)
    counting = sum_for(rows, asked, space, first, among)
    return Ranked(ranking(rows, counting, space, among), counting, space, among)


def run_of(
    directory: str | PathLike[str], space: type[Space] | None = None
) -> tuple[ResultSet, Space]:
    """A run and its space.

    Args:
        directory: its result directory, or `recorded`.
        space: the class of a space of one's own.

    Raises:
        InputError: if there is no run, or its space is not known.
    """
    results = ResultSet.open(results_path(directory))
    return results, known_space(results, space)
