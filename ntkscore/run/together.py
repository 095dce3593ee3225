"""Which architectures are computed together: in one program, and side by side in it."""

import random
from collections.abc import Hashable, Sequence

from cells.space import Architecture, Space


def by_shape(
    space: Space, architectures: Sequence[Architecture]
) -> dict[Hashable, list[Architecture]]:
    """Architectures that share a program, together; each group in the given order."""
    groups: dict[Hashable, list[Architecture]] = {}
    for architecture in architectures:
        groups.setdefault(space.shape(architecture), []).append(architecture)
    return groups


def alike(space: Space, architectures: Sequence[Architecture], size: int) -> list[Architecture]:
    """Architectures of a shape, ordered so that each `size` in turn need the same operations.

    The order of these groups is random, a function of their number alone: in the midst of a run
    what is done tells how long the rest will take.

    Example:
        >>> from ntkscore import NASBench201
        >>> space = NASBench201()
        >>> given = [space.parse(digits) for digits in ("300000", "000000", "310000", "111111")]
        >>> [cell.digits for cell in alike(space, given, 2)]
        ['300000', '310000', '000000', '111111']
    """
    if size == 1:
        return list(architectures)
    ordered = sorted(architectures, key=space.needs)
    groups = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    # One that is not full stays at the end, so that all others start at a multiple of the size.
    last = groups.pop() if len(ordered) % size else []
    random.Random(len(groups)).shuffle(groups)
    return [architecture for group in [*groups, last] for architecture in group]
