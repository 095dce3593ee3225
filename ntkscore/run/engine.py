"""Architectures × seeds → rows on disk: the order of computation, and resuming."""

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from itertools import chain
from os import PathLike
from typing import Any

from ntkscore.candidates import Candidates, described
from ntkscore.errors import InputError
from ntkscore.results.result_set import ResultSet, provenance
from ntkscore.results.rows import Rows
from ntkscore.results.store import Memory, store_at
from ntkscore.run import calls, chunks, devices
from ntkscore.run.calls import Work, Workers
from ntkscore.run.devices import Plan
from ntkscore.run.scoring import Scoring
from ntkscore.space import WEIGHTS, Architecture, Space

ROWS_OF_A_PART = 10_000
"""Rows that are written at once, before the store's seconds are over."""
MANY_PARTS = 32
"""Parts that calls which follow each other leave before they merge them."""


@dataclass
class Progress:
    """The state of a run.

    Attributes:
        total: units (architecture, seed) that are computed or found on disk.
        resumed: units among them that were found on disk.
        done: units computed by this run.
        statuses: rows that this run failed to measure, by status.
        plan: the present layout of networks over devices, or the workers that compute them.
        started: when the first call was finished, which leaves compilation out.
        first: units of the first call.
    """

    total: int
    resumed: int
    plan: Plan | Workers = field(default_factory=Workers)
    done: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    started: float | None = None
    latest: float = 0.0
    first: int = 0
    seeds: int = 1

    def count(self, rows_by_network: Sequence[Rows]) -> None:
        """Count the units of a call, and their failures by status.

        Timing starts after the first call, to leave out compilation.
        """
        if not rows_by_network:
            return
        self.done += len(rows_by_network)
        rows = chain.from_iterable(rows_by_network)
        self.statuses.update(row["status"] for row in rows if row["status"] != "ok")
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


def run(
    job: Scoring,
    architectures: Sequence[Architecture],
    out: str | PathLike[str] | Memory,
    *,
    session: Mapping[str, object] | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    batch: int | None = None,
    executor: Executor | None = None,
    kept: dict[str, Any] | None = None,
) -> ResultSet:
    """Score architectures into a result directory, leaving out what is already there.

    If JAX has not computed anything yet, each core of a CPU becomes a device, unless the scores
    stay in memory.

    However the run ends, every finished network is there: parts are written every two seconds into
    a folder, every minute under a URL, and once more at the end.

    Args:
        executor: whose workers compute, instead of this process's devices.
        kept: parts of the directory that an earlier call has read, for calls that follow each
            other; nothing is kept, and all parts are merged at the end, if left out.

    Raises:
        InputError: if something does not fit; nothing is written then.
    """
    if not architectures:
        raise InputError("at least one architecture to score", "none", "name some")
    check(job, out, batch)
    # What stays in memory is compared with no other layout's rows, so all cores may be one device.
    stays = isinstance(out, Memory)
    (devices.keep_compiled if stays else devices.prepare)()
    from ntkscore.run.scorer import check_network  # and with it JAX

    space, config, seeds = job.space, job.config, job.seeds
    # Refuses what the space cannot take before anything is written.
    images, _ = job.draws[seeds[0]]
    check_network(space, config, architectures[0], images)
    names = tuple(space.identity(architectures[0]))
    results = ResultSet.create_or_resume(out, job.configuration, names)
    _refuse_other_weights(results, space, architectures)
    results = replace(results, kept=kept)
    architectures = [*{space.key(a): a for a in architectures}.values()]
    wanted = {(space.key(a), seed) for a in architectures for seed in seeds}
    # An earlier run may have left units that nobody asks for now; they are no progress.
    done = results.finished() & wanted
    if done < wanted:
        _say_other_versions(results)
    own = isinstance(space, Candidates) and not stays
    networks = described(space, architectures) if own else {}
    work = Work(space, config, job.draws, architectures, done, batch)
    if executor is None:
        computed_calls = calls.compute(work, layout_independent=not stays)
    else:
        computed_calls = chunks.compute(executor, work)
    progress = Progress(len(wanted), len(done), seeds=len(seeds))
    recorded = {
        "implementation": config.implementation,
        "num_classes": space.task.num_classes,
        "image_shape": space.task.image_shape,
        **(session or {}),
    }
    pending: Rows = []
    written, patience = time.monotonic(), store_at(out).part_seconds
    kinds: Sequence[str] | None = None

    def write() -> None:
        nonlocal results, kinds
        # Which devices a run has is known when they have computed something.
        if kinds != progress.plan.kinds:
            kinds = progress.plan.kinds
            results = results.record(provenance({**recorded, "devices": kinds}))
            results.describe(networks)
        results.append(pending)
        pending.clear()

    try:
        for progress.plan, rows_by_network in computed_calls:
            pending += chain.from_iterable(rows_by_network)
            progress.count(rows_by_network)
            if time.monotonic() - written >= patience or len(pending) >= ROWS_OF_A_PART:
                write()
                written = time.monotonic()
            report(progress)
    finally:
        if pending:
            write()
    results.compact(1 if kept is None else MANY_PARTS)
    results.describe(networks)
    return results


def check(job: Scoring, out: str | PathLike[str] | Memory, batch: int | None = None) -> None:
    """Refuse what does not fit, as far as that shows without JAX."""
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
                f"{key} at the weights and statistics that {results.directory} has scores of",
                "others",
                "give it another name, or choose another folder; a file that draws weights needs a "
                "fixed seed, such as torch.manual_seed(0), to draw them again",
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
