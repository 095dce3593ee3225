"""Scores by name: one of a kernel, or several added up by rank."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np

from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.kernels import joint
from ntkscore.measures import MEASURES
from ntkscore.measures.registry import PLACES, direction_of, measures_at
from ntkscore.space import COSTS, Architecture, Space

if TYPE_CHECKING:
    import pandas

ROUNDING = 1e-4
"""Relative difference of a score between two runs, or of a recorded one, that rounding explains."""


@dataclass(frozen=True)
class ScoreName:
    """A score of a kernel, written `robust.frobenius` or `joint_robust@0.5.trace`.

    Example:
        >>> ScoreName.parse("joint_robust.trace", betas=(0.25,))
        ScoreName(kernel='joint_robust', score='trace', beta=0.25)
    """

    kernel: str
    score: str
    beta: float | None = None

    def __str__(self) -> str:
        beta = "" if self.beta is None else f"@{self.beta:g}"
        return f"{self.kernel}{beta}.{self.score}"

    @classmethod
    def parse(
        cls, text: str, betas: Sequence[float] = (0.5,), there: Sequence[str] = ()
    ) -> "ScoreName":
        """The score that a text names; without β, a joint kernel's is the run's only one.

        Args:
            there: names of the run's scores, which a refusal offers; any if left out.
        """
        kernel, _, score = text.rpartition(".")
        kernel, _, beta = kernel.partition("@")
        measures = measures_at(kernel) or MEASURES
        allowed = [name for name, measure in measures.items() if measure.direction]
        if kernel not in PLACES or score not in allowed:
            known = [f"{k}.{n}" for k in PLACES for n, m in measures_at(k).items() if m.direction]
            known = [name for name in there if "." in name] or known
            kernels, scores = zip(*(name.rsplit(".", 1) for name in known), strict=True)
            if kernel in PLACES:
                scores = [s for k, s in zip(kernels, scores, strict=True) if k == kernel] or scores
            raise InputError(
                f"KERNEL.SCORE with a kernel of {', '.join(dict.fromkeys(kernels))} and a score "
                f"of {', '.join(dict.fromkeys(scores))}",
                repr(text),
                f"for example {nearest(text, known)}",
            )
        if kernel not in joint.JOINT:
            if beta:
                raise InputError(f"no β for {kernel}", repr(beta), "leave it out")
            return cls(kernel, score)
        values = {f"{b:g}": b for b in betas}
        beta = beta or (next(iter(values)) if len(values) == 1 else "")
        if beta not in values:
            raise InputError(
                f"one of the run's β ({', '.join(values)}) in {text!r}",
                beta or "none",
                f"write {kernel}@{next(iter(values))}.{score}",
            )
        return cls(kernel, score, values[beta])


def nearest(text: str, names: Sequence[str]) -> str:
    """The score's name that is most like a text: of one score by several kernels `clean` first.

    Example:
        >>> names = ["twice.trace", "cross.trace", "clean.trace", "robust.lambda_min"]
        >>> nearest("trace", names), nearest("robst.lambda_min", names)
        ('clean.trace', 'robust.lambda_min')
    """
    kernel, _, score = text.rpartition(".")

    def likeness(name: str) -> tuple[float, ...]:
        its, _, same = name.rpartition(".")
        place = its.partition("@")[0]
        pairs = (score, same), (kernel, its if kernel else "")
        alike = (SequenceMatcher(None, *pair).ratio() for pair in pairs)
        return *alike, -PLACES.index(place) if place in PLACES else -len(PLACES)

    return max(names, key=likeness)


@dataclass(frozen=True)
class ScoreSum:
    """One score, or several added up by the logarithms of their ranks, written `A+B`.

    Attributes:
        terms: names of scores, of accuracies, or of costs and counts such as `params`.
        fewer: those of them that are counts of which fewer are better.

    Source: the sum of log-ranks is how AZ-NAS (Lee and Ham, 2024) combines proxies.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"params": [10, 30, 20], "clean.condition": [5.0, 9.0, 7.0]})
        >>> ScoreSum.parse("params+clean.condition").of(frame).round(2).tolist()
        [1.1, 1.1, 1.39]
    """

    terms: tuple[str, ...]
    fewer: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "+".join(self.terms)

    @classmethod
    def parse(
        cls,
        text: str,
        betas: Sequence[float] = (0.5,),
        costs: Sequence[str] = COSTS,
        fewer: Sequence[str] = (),
        there: Sequence[str] = (),
    ) -> "ScoreSum":
        """The sum that a text names.

        Args:
            betas: of the run, for the joint kernels.
            costs: names of the space's costs and counts.
            fewer: those of which fewer are better.
            there: names of the run's scores, which a refusal offers; any if left out.
        """
        names = text.split("+")
        if repeated := [name for name in names if names.count(name) > 1]:
            raise InputError("every score of a sum once", f"{repeated[0]!r} again", "leave it out")
        try:
            terms = tuple(n if n in costs else str(ScoreName.parse(n, betas, there)) for n in names)
            return cls(terms, tuple(n for n in names if n in fewer))
        except InputError as error:
            also = ", ".join([*costs, "or several joined by +"])
            raise InputError(error.expected, error.got, f"{error.remedy}; or {also}") from None

    def of(
        self, frame: "pandas.DataFrame", among: "pandas.DataFrame | None" = None
    ) -> "pandas.Series":
        """One number per row, larger for a better one; NaN where a term is.

        A single score keeps its value, up to the sign. Several become the sum of their log-ranks,
        counted from the worst network, so that a network must not be bad by any of them.

        Args:
            among: the networks to rank among, perhaps scored in another run, so that values are
                equal up to rounding. The frame's own if left out; a network's ranks then depend
                on the others in the frame.
        """
        values = self._oriented(frame)
        if len(self.terms) == 1:
            return values.iloc[:, 0]
        population = (values if among is None else self._oriented(among)).dropna()
        near = 0 if among is None else ROUNDING
        return sum(np.log(below(values[t], population[t], near) + 0.5) for t in self.terms)

    def _oriented(self, frame: "pandas.DataFrame") -> "pandas.DataFrame":
        """The terms' columns, larger for a better network; NaN in all where it is in one."""
        directions = [direction_of(term, self.fewer) for term in self.terms]
        oriented = frame[list(self.terms)] * np.array(directions)
        return oriented.where(oriented.notna().all(axis=1))


