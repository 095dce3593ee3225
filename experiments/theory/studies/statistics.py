"""Verdicts of experiments that are not yet studies; it goes with the last of them."""

from collections.abc import Sequence

import numpy as np

from experiments.study import Verdict, verdict
from experiments.theory.seeds import Interval


def within(intervals: Sequence[Interval], low: float, high: float) -> Verdict:
    """The verdict that a range holds all of some intervals.

    Returns:
        "reproduced" where all intervals lie inside the range, "not reproduced" where one is apart
        from it, else "not decidable". A number or an interval that is not known decides nothing.
    """
    if not all(np.isfinite(each.value) for each in intervals):
        return "not decidable"
    inside = all(low <= each.low and each.high <= high for each in intervals)
    return verdict(inside, any(each.high < low or high < each.low for each in intervals))
