"""Slopes and rank correlations with intervals, and verdicts on statements by them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.study import Finding, Verdict, verdict
from experiments.theory.seeds import Interval, crossing, log_slope, over_seeds
from ntkscore.analysis.correlation import spearman
from ntkscore.analysis.paired import partial_spearman

Truth = bool | np.bool_
RESAMPLES = 300
"""Resamples of the networks behind an interval."""
INVERSE_ROOT = (-0.6, -0.4)
"""Slopes that count as −1/2."""


class Findings(list[Finding]):
    """Statements of a paper beside what was measured, in the order in which they were added."""

    def add(self, what: str, paper: str, ours: str, decided: Verdict | Truth, why: str) -> None:
        """Add one that has no interval; for its fields see `Finding`."""
        known = decided if isinstance(decided, str) else verdict(decided)
        self.append(Finding(what, paper, ours, known, why))

    def measure(
        self,
        what: str,
        paper: str,
        found: Interval | Mapping[str, Interval],
        low: float,
        high: float,
        why: str,
    ) -> None:
        """Add one by its interval, or by several under their names, and a range.

        Args:
            what: the statement.
            paper: the paper's number or words.
            found: what was measured.
            low: lower end of the range that the statement gives, or -inf.
            high: upper end, or inf.
            why: what was measured, and how; the range comes after it.
        """
        several = isinstance(found, Mapping)
        intervals = list(found.values()) if several else [found]
        ours = "; ".join(f"{name}: {one}" for name, one in found.items()) if several else str(found)
        why = f"{why}; must lie {range_text(low, high)}"
        self.add(what, paper, ours, within(intervals, low, high), why)


def range_text(low: float, high: float) -> str:
    """The text of a range.

    Example:
        >>> range_text(-0.6, -0.4), range_text(1, np.inf), range_text(-np.inf, 0.5)
        ('from -0.6 to -0.4', 'above 1', 'below 0.5')
    """
    if np.isinf(high):
        return f"above {low:g}"
    return f"below {high:g}" if np.isinf(low) else f"from {low:g} to {high:g}"


class Agreement(NamedTuple):
    """A rank correlation: its mean over the seeds, each seed's, and the number of networks."""

    mean: Interval
    seeds: np.ndarray
    networks: int


def means_by_seed(
    frame: pd.DataFrame, x: str, y: str, statistic: Callable[[np.ndarray, np.ndarray], float]
) -> Interval:
    """A statistic of x, ascending, and of y's means over the seeds, with an interval over seeds.

    Rows of one value of x and one seed are averaged first.
    """
    table = frame.pivot_table(index="seed", columns=x, values=y, aggfunc="mean")
    at = table.columns.to_numpy(float)
    return over_seeds(table.to_numpy(), lambda values: statistic(at, values.mean(0)))


def slope(frame: pd.DataFrame, x: str, y: str) -> Interval:
    """The slope of log y, averaged over the seeds first, against log x, with an interval."""
    return means_by_seed(frame, x, y, log_slope)


def ratio(table: pd.DataFrame, above: object, below: object) -> Interval:
    """The mean of one column of a table by seed over that of another."""
    pairs = table[[above, below]].dropna().to_numpy()
    return over_seeds(pairs, lambda drawn: float(np.divide(*drawn.mean(0))))


def crossings(
    frame: pd.DataFrame, by: str, x: str, level: float
) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """The places in x where robust accuracy crosses a level, for each value of another column.

    Returns:
        The values of that column; accuracies with a row by seed; and a function of some such rows:
        the place in x where their mean crosses the level, for each value.
    """
    table = frame.pivot_table(index="seed", columns=[by, x], values="robust")
    group, at = (table.columns.get_level_values(name).to_numpy() for name in (by, x))
    groups = np.unique(group)

    def crossed(rows: np.ndarray) -> np.ndarray:
        means = rows.mean(0)
        parts = [group == each for each in groups]
        return np.array([crossing(at[part], means[part], level) for part in parts])

    return groups, table.to_numpy(), crossed


def within(intervals: Sequence[Interval], low: float, high: float) -> Verdict:
    """The verdict that a range holds all of some intervals.

    Returns:
        "reproduced" where all intervals lie inside the range, "not reproduced" where one is apart
        from it, else "not decidable". A number or an interval that is not known decides nothing.

    Example:
        >>> within([Interval(-0.5, -0.55, -0.45)], -0.6, -0.4)
        'reproduced'
        >>> within([Interval(-0.4, -0.5, -0.3)], -0.6, -0.4)
        'not decidable'
        >>> within([Interval(np.nan, -0.55, -0.45)], -0.6, -0.4)
        'not decidable'
    """
    if not all(np.isfinite(each.value) for each in intervals):
        return "not decidable"
    inside = all(low <= each.low and each.high <= high for each in intervals)
    return verdict(inside, any(each.high < low or high < each.low for each in intervals))


def agreement(
    frame: pd.DataFrame,
    measured: str,
    predicted: str,
    control: str | None = None,
) -> Agreement:
    """Spearman over networks by seed, and the interval of its mean from resampled networks.

    Networks where a seed has no number are left out. With a column to control for, the correlation
    is partial.
    """
    columns = [measured, predicted]
    wide = frame.pivot(index="network", columns="seed", values=columns)
    theirs, ours = (wide[name].to_numpy(float) for name in columns)
    (chosen,) = np.nonzero(np.isfinite(theirs).all(1) & np.isfinite(ours).all(1))
    controls = frame.groupby("network")[control].first().to_numpy() if control else None

    def by_seed(rows: np.ndarray) -> np.ndarray:
        pairs = zip(ours[rows].T, theirs[rows].T, strict=True)
        if controls is None:
            return np.array([spearman(p, m) for p, m in pairs])
        return np.array([partial_spearman(p, m, controls[rows]) for p, m in pairs])

    rng = np.random.default_rng(0)
    drawn = [by_seed(rng.choice(chosen, len(chosen))).mean() for _ in range(RESAMPLES)]
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    seeds = by_seed(chosen)
    return Agreement(Interval(float(seeds.mean()), float(low), float(high)), seeds, len(chosen))


def positive(found: Iterable[Agreement]) -> Verdict:
    """The verdict that all are above zero, each with its interval and all seeds.

    One that is below zero with its interval and all seeds contradicts it.
    """
    found = list(found)
    above = all(interval.low > 0 and (seeds > 0).all() for interval, seeds, _ in found)
    below = any(interval.high < 0 and (seeds < 0).all() for interval, seeds, _ in found)
    return verdict(above, below)
