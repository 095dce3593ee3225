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


def side_by_side(
    space: Space, architectures: Sequence[Architecture], size: int
) -> list[list[Architecture]]:
    """Groups of so many architectures of a shape that need much the same; the last may be smaller.

    Example:
        >>> from ntkscore import NASBench201
        >>> space = NASBench201()
        >>> given = [space.parse(digits) for digits in ("300000", "000000", "310000", "111111")]
        >>> [[cell.digits for cell in group] for group in side_by_side(space, given, 2)]
        [['000000', '111111'], ['300000', '310000']]
    """
    ordered = sorted(architectures, key=space.needs) if size > 1 else architectures
    return [list(ordered[start : start + size]) for start in range(0, len(ordered), size)]


def in_order(space: Space, architectures: Sequence[Architecture], size: int) -> list[Architecture]:
    """The order in which architectures of a shape are computed, `size` side by side.

    One by one it is the given order. That of groups is random, a function of their number alone:
    in the midst of a run what is done tells how long the rest will take.
    """
    if size == 1:
        return list(architectures)
    groups = side_by_side(space, architectures, size)
    # One that is not full stays at the end, so that all others start at a multiple of the size.
    last = groups.pop() if len(architectures) % size else []
    random.Random(len(groups)).shuffle(groups)
    return [architecture for group in [*groups, last] for architecture in group]
