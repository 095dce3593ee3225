"""The order of networks by one score, or by a sum of several."""

import pandas as pd

from cells.space import Space
from ntkscore.analysis.frames import network_table
from ntkscore.analysis.percentiles import Population
from ntkscore.analysis.score_names import ScoreSum

LOG_RANKS = "sum of log-ranks"
PERCENTILE = "percentile"


def ranking(
    rows: pd.DataFrame, by: ScoreSum, space: Space, population: Population | None = None
) -> pd.DataFrame:
    """Networks from best to worst, by means over the seeds; those without a score come last.

    Args:
        rows: tidy rows of one radius.
        by: the score to rank by, or the sum of several.
        space: where the networks come from; its costs are those of the networks that it trains.
        population: the networks to rank among; these themselves if left out.

    Returns:
        Rank, short names, the scores, the costs, and the rest of what identifies a network.
    """
    scores = network_table(rows, space)
    value = by.of(scores, population and population.scores)
    order = value.sort_values(ascending=False, kind="stable", na_position="last").index
    architectures = [space.parse(key) for key in order]
    names = pd.DataFrame([space.names(a) for a in architectures], index=order)
    others = pd.DataFrame([space.identity(a) for a in architectures], index=order)
    costs = list(space.costs(architectures[0])) if architectures else []
    terms = [term for term in by.terms if term not in costs]
    others = others.drop(columns=names.columns, errors="ignore")
    columns = [names, scores.loc[order, [*terms, *costs]], others]
    if population is not None:
        percentiles = population.percentiles(scores)
        columns.insert(1, percentiles.loc[order].rename(PERCENTILE).to_frame())
    elif len(by.terms) > 1:
        columns.insert(1, value.loc[order].rename(LOG_RANKS).to_frame())
    frame = pd.concat(columns, axis=1).reset_index(drop=True)
    frame.insert(0, "rank", range(1, len(frame) + 1))
    return frame
