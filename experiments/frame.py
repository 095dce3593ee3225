"""A study: its cases are measured into a table, which claims and a figure read.

A module declares one `Study`. Running, resuming, recording and writing pages are the same for all.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.data import Data
from ntkscore.errors import InputError

Verdict = Literal["holds", "holds when corrected", "false", "open", "not computed"]


class Interval(NamedTuple):
    """A number with its 95 % interval; both ends are the number where it is exact.

    Example:
        >>> print(Interval(-0.5, -0.612, -0.4), exact(8))
        -0.500 [-0.612, -0.400] 8
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if not self.low < self.high:
            return number(self.value)
        return f"{number(self.value)} [{number(self.low)}, {number(self.high)}]"


def exact(value: float) -> Interval:
    """A number without an interval: a count, or a coefficient of a whole table."""
    return Interval(float(value), float(value), float(value))


def number(value: float) -> str:
    """Three decimals of a number near 1, three digits of another; counts as they are.

    Example:
        >>> [number(x) for x in (0.5, -2.0, 152059.085, 4e-10, float("nan"))]
        ['0.500', '-2', '1.52e+05', '4e-10', '']
    """
    if not np.isfinite(value):
        return "" if np.isnan(value) else f"{value:g}"
    if value == round(value) and abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:.3f}" if 0.01 <= abs(value) < 100 else f"{value:.3g}"


Rule = Callable[[Interval], Verdict]
"""What decides a claim: the verdict on an interval. Its text says what must be so."""


@dataclass(frozen=True)
class Within:
    """The rule that an interval lies in a range: false if it lies outside of it, else open.

    Example:
        >>> rule = Within(-0.6, -0.4)
        >>> [rule(Interval(x, x - 0.05, x + 0.05)) for x in (-0.5, -0.4, -0.2, float("nan"))]
        ['holds', 'open', 'false', 'not computed']
        >>> print(rule, Within(low=0), Within(high=1))
        from -0.6 to -0.4 0 or more 1 or less
    """

    low: float = -np.inf
    high: float = np.inf

    def __call__(self, found: Interval) -> Verdict:
        if np.isnan(found.value):
            return "not computed"
        if self.low <= found.low and found.high <= self.high:
            return "holds"
        return "false" if found.high < self.low or self.high < found.low else "open"

    def __str__(self) -> str:
        if np.isinf(self.high):
            return f"{self.low:g} or more"
        if np.isinf(self.low):
            return f"{self.high:g} or less"
        return f"{self.low:g}" if self.low == self.high else f"from {self.low:g} to {self.high:g}"


INVERSE_ROOT = Within(-0.6, -0.4)
"""Slopes that count as −1/2."""
NONE = Within(0, 0)
"""The rule that there is no violation."""


def near(value: float, by: float) -> Within:
    """The rule that an interval lies around a printed number."""
    return Within(value - by, value + by)


@dataclass(frozen=True)
class Stronger:
    """The rule that a difference of correlations is above 0 with its interval, and worth a note.

    A difference that is surely smaller than `notable` makes the claim false, however sure its sign;
    so the opposite claim is not true for that, and is judged alike.

    Example:
        >>> rule = Stronger(0.02)
        >>> found = [(0.04, 0.03, 0.05), (0.01, 0.005, 0.015), (0.02, -0.01, 0.05)]
        >>> [rule(Interval(*each)) for each in found]
        ['holds', 'false', 'open']
    """

    notable: float

    def __call__(self, found: Interval) -> Verdict:
        if np.isnan(found.value):
            return "not computed"
        if found.low > 0 and found.value >= self.notable:
            return "holds"
        return "false" if found.high < self.notable else "open"

    def __str__(self) -> str:
        return f"above 0, {self.notable:g} or more"


@dataclass(frozen=True)
class Corrected:
    """The rule of a statement in our corrected form: where it holds, that is what holds."""

    rule: Rule

    def __call__(self, found: Interval) -> Verdict:
        verdict = self.rule(found)
        return "holds when corrected" if verdict == "holds" else verdict

    def __str__(self) -> str:
        return str(self.rule)


