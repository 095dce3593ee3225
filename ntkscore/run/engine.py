"""Architectures × seeds → rows on disk: the order of computation, and resuming."""

import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.lazy import jax
from ntkscore.memory import usable_memory
from ntkscore.results.result_set import ResultSet, provenance
from ntkscore.results.rows import Rows
from ntkscore.results.store import Memory
from ntkscore.run import devices
from ntkscore.run.devices import Plan
from ntkscore.run.processes import Share
from ntkscore.run.scoring import Scoring
from ntkscore.space import WEIGHTS, Architecture, Space

if TYPE_CHECKING:
    from ntkscore.run.scorer import Scorer

AS_A_WHOLE = 4
"""Factor on a space's estimate of memory for an implementation that differentiates a network as a
whole: it keeps what every operation of every edge needs."""
FLUSH_SECONDS = 2.0
"""Seconds after which finished units are written."""
MANY_PARTS = 32
"""Parts that calls which follow each other leave before they merge them."""


@dataclass
class Progress:
    """The state of a run.

    Attributes:
        total: units (architecture, seed) that this process computes or finds on disk.
        resumed: units among them that were found on disk.
        done: units computed by this run.
        statuses: rows that this run failed to measure, by status.
        plan: the present layout of networks over devices.
        started: when the first call was finished, which leaves compilation out.
        latest: when the last call was finished.
        first: units of the first call.
        seeds: how many seeds each network is computed with.
    """

    total: int
    resumed: int
    plan: Plan
    done: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    started: float | None = None
    latest: float = 0.0
    first: int = 0
    seeds: int = 1

    def count(self, rows: Rows) -> None:
        """Count one more unit, and its failures by status."""
        self.done += 1
        self.statuses.update(row["status"] for row in rows if row["status"] != "ok")

    def mark(self) -> None:
        """Mark the end of a call. Timing starts after the first, to leave out compilation."""
        self.latest = time.monotonic()
        if self.started is None:
            self.started, self.first = self.latest, self.done

    @property
    def finished(self) -> int:
        """Units that are on disk or computed."""
        return self.resumed + self.done

    @property
    def rate(self) -> float:
        """Units per second after the first, 0 while unknown."""
        if self.started is None or self.done <= self.first:
            return 0.0
        return (self.done - self.first) / max(self.latest - self.started, 1e-9)

    @property
    def seconds_left(self) -> float:
        """Seconds left at the present rate; infinite while that is unknown."""
        return (self.total - self.finished) / self.rate if self.rate else float("inf")


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


class Computed(NamedTuple):
    """The rows of a call's networks, and the plan that computed them."""

    plan: Plan
    rows_by_network: list[Rows]


def compute(
    job: Scoring,
    architectures: Sequence[Architecture],
    done: set[tuple],
    plan: Plan,
    layout_independent: bool = True,
) -> Iterator[Computed]:
    """Rows of each (architecture, seed) that is not done, seed by seed, a call at a time.

    The next networks are handed to the devices before the last ones' scores are measured. Where
    the devices' memory is exhausted, the plan is halved and the same networks are tried again.

    Args:
        job, architectures: what is scored.
        done: units that are not computed again, as (key, seed).
        plan: the layout to begin with.
        layout_independent: as for `Scorer`.
    """
    from ntkscore.run.scorer import Scorer

    space = job.space
    make = partial(Scorer, space, job.config, layout_independent=layout_independent)
    scorer, known = make(plan), set()
    for seed in job.seeds:
        missing = [a for a in architectures if (space.key(a), seed) not in done]
        if not missing:
            continue
        images, labels = job.draws[seed]
        for shape, sharing in by_shape(space, missing).items():
            if shape not in known:
                known.add(shape)
                scorer = fitting(make, scorer, sharing[0])
            queue = in_order(space, sharing, scorer.plan.group)
            batch = scorer.batch(images, labels, seed, shape)
            waiting: list[Architecture] = []
            pending = None
            while queue or waiting:
                count = scorer.plan.per_call
                chunk, rows = queue[:count], []
                try:
                    started = scorer.start(chunk, batch) if chunk else None
                    if pending is not None:
                        rows = pending.rows()
                except jax.errors.JaxRuntimeError as error:
                    # The failure may belong to the call before this one, whose rows are lost too.
                    smaller = scorer.plan.halved() if devices.out_of_memory(error) else None
                    if smaller is None:
                        raise
                    scorer = make(smaller)
                    batch = scorer.batch(images, labels, seed, shape)
                    queue, waiting, pending = waiting + queue, [], None
                    continue
                queue, waiting, pending = queue[count:], chunk, started
                if rows:
                    yield Computed(scorer.plan, rows)


def fitting(
    make: Callable[[Plan], "Scorer"],
    scorer: "Scorer",
    architecture: Architecture,
    room: int | None = None,
) -> "Scorer":
    """The scorer with the largest groups that have room on its accelerators.

    The compiler says what a program needs. CPUs compute one network after the other, in the memory
    that the space estimates.

    Args:
        make: the scorer of a plan.
        scorer: where to begin.
        architecture: any of the shape.
        room: bytes of a device; what it has left if left out.
    """
    device = scorer.plan.devices[0]
    if room is None and device.platform != "cpu" and (free := usable_memory(device)):
        room = int(devices.DEVICE_FRACTION * free)
    if room is None or scorer.space.piecewise:
        return scorer

    def needed(layout: Plan) -> int:
        return devices.bytes_needed(make(layout).trace(architecture).lower().compile())

    layout = devices.largest_with_room(scorer.plan, room, needed)
    return scorer if layout == scorer.plan else make(layout)


