"""Percentiles of networks among those of a whole space that was scored alike.

The whole space is a finished run: a result directory of one's own, or one that comes with the
package.
"""

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ntkscore.analysis.frames import default_of, network_table, pick_rho
from ntkscore.analysis.score_names import ROUNDING, ScoreSum, below
from ntkscore.errors import InputError
from ntkscore.results.result_set import ResultSet, differences, leaves
from ntkscore.results.rows import FUNCTIONS
from ntkscore.space import Space

SHIPPED = Path(__file__).parents[1] / "references"
"""The result directories that come with the package, with the terms of the default score."""
MAY_DIFFER = ("rhos", "betas", "proxies")
"""Choices that may differ from a reference's: they add rows and change no others."""

EQUAL = 1e-9
"""Relative difference of two sums of the same numbers."""


class OtherwiseScored(InputError):
    """A run cannot serve as a reference: it was scored in another way, or lacks a score."""


class Population(NamedTuple):
    """The networks to rank among.

    Attributes:
        scores: a row per network, a column per score, cost and count; means over the seeds asked
            for, networks that lack one left out.
        by: the score, or the sum of several, that ranks them.
        source: their description for messages.
    """

    scores: pd.DataFrame
    by: ScoreSum
    source: str

    def percentiles(self, scores: pd.DataFrame) -> pd.Series:
        """The share of these networks, in percent, that each network is better than.

        Equals count half, so that a network of the population is never at 0 or 100. NaN where a
        term of the sum is.
        """
        values, among = (self.by.of(frame, self.scores) for frame in (scores, self.scores))
        among = among.dropna()
        # The ranks of several terms already allow for rounding.
        near = ROUNDING if len(self.by.terms) == 1 else EQUAL
        return 100 * below(values, among, near) / len(among)


def population(
    reference: ResultSet | str | PathLike[str],
    configuration: Mapping[str, object],
    seeds: Sequence[int],
    rho: float,
    by: ScoreSum | None,
    space: Space,
) -> Population:
    """The networks of a run, for others that are scored in the same way.

    Args:
        configuration: what decides the others' scores (`Scoring.configuration` in `ntkscore.run`).
        seeds: theirs, over which scores are averaged.
        by: the score, or the sum of several; None for the default.

    Raises:
        OtherwiseScored: if the run was scored in another way, or lacks a seed, the radius or a
            score.
        InputError: if it is damaged.
    """
    results = reference if isinstance(reference, ResultSet) else ResultSet.open(reference)

    def refuse(difference: str) -> OtherwiseScored:
        return OtherwiseScored(
            f"scores made like those of {results.directory}",
            difference,
            "score alike, or leave the reference out",
        )

    stored, asked = results.configuration, json.loads(json.dumps(configuration))
    theirs, ours = (dict(leaves(one)) for one in (stored, asked))
    # A measure that one of the two does not have changes no others.
    of_one = [name for name in theirs.keys() ^ ours.keys() if name.startswith(FUNCTIONS)]
    if differing := differences(stored, asked, (*MAY_DIFFER, *of_one)):
        raise refuse("; ".join(differing))
    rows, key = results.read(), results.identity[0]
    try:
        rows = pick_rho(rows, rho)
    except InputError as error:
        raise OtherwiseScored(*error.args) from None
    scored = sorted(rows["seed"].unique())
    if absent := [seed for seed in seeds if seed not in scored]:
        raise refuse(f"seed {absent[0]}, of which it has {', '.join(map(str, scored))}")
    rows = rows[rows["seed"].isin(list(seeds))]
    seeds_of = rows.groupby(key)["seed"].nunique()
    rows = rows[rows[key].isin(seeds_of.index[seeds_of == len(seeds)])]
    if rows.empty:
        raise refuse(f"networks with the seeds {', '.join(map(str, seeds))}, of which it has none")
    by = by or default_of(rows, space)
    scores = network_table(rows, space)
    if absent := [term for term in by.terms if term not in scores]:
        raise refuse(f"{absent[0]}, which it does not have")
    return Population(scores, by, f"{len(scores):,} networks in {results.directory}")


def shipped_population(
    configuration: Mapping[str, object],
    seeds: Sequence[int],
    rho: float,
    by: ScoreSum | None,
    space: Space,
    folder: Path = SHIPPED,
) -> Population | None:
    """The networks of the first run in the package that was scored in the same way, if any was."""
    for directory in sorted(folder.glob("*")):
        try:
            found = population(directory, configuration, seeds, rho, by, space)
        except OtherwiseScored:
            continue
        return found._replace(source=f"{len(found.scores):,} networks of {space.name}")
    return None
