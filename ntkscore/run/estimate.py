"""How long a run will take, from a few of its networks."""

import random
from collections.abc import Sequence

import numpy as np

from cells.space import Architecture, Space
from ntkscore.run.devices import Plan
from ntkscore.run.together import by_shape, side_by_side

CALLS, CALLS_OF_GROUPS = 8, 4
"""Calls to the devices that an estimate makes, of networks one after the other and side by side.
The first compiles, and does not count."""


def few(space: Space, architectures: Sequence[Architecture], plan: Plan) -> list[Architecture]:
    """Architectures from the cheapest to the dearest, for a few calls of a like mixture each.

    Args:
        space: whose architectures; of several programs, the one that most of them share is taken.
        architectures: what the run is about.
        plan: the layout; networks that it computes side by side stay together, in calls that the
            run's own order makes of them (`ntkscore.run.together.in_order`).

    Example:
        >>> from ntkscore import NASBench201
        >>> from ntkscore.run.devices import Plan
        >>> space = NASBench201()
        >>> chosen = few(space, space.architectures("all"), Plan(("a core",), 1, 1))
        >>> sorted(cell.digits.count("3") for cell in chosen)
        [0, 0, 1, 1, 1, 2, 2, 3]
    """

    def cost(group: list[Architecture]) -> float:
        return sum(next(iter(space.costs(a).values()), 0) for a in group)

    sharing = max(by_shape(space, architectures).values(), key=len)
    groups = sorted(side_by_side(space, sharing, plan.group), key=cost)
    calls = CALLS if plan.group == 1 else CALLS_OF_GROUPS
    count = calls * plan.per_call // plan.group
    if len(groups) <= count:
        return list(sharing)
    # The middles of equal parts, dealt to the calls to and fro, so that none has the dearer ones.
    dealt = ((np.arange(count) + 0.5) * len(groups) / count).astype(int).reshape(-1, calls)
    dealt[1::2] = dealt[1::2, ::-1]
    mixtures = [[a for place in places for a in groups[place]] for places in dealt.T]
    # What does not count is the most ordinary call.
    mean = sum(map(cost, mixtures)) / calls
    mixtures.sort(key=lambda mixture: abs(cost(mixture) - mean))
    if plan.group == 1:
        for number, mixture in enumerate(mixtures):
            random.Random(number).shuffle(mixture)
    return [architecture for mixture in mixtures for architecture in mixture]


def few_missing(
    space: Space,
    architectures: Sequence[Architecture],
    seeds: Sequence[int],
    done: set[tuple],
    plan: Plan,
) -> tuple[list[Architecture], list[int]]:
    """A few architectures that are missing of a seed, and the seed: the one that has fewest.

    Args:
        space, architectures, plan: as for `few`.
        seeds: those of the run.
        done: keys of architectures, and seeds, that are on disk; something must be missing.
    """
    missing = {s: [a for a in architectures if (space.key(a), s) not in done] for s in seeds}
    seed = max(missing, key=lambda seed: len(missing[seed]))
    return few(space, missing[seed], plan), [seed]
