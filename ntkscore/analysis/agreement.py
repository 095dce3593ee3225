"""Agreement of scores with measured accuracy: correlations, signs kept."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ntkscore.analysis.correlation import (
    FEWEST,
    Statistic,
    as_columns,
    check_accuracy,
    check_interval,
    group_codes,
    percentile_interval,
    rank_codes,
    resampled_spearman,
    spearman_of_codes,
)
from ntkscore.errors import InputError

CONFIDENCE = 0.95
"""Coverage of an interval."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of one score with accuracy: correlations, and the best-scored cell.

    Attributes:
        status: "ok"; "too_few" (fewer than 3 finite pairs) or "constant" (scores or accuracies
            all equal), where every correlation is NaN.
        n: finite pairs used.
        excluded: cells left out because their score is not finite.
        spearman: rank correlation in [-1, 1], ties averaged.
        spearman_low, spearman_high: ends of its bootstrap interval.
        kendall: tau-b in [-1, 1].
        spearman_top10, spearman_top30: Spearman inside the top 10 % and 30 % by accuracy, or NaN.
        ndcg: normalised discounted cumulative gain of the 10 % that are scored best, in [0, 1]; the
            gain is accuracy, 0 for the worst cell and 1 for the best.
        best_index: position of the best-scored cell in the input; None without finite pairs.
        best_accuracy: its accuracy, a fraction.
        best_accuracy_rank: its rank by accuracy among the `n` cells, 1 for the best.
        first_ten_accuracy: mean accuracy of the ten best-scored cells, of all where they are fewer.
    """

    status: Literal["ok", "too_few", "constant"]
    n: int
    excluded: int
    spearman: float = np.nan
    spearman_low: float = np.nan
    spearman_high: float = np.nan
    kendall: float = np.nan
    spearman_top10: float = np.nan
    spearman_top30: float = np.nan
    ndcg: float = np.nan
    best_index: int | None = None
    best_accuracy: float = np.nan
    best_accuracy_rank: int | None = None
    first_ten_accuracy: float = np.nan


def agreement(
    values: ArrayLike,
    accuracy: ArrayLike,
    direction: int = +1,
    *,
    groups: ArrayLike | None = None,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> Agreement:
    """Agreement of one score with measured accuracy, cell by cell.

    Args:
        values: the score, shape (cells,); cells where it is not finite are left out and counted.
        accuracy: measured accuracy as a fraction, shape (cells,).
        direction: +1 if a higher score predicts a better cell, -1 if a lower one. It decides
            which cells are best-scored, and so the best cell, `ndcg` and `first_ten_accuracy`;
            correlations keep their signs.
        groups: a value for each cell, shape (cells,), equal for those that are drawn together, such
            as cells that compute the same function; without it each cell is drawn by itself.
        resamples: bootstrap resamples, each ranked anew.
        seed: random seed of the bootstrap; equal seeds draw equal cells, so that intervals of
            several scores on the same cells are comparable.
        confidence: coverage of the percentile interval, a fraction.

    Raises:
        InputError: lengths differ, an accuracy is not finite, or an option is out of range.

    Example:
        >>> result = agreement([3.0, 1.0, np.nan, 2.0], [0.5, 0.1, 0.3, 0.2])
        >>> result.spearman, result.n, result.excluded
        (1.0, 3, 1)
        >>> result.best_index, result.best_accuracy
        (0, 0.5)

    Source:
        Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    from scipy import stats  # slow to import, and needed here alone

    check_interval(resamples, confidence)
    codes = None if groups is None else group_codes(groups, np.size(values))
    values, accuracy = as_columns(values, accuracy)
    check_accuracy(accuracy)
    if direction not in (+1, -1):
        raise InputError("a score's direction to be +1 or -1", direction, "give either")
    used = np.flatnonzero(np.isfinite(values))
    x, y = values[used], accuracy[used]
    n, excluded = len(used), len(values) - len(used)
    if n == 0:
        return Agreement("too_few", n, excluded)

    order = np.argsort(-direction * x, kind="stable")
    best = order[0]
    pick = {
        "best_index": int(used[best]),
        "best_accuracy": float(y[best]),
        "best_accuracy_rank": 1 + int(np.sum(y > y[best])),
        "first_ten_accuracy": float(np.mean(y[order[:10]])),
    }
    if n < FEWEST:
        return Agreement("too_few", n, excluded, **pick)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return Agreement("constant", n, excluded, **pick)

    ndcg = _ndcg(y[order], round(0.1 * n))
    x, y = rank_codes(x), rank_codes(y)
    together = None if codes is None else codes[used].tobytes()
    low, high = percentile_interval(
        _bootstrap(y.tobytes(), together, resamples, seed)(x), confidence
    )
    by_accuracy = np.argsort(-y, kind="stable")
    top10, top30 = (by_accuracy[: round(fraction * n)] for fraction in (0.1, 0.3))
    return Agreement(
        "ok",
        n,
        excluded,
        spearman=spearman_of_codes(x, y),
        spearman_low=low,
        spearman_high=high,
        kendall=float(stats.kendalltau(x, y)[0]),
        spearman_top10=spearman_of_codes(x[top10], y[top10]),
        spearman_top30=spearman_of_codes(x[top30], y[top30]),
        ndcg=ndcg,
        **pick,
    )


@lru_cache(maxsize=1)
def _bootstrap(accuracy: bytes, groups: bytes | None, resamples: int, seed: int) -> Statistic:
    """`resampled_spearman` by codes of accuracies and of groups, which several scores share."""
    together = None if groups is None else np.frombuffer(groups, np.intp)
    return resampled_spearman(np.frombuffer(accuracy, np.intp), resamples, seed, together)


def _ndcg(accuracies: np.ndarray, count: int) -> float:
    """Normalised discounted cumulative gain of the first `count` accuracies; NaN for none.

    Source: Järvelin and Kekäläinen (2002), "Cumulated gain-based evaluation of IR techniques".
    """
    gains = (accuracies - accuracies.min()) / np.ptp(accuracies)
    discounts = 1 / np.log2(2 + np.arange(count))
    best = np.sort(gains)[::-1]
    return float(gains[:count] @ discounts / (best[:count] @ discounts)) if count else np.nan


def agreement_table(
    columns: pd.DataFrame,
    accuracy: ArrayLike,
    directions: Mapping[str, int],
    *,
    groups: ArrayLike | None = None,
    resamples: int = 1000,
) -> pd.DataFrame:
    """Agreement of every column with accuracy, on the same cells.

    Args:
        columns: a row per cell, each once, and a column per score, cost or count.
        directions: of every column, as for `agreement`.

    Returns:
        One row per column, in their order; its columns are the fields of `Agreement`, with the cell
        itself as `best_cell` for `best_index`.
    """
    check_interval(resamples, CONFIDENCE)
    codes = None if groups is None else group_codes(groups, len(columns))
    rows = [
        agreement(column, accuracy, directions[str(name)], groups=codes, resamples=resamples)
        for name, column in columns.items()
    ]
    _bootstrap.cache_clear()  # a hundred megabytes for some thousand cells
    table = pd.DataFrame(
        [asdict(row) for row in rows],
        index=pd.Index(columns.columns, name="score"),
        columns=[field.name for field in fields(Agreement)],
    ).rename(columns={"best_index": "best_cell"})
    best = [None if row.best_index is None else columns.index[row.best_index] for row in rows]
    table["best_cell"] = pd.Series(best, table.index, object).convert_dtypes()
    return table.astype({"best_accuracy_rank": "Int64"})