def below(values: "pandas.Series", among: "pandas.Series", near: float = 0.0) -> "pandas.Series":
    """The number of a population below each value; those equal to it count half.

    Values are equal up to the relative difference `near`. NaN stays NaN; the population has none.

    Example:
        >>> import pandas as pd
        >>> below(pd.Series([1.0, 2.0, 2.5]), pd.Series([2.0, 1.0, 2.0])).tolist()
        [0.5, 2.0, 3.0]
    """
    ordered, x = np.sort(among.to_numpy(float)), values.to_numpy(float)
    margin = near * np.abs(x)
    first = np.searchsorted(ordered, x - margin, "left")
    last = np.searchsorted(ordered, x + margin, "right")
    return values.where(values.isna(), (first + last) / 2)


def default_sum(
    space: Space, costs: Collection[str], scores: Collection[str] | None = None
) -> ScoreSum:
    """The sum that orders a space's networks by default, without the terms that they do not have.

    λ_min/trace of the clean kernel, which every network has, where no term is left. `scores` are
    those that its networks have; all if left out.

    Example:
        >>> from cells.residual import Residual
        >>> str(default_sum(Residual(), ["params", "flops"]))
        'params+clean.naswot'
    """
    terms = [
        term
        for term in space.order.split("+")
        if (term in costs if "." not in term else scores is None or term in scores)
    ]
    terms = terms or ["clean.lambda_min_normalized"]
    return ScoreSum(tuple(terms), tuple(term for term in terms if term in space.smaller))


def sum_asked(
    by: str | None, space: Space, architecture: Architecture, config: Config
) -> ScoreSum | None:
    """The score that a text names, or the sum of several; None, for the default, stays None."""
    if by is None:
        return None
    total = ScoreSum.parse(by, config.betas, [*space.counted(architecture)], space.smaller)
    separate = {name for name, measure in MEASURES.items() if measure.of.own_passes}
    absent = [term for term in total.terms if term.rpartition(".")[2] in separate]
    if absent and not config.proxies:
        raise InputError(
            "measures that come with the kernels",
            f"{absent[0]!r}, which takes passes of its own",
            "add --proxies (in Python, Config(proxies=True))",
        )
    return total
