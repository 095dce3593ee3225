"""How well scores order cells: correlations with measured accuracy, signs kept (definitions §6)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from ntkscore.errors import InputError


@dataclass(frozen=True)
class Agreement:
    """One score held against accuracy.

    Attributes:
        status: "ok"; "too_few" (fewer than 3 finite pairs) or "constant" (scores or accuracies
            all equal), where every correlation is NaN.
        n: finite pairs used.
        excluded: cells left out because their score is not finite.
        spearman: rank correlation in [-1, 1], ties averaged.
        spearman_low: lower end of its bootstrap interval.
        spearman_high: upper end of its bootstrap interval.
        kendall: tau-b in [-1, 1].
        spearman_top10: Spearman inside the top 10 % by accuracy; NaN where undefined.
        spearman_top30: Spearman inside the top 30 % by accuracy; NaN where undefined.
        best_index: position of the best-scored cell in the input; None without finite pairs.
        best_accuracy: its accuracy, a fraction.
        best_accuracy_rank: its rank by accuracy among the `n` cells, 1 for the best.
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
    best_index: int | None = None
    best_accuracy: float = np.nan
    best_accuracy_rank: int | None = None


def agreement(
    values: ArrayLike,
    accuracy: ArrayLike,
    direction: int = +1,
    *,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Agreement:
    """Hold one score against accuracy, cell by cell.

    Args:
        values: the score, shape (cells,); cells where it is not finite are left out and counted.
        accuracy: measured accuracy as a fraction, shape (cells,).
        direction: +1 if a higher score predicts a better cell, -1 if a lower one; it decides
            which cell is best-scored and nothing else.
        resamples: bootstrap resamples of the cells, each ranked anew.
        seed: of the bootstrap; equal seeds draw equal cells, so intervals of several scores on
            the same cells are comparable.
        confidence: coverage of the percentile interval, a fraction.

    Returns:
        The correlations with their signs, and the best-scored cell.

    Raises:
        InputError: lengths differ, an accuracy is not finite, or an option is out of range.

    Source:
        Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    values, accuracy = np.asarray(values, np.float64), np.asarray(accuracy, np.float64)
    _check(values, accuracy, direction, resamples, confidence)
    used = np.flatnonzero(np.isfinite(values))
    x, y = values[used], accuracy[used]
    n, excluded = len(used), len(values) - len(used)
    if n == 0:
        return Agreement("too_few", n, excluded)

    best = np.argmax(direction * x)
    pick = {
        "best_index": int(used[best]),
        "best_accuracy": float(y[best]),
        "best_accuracy_rank": 1 + int(np.sum(y > y[best])),
    }
    if n < 3:
        return Agreement("too_few", n, excluded, **pick)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return Agreement("constant", n, excluded, **pick)

    # Dense codes keep order and ties, which is all that rank correlations see.
    x, y = (np.unique(column, return_inverse=True)[1] for column in (x, y))
    low, high = _bootstrap(x, y, resamples, seed, confidence)
    tau: Any = stats.kendalltau(x, y)
    by_accuracy = np.argsort(-y, kind="stable")
    top10, top30 = (by_accuracy[: round(fraction * n)] for fraction in (0.1, 0.3))
    return Agreement(
        "ok",
        n,
        excluded,
        spearman=_spearman(x, y),
        spearman_low=low,
        spearman_high=high,
        kendall=float(tau.statistic),
        spearman_top10=_spearman(x[top10], y[top10]),
        spearman_top30=_spearman(x[top30], y[top30]),
        **pick,
    )


def agreement_table(
    scores: pd.DataFrame,
    accuracy: pd.Series,
    directions: Mapping[str, int],
    baselines: pd.DataFrame,
    *,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Hold every score, and the baselines on the same cells, against accuracy.

    Args:
        scores: one row per compared cell, one column per score.
        accuracy: accuracy as a fraction by cell; may hold more cells.
        directions: +1 or -1 for every score; baselines default to +1.
        baselines: `params` and `flops` by cell; may hold more cells.
        resamples: see `agreement`.
        seed: see `agreement`.
        confidence: see `agreement`.

    Returns:
        One row per score in the given order, then one per baseline; the columns are the fields
        of `Agreement`, with the cell itself as `best_cell` for `best_index`.

    Raises:
        InputError: a cell is repeated or lacks its accuracy or baseline, or a score lacks its
            direction.
    """
    cells = scores.index
    indices = {"scores": cells, "accuracy": accuracy.index, "baselines": baselines.index}
    for name, index in indices.items():
        if not index.is_unique:
            raise InputError(
                f"{name} must hold every cell once, but repeat {_few(index[index.duplicated()])}; "
                "average or select before comparing"
            )
        if len(missing := cells.difference(index)):
            raise InputError(
                f"{name} must cover all {len(cells)} compared cells, but lack {len(missing)} "
                f"({_few(missing)}); leave these cells out"
            )
    if undirected := [name for name in scores.columns if name not in directions]:
        raise InputError(
            f"every score needs a direction, but {', '.join(undirected)} have none; give +1 or -1"
        )

    columns = {**scores, **baselines.loc[cells]}
    measured = accuracy.loc[cells].to_numpy()
    options = {"resamples": resamples, "seed": seed, "confidence": confidence}
    rows = [
        agreement(column.to_numpy(), measured, directions.get(name, +1), **options)
        for name, column in columns.items()
    ]
    table = pd.DataFrame(
        [asdict(row) for row in rows],
        index=pd.Index(columns, name="score"),
        columns=[field.name for field in fields(Agreement)],
    ).rename(columns={"best_index": "best_cell"})
    best = [None if row.best_index is None else cells[row.best_index] for row in rows]
    table["best_cell"] = pd.Series(best, table.index, object).convert_dtypes()
    return table.astype({"best_accuracy_rank": "Int64"})


def _check(
    values: np.ndarray, accuracy: np.ndarray, direction: int, resamples: int, confidence: float
) -> None:
    if values.ndim != 1 or values.shape != accuracy.shape:
        raise InputError(
            "scores and accuracies must be two columns of equal length, but have the shapes "
            f"{values.shape} and {accuracy.shape}; give one accuracy per cell"
        )
    if bad := int(np.sum(~np.isfinite(accuracy))):
        raise InputError(
            f"every accuracy must be finite, but {bad} of {len(accuracy)} are not; leave these "
            "cells out"
        )
    if direction not in (+1, -1):
        raise InputError(f"a score's direction must be +1 or -1, but is {direction}; give either")
    if resamples < 1:
        raise InputError(f"resamples must be at least 1, but are {resamples}; 1000 is usual")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie between 0 and 1, but is {confidence}; 0.95 is usual")


def _few(cells: pd.Index) -> str:
    return ", ".join(map(str, cells[:5])) + (", …" if len(cells) > 5 else "")


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman of non-negative integer codes, ties averaged; NaN where undefined."""
    if len(x) < 3:
        return np.nan
    x, y = _centred_ranks(x), _centred_ranks(y)
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale > 0 else np.nan


def _centred_ranks(codes: np.ndarray) -> np.ndarray:
    # Counting instead of sorting: linear in the cells, so every resample can be ranked exactly.
    counts = np.bincount(codes)
    return (np.cumsum(counts) - counts / 2 - len(codes) / 2)[codes]


def _bootstrap(
    x: np.ndarray, y: np.ndarray, resamples: int, seed: int, confidence: float
) -> tuple[float, float]:
    random, n = np.random.default_rng(seed), len(x)
    drawn = np.empty(resamples)
    for i in range(resamples):
        cells = random.integers(n, size=n)
        drawn[i] = _spearman(x[cells], y[cells])
    # A resample of few cells can be constant, and then says nothing.
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return np.nan, np.nan
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