def plan_for(
    space: Space, architectures: Sequence[Architecture], config: Config, batch: int | None = None
) -> Plan:
    """The layout for these architectures: by their number and the memory of the largest.

    Args:
        space, architectures, config: what is scored, and how.
        batch: as for `run`.
    """
    if space.piecewise:
        devices.check_batch(batch)
        return devices.one_device()
    points = config.samples * (2 * len(config.rhos) + 1)
    width = 8 if config.x64 else 4
    if config.implementation not in ("auto", "layerwise"):
        width *= AS_A_WHOLE
    shapes = by_shape(space, architectures)
    sizes = [space.memory(shape, points, width) for shape in shapes]
    largest = max((size for size in sizes if size is not None), default=None)
    most = max(map(len, shapes.values()), default=0)
    return devices.plan(largest, batch, networks=most)


def run(
    job: Scoring,
    architectures: Sequence[Architecture],
    out: str | PathLike[str] | Memory,
    *,
    session: Mapping[str, object] | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    batch: int | None = None,
    share: Share | None = None,
    kept: dict[str, Any] | None = None,
) -> ResultSet:
    """Score architectures into a result directory, leaving out what is already there.

    If JAX has not computed anything yet, each core of a CPU becomes a device, unless the scores
    stay in memory.

    However the run ends, every finished network is on disk: parts are written every two seconds,
    and once more at the end.

    Args:
        job: the space, images, seeds and choices.
        architectures: in the space's own form.
        out: the result directory or URL; continued if it exists.
        session: what else to record about this session.
        report: called after every call to the devices.
        batch: networks per device and call; chosen automatically if left out.
        share: the networks of this process; all of them if left out.
        kept: parts of the directory that an earlier call has read, for calls that follow each
            other; nothing is kept, and all parts are merged at the end, if left out.

    Raises:
        InputError: if something does not fit; nothing is written then.
    """
    if not architectures:
        raise InputError("expected at least one architecture to score, got none; name some")
    check(job, out, batch)
    # What stays in memory is compared with no other layout's rows, so all cores may be one device.
    stays = isinstance(out, Memory)
    (devices.keep_compiled if stays else devices.prepare)()
    from ntkscore.run.scorer import Scorer  # and with it JAX

    space, config, seeds = job.space, job.config, job.seeds
    # Refuses what the space cannot take before anything is written.
    images, _ = job.draws[seeds[0]]
    Scorer(space, config).check(architectures[0], images)
    names = tuple(space.identity(architectures[0]))
    recorded = {
        "implementation": config.implementation,
        "devices": [device.device_kind for device in jax.local_devices()],
        "num_classes": space.task.num_classes,
        "image_shape": space.task.image_shape,
        **(session or {}),
    }
    results = ResultSet.create_or_resume(out, job.configuration, provenance(recorded), names)
    _refuse_other_weights(results, space, architectures)
    results = replace(results, kept=kept)
    shared = (share or Share()).of([*{space.key(a): a for a in architectures}.values()])
    wanted = {(space.key(a), seed) for a in shared for seed in seeds}
    # An earlier run may have left units that nobody asks for now; they are no progress.
    done = results.finished() & wanted
    if done < wanted:
        _say_other_versions(results)
    plan = plan_for(space, shared, config, batch)
    progress = Progress(len(wanted), len(done), plan, seeds=len(seeds))
    report(progress)
    pending: Rows = []
    flushed = time.monotonic()
    try:
        for computed in compute(job, shared, done, plan, not stays):
            progress.plan = computed.plan
            for rows in computed.rows_by_network:
                pending += rows
                progress.count(rows)
            progress.mark()
            if time.monotonic() - flushed >= FLUSH_SECONDS:
                results.append(pending)
                pending, flushed = [], time.monotonic()
            report(progress)
    finally:
        if pending:
            results.append(pending)
    results.compact(1 if kept is None else MANY_PARTS)
    return results


def check(job: Scoring, out: str | PathLike[str] | Memory, batch: int | None = None) -> None:
    """Refuse what does not fit, as far as that shows without JAX.

    Args:
        job: what is scored.
        out, batch: as for `run`.

    Raises:
        InputError: if there are too few images, or the folder holds something else.
    """
    devices.check_batch(batch)
    _ = job.draws
    ResultSet.check(out, job.configuration)


def _refuse_other_weights(
    results: ResultSet, space: Space, architectures: Sequence[Architecture]
) -> None:
    """Refuse a network that is on disk under the same name with other weights of its own."""
    if WEIGHTS not in results.identity:
        return
    stored = dict(results.known(results.identity[0], WEIGHTS))
    for architecture in architectures:
        key, weights = space.key(architecture), space.identity(architecture)[WEIGHTS]
        if stored.get(key, weights) != weights:
            raise InputError(
                f"expected {key} at the weights that {results.directory} has scores of, got "
                "others; give it another name, or choose another folder"
            )


def _say_other_versions(results: ResultSet) -> None:
    """Warn that rows are added to those of another version of this package, which may differ."""
    now = provenance()["packages"]["ntkscore"]
    versions = {session.get("packages", {}).get("ntkscore", now) for session in results.sessions}
    if others := sorted(versions - {now}):
        warnings.warn(
            f"{results.directory} has rows of ntkscore {', '.join(others)}, and ntkscore {now} "
            "goes on: what the versions compute may differ; to keep them apart, use another folder",
            stacklevel=3,
        )
