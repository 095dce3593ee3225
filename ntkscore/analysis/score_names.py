"""Scores by name: one of a kernel, or several added up by rank."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ntkscore.errors import InputError
from ntkscore.kernels import joint
from ntkscore.kernels.proxies import NETWORK, all_measures, direction_of, measures_at

if TYPE_CHECKING:
    import pandas

COSTS = ("params", "flops")
"""Names of the costs, a score's free rivals, that each space of the library has."""


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
    def parse(cls, text: str, betas: Sequence[float] = (0.5,)) -> "ScoreName":
        """The score that a text names; a joint kernel without β has the only one there is.

        Raises:
            InputError: if there is no such kernel or score.
        """
        kernel, _, score = text.rpartition(".")
        kernel, _, beta = kernel.partition("@")
        measures = measures_at(kernel) or all_measures()
        allowed = [name for name, measure in measures.items() if measure.direction]
        kernels = (*joint.KERNELS, NETWORK)
        if kernel not in kernels or score not in allowed:
            raise InputError(
                f"expected KERNEL.SCORE with a kernel of {', '.join(kernels)} and a score of "
                f"{', '.join(allowed)}, got {text!r}; for example robust.lambda_min_normalized"
            )
        if kernel not in joint.JOINT:
            if beta:
                raise InputError(f"expected no β for {kernel}, got {beta!r}; leave it out")
            return cls(kernel, score)
        values = {f"{b:g}": b for b in betas}
        beta = beta or (next(iter(values)) if len(values) == 1 else "")
        if beta not in values:
            raise InputError(
                f"expected one of the run's β ({', '.join(values)}) in {text!r}, "
                f"got {beta or 'none'}; write {kernel}@{next(iter(values))}.{score}"
            )
        return cls(kernel, score, values[beta])


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
    ) -> "ScoreSum":
        """The sum that a text names.

        Args:
            text: one score, or several joined by `+`.
            betas: of the run, for the joint kernels.
            costs: names of the space's costs and counts.
            fewer: those of which fewer are better.

        Raises:
            InputError: if there is no such kernel or score.
        """
        names = text.split("+")
        if repeated := [name for name in names if names.count(name) > 1]:
            raise InputError(
                f"expected every score of a sum once, got {repeated[0]!r} again; leave it out"
            )
        try:
            terms = tuple(n if n in costs else str(ScoreName.parse(n, betas)) for n in names)
            return cls(terms, tuple(n for n in names if n in fewer))
        except InputError as error:
            also = ", ".join([*costs, "or several joined by +"])
            raise InputError(f"{error}; or {also}") from None

    def of(self, frame: "pandas.DataFrame") -> "pandas.Series":
        """One number per row, larger for a better one; NaN where a term is.

        A single score keeps its value, up to the sign. Several become the sum of their log-ranks,
        the worst rank being 1, so that a network must not be bad by any of them. Ranks are among
        the given rows: with others beside it, a network may come to lie elsewhere.

        Args:
            frame: a row per network, a column per term.
        """
        terms = list(self.terms)
        directions = [direction_of(term, self.fewer) for term in terms]
        oriented = frame[terms] * np.array(directions)
        if len(terms) == 1:
            return oriented.iloc[:, 0]
        return np.log(oriented.dropna().rank()).sum(axis=1).reindex(frame.index)


DEFAULT = ScoreSum(("params", "flops", "clean.lambda_min_normalized"))
"""The default: size, counted twice, and how well the kernel is conditioned. README.md says why."""


def default_sum(costs: Sequence[str]) -> ScoreSum:
    """The default sum, without the costs that a space does not state."""
    return ScoreSum(tuple(t for t in DEFAULT.terms if t in costs or t not in COSTS))
