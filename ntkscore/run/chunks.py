"""Chunks of a run's networks, which the workers of any executor compute."""

import math
import os
import socket
import threading
import time
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.results.checkpoints import fingerprint
from ntkscore.results.rows import Rows
from ntkscore.run import calls, devices
from ntkscore.run.calls import Draws, Workers, by_shape
from ntkscore.run.cluster import unless_lost
from ntkscore.run.fingerprints import functions_of
from ntkscore.space import Architecture, Space

CHUNK_SECONDS = 60.0
"""Seconds that a worker computes before it hands back what it has."""
FIRST = 4
"""Networks of a chunk while no worker has said how many it computes in a call."""
AHEAD = 4
"""Chunks that are handed out per worker, so that none is idle and a new one finds some."""
DRAWS_KEPT = 8
_COMPILED: set[Hashable] = set()
"""What this process has computed: the space, choices and shape of each program."""
_DRAWS: dict[str, tuple[np.ndarray, np.ndarray]] = {}
"""Pixels and labels that this process was sent, by checksum."""


class Chunk(NamedTuple):
    """What a worker is asked for.

    Attributes:
        functions: fingerprints of the functions behind that, where it was asked.
        architectures: of one shape.
        most: networks of the commonest shape in the whole run. The layout is for so many, so that
            rows are rounded as those of one process are.
        images: checksum of the pixels and labels.
        draw: these; None for a worker that has them.
    """

    space: Space
    config: Config
    seed: int
    functions: dict[str, Any]
    architectures: Sequence[Architecture]
    most: int
    batch: int | None
    images: str
    draw: tuple[np.ndarray, np.ndarray] | None = None


class Answer(NamedTuple):
    """What a worker hands back.

    Attributes:
        rows_by_network: the rows of each network, in the order of the chunk; None where the worker
            lacks the images.
        device: the kind of its devices.
        per_call: networks that it computes in one call.
        seconds: that it took; None where they hold a compilation.
    """

    rows_by_network: list[Rows] | None
    worker: str
    device: str = ""
    per_call: int = 0
    seconds: float | None = None


def computed_here(chunk: Chunk) -> Answer:
    """Compute a chunk on the devices of this process, which is a worker's."""
    worker = f"{socket.gethostname()} {os.getpid()} {threading.get_ident()}"
    if chunk.draw is not None:
        _DRAWS[chunk.images] = chunk.draw
        for oldest in [*_DRAWS][:-DRAWS_KEPT]:
            del _DRAWS[oldest]
    draw = _DRAWS.get(chunk.images)
    if draw is None:
        return Answer(None, worker)
    space, config, architectures = chunk.space, chunk.config, chunk.architectures
    if functions_of(space, config) != chunk.functions:
        raise InputError(
            "a worker with the same functions of the space and the config",
            f"but {worker} has others",
            "install the same packages there",
        )
    devices.prepare()
    program = space, config, space.shape(architectures[0])
    started, known = time.monotonic(), program in _COMPILED
    plan = calls.plan_for(space, architectures, config, chunk.batch, chunk.most)
    rows: dict[Hashable, Rows] = {}
    key = next(iter(space.identity(architectures[0])))
    what = space, config, {chunk.seed: draw}, architectures, set(), plan
    for used, rows_by_network in calls.compute(*what):
        plan = used
        rows |= {each[0][key]: each for each in rows_by_network}
    _COMPILED.add(program)
    seconds = time.monotonic() - started if known else None
    in_order = [rows[space.key(architecture)] for architecture in architectures]
    return Answer(in_order, worker, plan.devices[0].device_kind, plan.per_call, seconds)


def compute(
    executor: Executor,
    space: Space,
    config: Config,
    draws: Draws,
    architectures: Sequence[Architecture],
    done: set[tuple],
    batch: int | None = None,
) -> Iterator[tuple[Workers, list[Rows]]]:
    """Rows as `ntkscore.run.calls.compute` gives them, which the workers of an executor compute.

    Args:
        executor: whatever has `submit`; it starts the chunk of a lost worker again, if anyone does.
        batch: networks per device and call of a worker; each chooses its own if left out.

    Raises:
        InputError: if the workers are lost. All that came back has been handed on then.
    """
    space = replace(space, measured=None)  # which no worker needs
    functions = functions_of(space, config)
    checksums = {seed: fingerprint(draw) for seed, draw in draws.items()}
    most = max(map(len, by_shape(space, architectures).values()))
    # The networks that are left of each seed and shape.
    left: list[tuple[int, list[Architecture]]] = []
    for seed in draws:
        missing = [each for each in architectures if (space.key(each), seed) not in done]
        left += [(seed, sharing) for sharing in by_shape(space, missing).values()]
    asked: dict[Future[Answer], Chunk] = {}
    workers: set[str] = set()
    kinds: set[str] = set()
    call, each_seconds = FIRST, None

    submit: Any = executor.submit

    def ask(chunk: Chunk) -> None:
        asked[unless_lost(submit, computed_here, chunk)] = chunk

    try:
        while left or asked:
            while left and len(asked) < AHEAD * (len(workers) + 1):
                seed, networks = left.pop(0)
                size = call
                if each_seconds is not None:
                    # About a minute, less near the end, in whole calls.
                    wanted = min(CHUNK_SECONDS / each_seconds, len(networks) / (2 * len(workers)))
                    size = call * max(math.ceil(wanted / call), 1)
                if networks[size:]:
                    left.insert(0, (seed, networks[size:]))
                how = space, config, seed, functions
                ask(Chunk(*how, networks[:size], most, batch, checksums[seed]))
            ended, _ = wait(asked, return_when=FIRST_COMPLETED)
            chunks = {future: asked.pop(future) for future in ended}
            failed = [each for each in ended if each.cancelled() or each.exception()]
            for future in ended.difference(failed):
                answer, chunk = future.result(), chunks[future]
                workers.add(answer.worker)
                if answer.rows_by_network is None:
                    ask(chunk._replace(draw=draws[chunk.seed]))
                    continue
                kinds.add(answer.device)
                call = max(answer.per_call, 1)
                if answer.seconds is not None:
                    each_seconds = max(answer.seconds, 1e-3) / len(answer.rows_by_network)
                yield Workers(len(workers), tuple(sorted(kinds))), answer.rows_by_network
            for future in failed:
                unless_lost(future.result)
    finally:
        for future in asked:
            future.cancel()
