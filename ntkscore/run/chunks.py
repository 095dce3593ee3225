"""Chunks of a run's networks, which the workers of any executor compute."""

import math
import os
import socket
import threading
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from operator import ne
from typing import Any, NamedTuple
from uuid import uuid4

from attacks.lazy import jax
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.results.checkpoints import fingerprint
from ntkscore.results.rows import Rows
from ntkscore.run import calls, devices
from ntkscore.run.calls import Work, Workers, by_shape
from ntkscore.run.cluster import unless_lost
from ntkscore.run.fingerprints import functions_of
from ntkscore.space import WEIGHTS, Architecture, Space

CHUNK_SECONDS = 60.0
"""Seconds that a worker computes before it hands back what it has."""
FIRST = 4
"""Networks of a chunk while no worker has said how many it computes in a call."""
AHEAD = 4
"""Chunks that are handed out per worker, so that none is idle and a new one finds some."""
PARTS_KEPT = 8
_COMPILED: set[Hashable] = set()
"""What this process has computed: the space, choices and shape of each program."""
_PARTS: dict[str, Any] = {}
"""Spaces, and pixels with their labels, that this process was sent, by name; the latest last."""
_ALONE = threading.Lock()
"""Threads of a process share these."""


class Chunk(NamedTuple):
    """What a worker is asked for.

    Attributes:
        space: name of the space among the parts that a worker keeps.
        images: name of the pixels and labels among them: their checksum.
        platform: where networks of one's own were made, which decides the last bits of their
            weights.
        functions: fingerprints of the functions behind that, where it was asked.
        architectures: of one shape.
        weights: digests of the weights that networks of one's own have, where it was asked.
        most: networks of the commonest shape in the whole run. The layout is for so many, so that
            rows are rounded as those of one process are.
        parts: those by name that a worker lacks.
    """

    space: str
    images: str
    platform: str
    functions: dict[str, Any]
    config: Config
    seed: int
    most: int
    batch: int | None
    architectures: Sequence[Architecture]
    weights: Sequence[object]
    parts: Mapping[str, Any] = {}


class Answer(NamedTuple):
    """What a worker hands back.

    Attributes:
        rows_by_network: the rows of each network, in the order of the chunk; None where the worker
            lacks parts.
        device: the kind of its devices.
        per_call: networks that it computes in one call.
        seconds: that it took; None where they hold a compilation.
        lacking: names of the parts that the worker lacks.
    """

    rows_by_network: list[Rows] | None
    worker: str
    device: str = ""
    per_call: int = 0
    seconds: float | None = None
    lacking: Sequence[str] = ()


def computed_here(chunk: Chunk) -> Answer:
    """Compute a chunk on the devices of this process, which is a worker's."""
    worker = f"{socket.gethostname()} {os.getpid()} {threading.get_ident()}"
    names = chunk.space, chunk.images
    with _ALONE:
        # Several chunks may bring the same parts; the first has made its networks.
        _PARTS.update({k: part for k, part in chunk.parts.items() if k not in _PARTS})
        if lacking := [name for name in names if name not in _PARTS]:
            return Answer(None, worker, lacking=lacking)
        space, draw = parts = [_PARTS.pop(name) for name in names]
        _PARTS.update(zip(names, parts, strict=True))
        for oldest in [*_PARTS][:-PARTS_KEPT]:
            del _PARTS[oldest]
    config, architectures = chunk.config, chunk.architectures
    if functions_of(space, config) != chunk.functions:
        raise InputError(
            "a worker with the same functions of the space and the config",
            f"but {worker} has others",
            "install the same packages there",
        )
    devices.prepare()
    with _ALONE, _computing_on(chunk.platform):
        weights = _weights(space, architectures)
    if weights != chunk.weights:
        first = [*map(ne, weights, chunk.weights)].index(True)
        raise InputError(
            f"the same weights of {space.key(architectures[first])} wherever it is made",
            f"but {worker} has others",
            "draw them from a seed, or read them from a file that is there too",
        )
    program = space, config, space.shape(architectures[0]), draw[0].shape
    started, known = time.monotonic(), program in _COMPILED
    rows: dict[Hashable, Rows] = {}
    key = next(iter(space.identity(architectures[0])))
    work = Work(space, config, {chunk.seed: draw}, architectures, batch=chunk.batch)
    for plan, rows_by_network in calls.compute(work, most=chunk.most):  # noqa: B007
        rows |= {each[0][key]: each for each in rows_by_network}
    if not space.piecewise:  # of which each program is another one
        _COMPILED.add(program)
    seconds = time.monotonic() - started if known else None
    in_order = [rows[space.key(architecture)] for architecture in architectures]
    return Answer(in_order, worker, plan.devices[0].device_kind, plan.per_call, seconds)


def _weights(space: Space, architectures: Sequence[Architecture]) -> list[object]:
    """The digest of each network's own weights; None where the space draws them."""
    return [space.identity(each).get(WEIGHTS) for each in architectures]


def _computing_on(platform: str) -> AbstractContextManager[object]:
    """The context in which JAX computes on this platform, if there is one here."""
    if platform == jax.default_backend():
        return nullcontext()
    try:
        return jax.default_device(jax.local_devices(backend=platform)[0])
    except RuntimeError:
        return nullcontext()


def compute(executor: Executor, work: Work) -> Iterator[tuple[Workers, list[Rows]]]:
    """Rows as `ntkscore.run.calls.compute` gives them, which the workers of an executor compute.

    Args:
        executor: whatever has `submit`; it starts the chunk of a lost worker again, if anyone does.

    Raises:
        InputError: if the workers are lost. All that came back has been handed on then.
    """
    yield Workers(), []
    space, config, draws = work.space, work.config, work.draws
    if space.measured is not None:  # which no worker needs
        space = replace(space, measured=None)
    functions = functions_of(space, config)
    checksums = {seed: fingerprint(draw) for seed, draw in draws.items()}
    name, platform = uuid4().hex, jax.default_backend()
    parts = {name: space, **{checksums[seed]: draw for seed, draw in draws.items()}}
    most = max(map(len, by_shape(space, work.architectures).values()))
    left = [*work.missing()]
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
                asked_for = networks[:size]
                what = name, checksums[seed], platform, functions, config, seed, most, work.batch
                ask(Chunk(*what, asked_for, _weights(space, asked_for)))
            ended, _ = wait(asked, return_when=FIRST_COMPLETED)
            chunks = {future: asked.pop(future) for future in ended}
            failed = [each for each in ended if each.cancelled() or each.exception()]
            for future in ended.difference(failed):
                answer, chunk = future.result(), chunks[future]
                workers.add(answer.worker)
                if answer.rows_by_network is None:
                    ask(chunk._replace(parts={each: parts[each] for each in answer.lacking}))
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
