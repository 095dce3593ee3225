"""Cells × seeds → rows: what is computed in which order, and what is already done."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from cells.space import Cell
from ntkscore import devices
from ntkscore.config import Config
from ntkscore.devices import Plan
from ntkscore.images import ImageSet, choose
from ntkscore.results import ResultSet
from ntkscore.scorer import Rows, Scorer

FLUSH_SECONDS = 2.0


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        total: units (cell, seed) that this process was asked for.
        resumed: of them, found on disk.
        done: computed by this run.
        statuses: rows that this run failed to measure, by status.
        plan: how cells are laid out at present.
        started: when the first call was finished, which leaves compilation out.
        first: units of that call.
    """

    total: int
    resumed: int
    plan: Plan
    done: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    started: float | None = None
    first: int = 0

    def count(self, rows: Rows) -> None:
        """Note one more unit."""
        self.done += 1
        for row in rows:
            if row["status"] != "ok":
                self.statuses[row["status"]] = self.statuses.get(row["status"], 0) + 1

    def mark(self) -> None:
        """Note the end of a call; the clock of the rate starts with the first."""
        if self.started is None:
            self.started, self.first = time.monotonic(), self.done

    @property
    def rate(self) -> float:
        """Units per second after the first, 0 while unknown."""
        if self.started is None or self.done <= self.first:
            return 0.0
        return (self.done - self.first) / max(time.monotonic() - self.started, 1e-9)

    @property
    def seconds_left(self) -> float:
        """At the present rate; infinite while unknown."""
        left = self.total - self.resumed - self.done
        return left / self.rate if self.rate else float("inf")


def _out_of_memory_halves(plan: Plan, error: Exception) -> Plan:
    """The plan to go on with; any other error, or no smaller plan, ends the run."""
    smaller = plan.halved() if devices.out_of_memory(error) else None
    if smaller is None:
        raise error
    return smaller


def compute(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    data: ImageSet,
    config: Config,
    done: set[tuple],
    plan: Plan,
) -> Iterator[tuple[Plan, list[Rows]]]:
    """Rows of each (cell, seed) that is not done, a call's cells at a time, seed by seed.

    The next cells are handed to the devices before the last ones' scores are measured. Where the
    devices' memory is exhausted, the plan is halved and the same cells are tried again.
    """
    scorer = Scorer(config, data.mean, data.std, data.num_classes, data.name, plan)
    for seed in seeds:
        left = [cell for cell in cells if (cell.index, seed) not in done]
        if not left:
            continue
        drawn = choose(data, config.samples, seed, config.balanced)
        batch = scorer.batch(*drawn, seed)
        waiting: list[Cell] = []
        stacks = None
        while left or waiting:
            count = scorer.plan.cells_per_call
            chunk = left[:count]
            rows: list[Rows] = []
            try:
                started = scorer.start(chunk, batch) if chunk else None
                if waiting:
                    assert stacks is not None
                    rows = scorer.finish(waiting, seed, batch, stacks)
            except jax.errors.JaxRuntimeError as error:
                smaller = _out_of_memory_halves(scorer.plan, error)
                scorer = Scorer(config, data.mean, data.std, data.num_classes, data.name, smaller)
                batch = scorer.batch(*drawn, seed)
                left, waiting, stacks = waiting + left, [], None
                continue
            left, waiting, stacks = left[count:], chunk, started
            if rows:
                yield scorer.plan, rows


def identity(data: ImageSet, config: Config) -> dict[str, Any]:
    """What must be equal for two runs to share a result directory, as plain values."""
    choices = config.to_dict()
    del choices["implementation"]  # The implementations agree; which one ran is provenance.
    return {"dataset": data.name, "data_checksum": data.checksum, **choices}


def run(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    data: ImageSet,
    config: Config,
    results: ResultSet,
    report: Callable[[Progress], None] = lambda progress: None,
    batch: int | None = None,
) -> Progress:
    """Score cells into a result directory, leaving out what is already there.

    Whatever ends the run, every finished unit is on disk: parts are written at least every two
    seconds, and once more on the way out.

    Args:
        cells: to score.
        seeds: each draws its own images and weights.
        data: images to draw from.
        config: how to score.
        results: where the rows go.
        report: called after every call to the devices.
        batch: cells per device and call; chosen automatically if left out.
    """
    cells = devices.share(cells)
    plan = devices.plan(config, data.images.shape[1], batch)
    wanted = {(cell.index, seed) for cell in cells for seed in seeds}
    done = results.finished() & wanted
    progress = Progress(len(wanted), len(done), plan)
    report(progress)
    pending: Rows = []
    flushed = time.monotonic()
    try:
        for progress.plan, rows_by_cell in compute(cells, seeds, data, config, done, plan):
            for rows in rows_by_cell:
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
    results.compact()
    return progress
