"""What cells are ranked by: one score, or several combined."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from cells import Cell
from ntkscore.errors import InputError
from ntkscore.scores import DIRECTIONS
from ntkscore.selection import BASELINES, ScoreName, score_table, with_baselines

DEFAULT = "params+flops+clean.lambda_min_normalized"
"""Size, counted twice, and how well the kernel is conditioned: README.md says why this one."""


LOG_RANKS = "sum of log-ranks"


def parse_terms(text: str, betas: Sequence[float] = (0.5,)) -> tuple[str, ...]:
    """The scores that `A+B` names: each is `params`, `flops` or a kernel's.

    Args:
        text: one score, or several joined by `+`.
        betas: of the run, for the joint kernels.

    Raises:
        InputError: if there is no such kernel or score.
    """
    try:
        return tuple(
            name if name in BASELINES else str(ScoreName.parse(name, betas))
            for name in text.split("+")
        )
    except InputError as error:
        raise InputError(f"{error}; or params, flops, or several joined by +") from None


def direction_of(name: str) -> int:
    """Which way a score, a metric or a baseline predicts a better network: +1 or −1."""
    return DIRECTIONS.get(name.rpartition(".")[2], +1)


def combined(scores: pd.DataFrame, terms: Sequence[str]) -> pd.Series:
    """One number per cell, larger for a better one; NaN where a term is.

    A single score keeps its value, up to the sign. Several become the sum of their log-ranks, the
    worst cell's rank being 1, so that a cell must not be bad by any of them. Ranks are among the
    given cells: scored with others, a cell may come to lie elsewhere.

    Args:
        scores: a line per cell, a column per term.
        terms: names of the columns.

    Source: the sum of log-ranks is how AZ-NAS (Lee and Ham, 2024) combines proxies.
    """
    oriented = scores[list(terms)] * np.array([direction_of(term) for term in terms])
    if len(terms) == 1:
        return oriented.iloc[:, 0]
    known = oriented.dropna()
    return np.log(known.rank()).sum(axis=1).reindex(scores.index)


def ranking(rows: pd.DataFrame, terms: Sequence[str]) -> pd.DataFrame:
    """Cells from best to worst, by means over the seeds; those without a term come last.

    Args:
        rows: tidy rows of one radius.
        terms: the score to rank by, or those to combine.
    """
    scores = with_baselines(score_table(rows))
    order = combined(scores, terms).sort_values(ascending=False, kind="stable", na_position="last")
    scores = scores.loc[order.index]
    listed = [Cell(int(index)) for index in order.index]
    if len(terms) > 1:
        scores = scores.assign(**{LOG_RANKS: order})
    own = [LOG_RANKS] * (len(terms) > 1) + [term for term in terms if term not in BASELINES]
    shown = [*own, *BASELINES]
    return pd.DataFrame(
        {
            "rank": range(1, len(order) + 1),
            "cell": [cell.index for cell in listed],
            "digits": [cell.digits for cell in listed],
            **{name: scores[name].to_numpy() for name in shown},
            "string": [cell.string for cell in listed],
        }
    )
