"""The order of networks by one score, or by a sum of several; their front beside costs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from ntkscore.analysis.frames import default_of
from ntkscore.analysis.percentiles import Population
from ntkscore.analysis.score_names import ScoreSum
from ntkscore.errors import InputError
from ntkscore.space import Space

LOG_RANKS = "sum of log-ranks"
PERCENTILE = "percentile"


class Ranking(NamedTuple):
    """Networks from best to worst.

    Attributes:
        frame: rank, short names, the scores, the costs, and the rest of what identifies a network;
            a row per network.
        among: the networks of a reference that they are ranked among; None for themselves.
        front: of `frame`, the networks that no other beats; all of them where no cost was named.
    """

    frame: pd.DataFrame
    by: ScoreSum
    space: Space
    among: Population | None
    front: pd.DataFrame

    @classmethod
    def of(
        cls,
        scores: pd.DataFrame,
        by: ScoreSum,
        space: Space,
        among: Population | None = None,
        pareto: Sequence[str] = (),
    ) -> "Ranking":
        """Networks by means over the seeds; those without a score come last.

        Args:
            scores: the networks' table (`ntkscore.analysis.frames.network_table`).
            by: the score to rank by; that of the reference where there is one.
            space: its costs are those of the networks that it trains.
            among: the networks of a reference to rank among; these themselves if left out.
            pareto: costs or counts, of which less is better, that the front is beside.
        """
        value = by.of(scores, among and among.scores)
        if pareto:
            check_pareto(by, pareto, space, value.index[0])
        order = value.sort_values(ascending=False, kind="stable", na_position="last").index
        architectures = [space.parse(key) for key in order]
        names = pd.DataFrame([space.names(a) for a in architectures], index=order)
        others = pd.DataFrame([space.identity(a) for a in architectures], index=order)
        others = others.drop(columns=names.columns, errors="ignore")
        costs = [*space.costs(architectures[0]), *space.measured_names]
        costs += [name for name in pareto if name not in costs]
        terms = [term for term in by.terms if term not in costs]
        place = []
        if among is not None:
            place = [among.percentiles(scores).loc[order].rename(PERCENTILE)]
        elif len(by.terms) > 1:
            place = [value.loc[order].rename(LOG_RANKS)]
        columns = [names, *place, scores.loc[order, [*terms, *costs]], others]
        frame = pd.concat(columns, axis=1).reset_index(drop=True)
        frame.insert(0, "rank", range(1, len(frame) + 1))
        front = frame
        if pareto:
            front = frame[non_dominated(objectives_of(value.loc[order], scores, pareto))]
        return cls(frame, by, space, among, front)


def check_pareto(by: ScoreSum | None, pareto: Sequence[str], space: Space, key: object) -> None:
    """Refuse what is no cost or count of a network, one that is named twice, and the score."""
    alone = by is not None and by.terms in [(name,) for name in pareto]
    if len({*pareto}) < len(pareto) or alone:
        raise InputError("each cost once, beside another score", ", ".join(pareto), "leave it out")
    space.check_counted(pareto, space.trained().counted(space.parse(key)))


def objectives_of(
    value: pd.Series, scores: pd.DataFrame, pareto: Sequence[str]
) -> Float[np.ndarray, "networks objectives"]:
    """What a front is of, larger for a better network: the score, and each cost with a minus."""
    return np.column_stack([value, -scores.loc[value.index, list(pareto)]])


def non_dominated(objectives: Float[np.ndarray, "n k"]) -> Bool[np.ndarray, " n"]:
    """Which rows no other dominates: none is as good in all columns and better in one.

    Larger is better. A row that is not finite is never one of them.

    Example:
        >>> non_dominated(np.array([[3.0, -9], [2, -5], [1, -5], [3, -9], [4, np.nan]])).tolist()
        [True, True, False, True, False]
    """
    found = np.zeros(len(objectives), bool)
    front = np.empty((0, objectives.shape[1]))
    for place in np.lexsort(-objectives.T[::-1]):
        row = objectives[place]
        worse = (front >= row).all(axis=1) & (front > row).any(axis=1)
        found[place] = np.isfinite(row).all() and not worse.any()
        if found[place]:
            front = np.vstack([front, row])
    return found


def sum_for(
    rows: pd.DataFrame, by: ScoreSum | None, space: Space, among: Population | None
) -> ScoreSum:
    """The score to rank by: a reference's, else the one asked for, else the rows' default."""
    return among.by if among is not None else by or default_of(rows, space)