class Claim(NamedTuple):
    """A statement, what its source prints, what was found, and the rule that decides.

    Attributes:
        text: the statement.
        printed: the source's number or words.
        found: ours; of several, all must obey the rule.
        rule: decides; its text stands beside the verdict.
        ours: whether the statement is our own question.
    """

    text: str
    printed: object
    found: Interval | Sequence[Interval]
    rule: Rule
    ours: bool = False

    @property
    def each(self) -> list[Interval]:
        """All intervals of the claim."""
        return [self.found] if isinstance(self.found, Interval) else list(self.found)

    @property
    def verdict(self) -> Verdict:
        """The worst of the intervals' verdicts, in the order of `WORST`."""
        verdicts = {self.rule(each) for each in self.each}
        return next(verdict for verdict in WORST if verdict in verdicts)


WORST: tuple[Verdict, ...] = ("false", "not computed", "open", "holds when corrected", "holds")

Rows = Mapping[str, Any] | Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Study:
    """What a module declares.

    Attributes:
        title: heading of its section, and help text.
        measure: of one case, its numbers by column, or several rows of them. It is given the case,
            the fixed settings and `data` as attributes of one object.
        cases: the values of each axis of the grid; without any there is one case.
        fixed: further settings that the numbers depend on.
        full: what `--full` puts in the place of some, for an accelerator.
        claims: statements that the table decides, a dozen at most.
        figure: a drawing of the table.
        table: the part of the table that the page shows, a few rows.
        note: for the page, three sentences at most.
        needs: data sets, tables and recordings that it reads, by name.
        lacks: of these, what is missing for some of its rows, and where it comes from; "" for
            nothing.
        ours: whether the rows are ours to publish, and not those of a table that others made.
    """

    title: str
    measure: Callable[[Any], Rows]
    cases: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    full: Mapping[str, Any] = field(default_factory=dict)
    claims: Callable[[pd.DataFrame], Iterable[Claim]] = lambda frame: ()
    figure: Callable[[pd.DataFrame], Figure] | None = None
    table: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    note: str = ""
    needs: tuple[str, ...] = ()
    lacks: Callable[[Data], str] = lambda data: ""
    ours: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """All that the numbers depend on beside the data: the axes and the fixed settings."""
        return {**self.cases, **self.fixed}

    def at(self, **given: Any) -> "Study":
        """The study with other settings.

        Raises:
            InputError: if it has no setting of that name.
        """
        if unknown := [name for name in given if name not in self.settings]:
            raise InputError(
                f"a setting of this study ({', '.join(self.settings) or 'it has none'})",
                ", ".join(unknown),
                "choose one",
            )
        axes = {name: _listed(given.get(name, values)) for name, values in self.cases.items()}
        fixed = {name: given.get(name, value) for name, value in self.fixed.items()}
        return replace(self, cases=axes, fixed=fixed)

    def frame(self, data: Data, kept: Path | None = None) -> pd.DataFrame:
        """The rows of all cases.

        Args:
            data: tables, images and recordings.
            kept: a file that keeps the rows of finished cases; those that it has are not measured
                again.
        """
        data.check(self.needs)
        before = read_cases(kept, self.settings) if kept else {}
        found: list[dict[str, Any]] = []
        for values in itertools.product(*self.cases.values()):
            case = dict(zip(self.cases, values, strict=True))
            key = to_json(case)
            if key not in before:
                rows = self.measure(SimpleNamespace(**case, **self.fixed, data=data))
                each: Iterable[Any] = [rows] if isinstance(rows, Mapping) else rows
                before[key] = [dict(row) for row in each]
                if kept and self.cases:
                    keep_case(kept, self.settings, key, before[key])
            found += [case | row for row in before[key]]
        return pd.DataFrame(found)


def _listed(values: Any) -> Sequence[Any]:
    return values if isinstance(values, Sequence) and not isinstance(values, str) else [values]


def to_json(value: Any) -> str:
    """JSON of settings or rows; arrays and numbers of NumPy and JAX as Python's."""
    return json.dumps(value, default=lambda array: np.asarray(array).tolist(), ensure_ascii=False)


def read_cases(kept: Path, settings: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Rows by case, of what `keep_case` wrote with these settings."""
    found = {}
    for line in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        with suppress(ValueError):  # A line is cut off where a run was killed.
            of, key, rows = json.loads(line)
            if of == to_json(settings):
                found[key] = rows
    return found


def keep_case(
    kept: Path, settings: Mapping[str, Any], key: str, rows: list[dict[str, Any]]
) -> None:
    """Append the rows of one case to a file, beside the settings."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a", encoding="utf-8") as file:
        file.write("\n" + to_json([to_json(settings), key, rows]))
