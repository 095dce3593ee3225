"""The order of networks by one score, or by a sum of several."""

from typing import NamedTuple

import pandas as pd

from ntkscore.analysis.frames import default_of, network_table
from ntkscore.analysis.percentiles import Population
from ntkscore.analysis.score_names import ScoreSum, default_sum
from ntkscore.space import Space

LOG_RANKS = "sum of log-ranks"
PERCENTILE = "percentile"


class Ranking(NamedTuple):
    """Networks from best to worst.

    Attributes:
        frame: rank, short names, the scores, the costs, and the rest of what identifies a network;
            a row per network.
        by: the score, or the sum of several, that it is by.
        space: where the networks come from.
        among: the networks of a reference that they are ranked among; None for themselves.
    """

    frame: pd.DataFrame
    by: ScoreSum
    space: Space
    among: Population | None

    @classmethod
    def of(
        cls,
        rows: pd.DataFrame,
        by: ScoreSum | None,
        space: Space,
        among: Population | None = None,
    ) -> "Ranking":
        """Networks by means over the seeds; those without a score come last.

        Args:
            rows: tidy rows of one radius.
            by: the score to rank by, or the sum of several; None for the default, without the
                terms that none of the networks gives. A reference's own comes first.
            space: where the networks come from; its costs are those of the networks that it trains.
            among: the networks of a reference to rank among; these themselves if left out.
        """
        if rows.empty:
            by = among.by if among else by or default_sum(space, ())
            return cls(pd.DataFrame(columns=["rank", rows.columns[0]]), by, space, among)
        scores = network_table(rows, space)
        by = sum_for(rows, by, space, among)
        value = by.of(scores, among and among.scores)
        order = value.sort_values(ascending=False, kind="stable", na_position="last").index
        architectures = [space.parse(key) for key in order]
        names = pd.DataFrame([space.names(a) for a in architectures], index=order)
        others = pd.DataFrame([space.identity(a) for a in architectures], index=order)
        others = others.drop(columns=names.columns, errors="ignore")
        costs = [*space.costs(architectures[0]), *space.measured_names]
        terms = [term for term in by.terms if term not in costs]
        place = []
        if among is not None:
            place = [among.percentiles(scores).loc[order].rename(PERCENTILE)]
        elif len(by.terms) > 1:
            place = [value.loc[order].rename(LOG_RANKS)]
        columns = [names, *place, scores.loc[order, [*terms, *costs]], others]
        frame = pd.concat(columns, axis=1).reset_index(drop=True)
        frame.insert(0, "rank", range(1, len(frame) + 1))
        return cls(frame, by, space, among)


def values_of(
    rows: pd.DataFrame, by: ScoreSum | None, space: Space, among: Population | None = None
) -> pd.Series:
    """One number per network, larger for a better one; −∞ where a score failed.

    Args:
        rows, by, space, among: as for `Ranking.of`.
    """
    by = sum_for(rows, by, space, among)
    return by.of(network_table(rows, space), among and among.scores).fillna(float("-inf"))


def sum_for(
    rows: pd.DataFrame, by: ScoreSum | None, space: Space, among: Population | None
) -> ScoreSum:
    """The score to rank by: a reference's, else `by`, else the rows' part of the default."""
    if among is not None:
        return among.by
    return by or default_of(rows, space)
