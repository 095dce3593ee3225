"""How long a run will take, from a few of its networks."""

import random
from collections.abc import Sequence

import numpy as np

from cells.space import Architecture, Space
from ntkscore.run.devices import Plan
from ntkscore.run.together import alike, by_shape

CALLS = 8
"""Calls to the devices that an estimate makes. The first compiles and does not count."""


def few(space: Space, architectures: Sequence[Architecture], plan: Plan) -> list[Architecture]:
    """Architectures from the cheapest to the dearest, for a few calls of a like mixture each.

    Args:
        space: whose architectures; of several programs, the one that most of them share is taken.
        architectures: what the run is about.
        plan: the layout; networks that it computes side by side stay together.

    Example:
        >>> from ntkscore import NASBench201
        >>> from ntkscore.run.devices import Plan
        >>> space = NASBench201()
        >>> chosen = few(space, space.architectures("all"), Plan(("a core",), 1, 1))
        >>> sorted(cell.digits.count("3") for cell in chosen)
        [0, 0, 1, 1, 1, 2, 2, 3]
    """
    sharing = max(by_shape(space, architectures).values(), key=len)
    ordered = alike(space, sharing, plan.group)
    groups = [ordered[i : i + plan.group] for i in range(0, len(ordered), plan.group)]
    groups.sort(key=lambda group: sum(next(iter(space.costs(a).values())) for a in group))
    count = CALLS * plan.per_call // plan.group
    if len(groups) <= count:
        return ordered
    # The middles of equal parts, dealt to the calls to and fro, so that none has the dearer ones.
    dealt = ((np.arange(count) + 0.5) * len(groups) / count).astype(int).reshape(-1, CALLS)
    dealt[1::2] = dealt[1::2, ::-1]
    chosen = []
    for call in range(CALLS):
        mixture = [groups[place] for place in dealt[:, call]]
        random.Random(call).shuffle(mixture)
        chosen += [architecture for group in mixture for architecture in group]
    return chosen
