"""Architectures × seeds → rows, a call of the devices at a time."""

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attacks.lazy import jax
from ntkscore.config import Config
from ntkscore.memory import usable_memory
from ntkscore.results.rows import Rows
from ntkscore.run import devices
from ntkscore.run.devices import Plan
from ntkscore.space import Architecture, Space

if TYPE_CHECKING:
    from ntkscore.run.scorer import Scorer

Draws = Mapping[int, tuple[np.ndarray, np.ndarray]]
"""Pixels and labels by seed."""
AS_A_WHOLE = 4
"""Factor on a space's estimate of memory for an implementation that differentiates a network as a
whole: it keeps what every operation of every edge needs."""


def by_shape(
    space: Space, architectures: Sequence[Architecture]
) -> dict[Hashable, list[Architecture]]:
    """Architectures grouped by the program that they share; each group in the given order."""
    groups: dict[Hashable, list[Architecture]] = {}
    for architecture in architectures:
        groups.setdefault(space.shape(architecture), []).append(architecture)
    return groups


def in_order(space: Space, architectures: Sequence[Architecture], size: int) -> list[Architecture]:
    """The order in which architectures of a shape are computed, `size` side by side.

    With a size of 1 it is the given order. Otherwise each group has architectures of similar needs,
    and the order of the groups is random, a function of their number alone, so that the speed of
    the first groups predicts that of the rest.

    Example:
        >>> from cells import NASBench201
        >>> space = NASBench201()
        >>> cells = [space.parse(digits) for digits in ("300000", "000000", "310000", "111111")]
        >>> [cell.digits for cell in in_order(space, cells, 2)]
        ['300000', '310000', '000000', '111111']
    """
    if size == 1:
        return list(architectures)
    alike = sorted(architectures, key=space.needs)
    groups = [alike[start : start + size] for start in range(0, len(alike), size)]
    # An incomplete group stays last, so that all others start at a multiple of the size.
    last = groups.pop() if len(alike) % size else []
    random.Random(len(groups)).shuffle(groups)
    return [architecture for group in [*groups, last] for architecture in group]


class Work(NamedTuple):
    """Networks to be computed.

    Attributes:
        draws: pixels and labels by seed.
        done: the (key, seed) that are not computed.
        batch: networks per device and call; chosen from the free memory if None.
    """

    space: Space
    config: Config
    draws: Draws
    architectures: Sequence[Architecture]
    done: Set[tuple] = frozenset()
    batch: int | None = None

    def missing(self) -> Iterator[tuple[int, list[Architecture]]]:
        """What is not done: networks that share a seed and a program."""
        for seed in self.draws:
            rest = [a for a in self.architectures if (self.space.key(a), seed) not in self.done]
            for sharing in by_shape(self.space, rest).values():
                yield seed, sharing


class Workers(NamedTuple):
    """The workers of an executor that have computed networks so far.

    Example:
        >>> str(Workers(2, ("cpu",)))
        '2 workers: cpu'
    """

    count: int = 0
    kinds: tuple[str, ...] = ()

    def __str__(self) -> str:
        count = f"{self.count} worker{'' if self.count == 1 else 's'}"
        return ": ".join([count, ", ".join(self.kinds)][: 1 + bool(self.kinds)])


def compute(
    work: Work,
    plan: Plan | None = None,
    *,
    most: int | None = None,
    layout_independent: bool = True,
) -> Iterator[tuple[Plan, list[Rows]]]:
    """Rows of each (architecture, seed) that is not done, seed by seed, a call at a time.

    Of each call the plan that computed it, and the rows of each of its networks; before the first
    call the plan alone.

    The next networks are handed to the devices before the last ones' scores are measured. Where the
    devices' memory is exhausted, the plan is halved and the same networks are tried again.

    Args:
        plan: the layout; for `most` networks of a shape (`plan_for`) if left out.
    """
    from ntkscore.run.scorer import Scorer

    space, config, draws = work.space, work.config, work.draws
    if plan is None:
        (_, labels), *_ = draws.values()
        plan = plan_for(space, work.architectures, config, len(labels), work.batch, most)
    yield plan, []
    make = partial(Scorer, space, config, layout_independent=layout_independent)
    scorer, known = make(plan), set()
    for seed, sharing in work.missing():
        (images, labels), shape = draws[seed], space.shape(sharing[0])
        if shape not in known:
            known.add(shape)
            scorer = fitting(make, scorer, sharing[0], len(labels))
        queue = in_order(space, sharing, scorer.plan.group)
        batch = scorer.batch(images, labels, seed, shape)
        waiting: list[Architecture] = []
        stacks = None
        while queue or waiting:
            chunk = queue[: scorer.plan.per_call]
            try:
                started = scorer.start(chunk, batch) if chunk else None
                rows = scorer.rows(waiting, batch, stacks) if stacks else []
            except jax.errors.JaxRuntimeError as error:
                # The failure may belong to the call before this one, whose rows are lost too.
                smaller = scorer.plan.halved() if devices.out_of_memory(error) else None
                if smaller is None:
                    raise
                scorer = make(smaller)
                batch = scorer.batch(images, labels, seed, shape)
                queue, waiting, stacks = waiting + queue, [], None
                continue
            queue, waiting, stacks = queue[len(chunk) :], chunk, started
            if rows:
                yield scorer.plan, rows


def fitting(
    make: Callable[[Plan], "Scorer"],
    scorer: "Scorer",
    architecture: Architecture,
    samples: int,
    room: int | None = None,
) -> "Scorer":
    """The scorer with the largest groups that have room on its accelerators.

    The compiler says what a program needs, and the device how many bytes it has, if not `room`.
    CPUs compute one network after the other, in the memory that the space estimates.
    """
    device = scorer.plan.devices[0]
    if room is None and device.platform != "cpu" and (free := usable_memory(device)):
        room = int(devices.DEVICE_FRACTION * free)
    if room is None or scorer.space.piecewise:
        return scorer

    def needed(layout: Plan) -> int:
        return devices.bytes_needed(make(layout).trace(architecture, samples).lower().compile())

    layout = devices.largest_with_room(scorer.plan, room, needed)
    return scorer if layout == scorer.plan else make(layout)


def plan_for(
    space: Space,
    architectures: Sequence[Architecture],
    config: Config,
    samples: int,
    batch: int | None = None,
    most: int | None = None,
) -> Plan:
    """The layout for these architectures, by how many share a shape and the largest's memory."""
    if space.piecewise:
        devices.check_batch(batch)
        return devices.one_device()
    points = samples * (2 * len(config.rhos) + 1)
    width = 8 if config.x64 else 4
    if config.implementation not in ("auto", "layerwise"):
        width *= AS_A_WHOLE
    shapes = by_shape(space, architectures)
    sizes = [space.memory(shape, points, width) for shape in shapes]
    largest = max((size for size in sizes if size is not None), default=None)
    if most is None:
        most = max(map(len, shapes.values()), default=0)
    return devices.plan(largest, batch, networks=most)
