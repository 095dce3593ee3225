"""Latency of networks on a device of this machine, in the form of measured costs."""

import csv
import re
import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from jax.stages import Wrapped
from jaxtyping import PyTree

from ntkscore.api.scoring import own_or_named
from ntkscore.candidates import Candidates
from ntkscore.data.costs import load_costs
from ntkscore.data.images import ImageSet
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.paths import local
from ntkscore.results.atomic import make_folder, publish, writing_to
from ntkscore.run.fits import compiled_alone
from ntkscore.run.scoring import Scoring
from ntkscore.run.targets import Target, devices_of, placed, target_named
from ntkscore.space import Architecture, Space
from ntkscore.trace.operations import program_multiply_adds

MILLISECONDS = 1e3


def measure_latency(
    networks: Model | Mapping[str, Any] | str | Architecture | Sequence[Architecture],
    images: ImageSet | str = "synthetic",
    *,
    space: Space | None = None,
    batch: int = 1,
    repeats: int = 50,
    target: str | None = None,
    out: str | PathLike[str] | None = None,
    table: Table | None = None,
    report: Callable[[int, int], None] = lambda done, count: None,
) -> pd.DataFrame:
    """Time the forward passes of networks, as their space trains them, on this machine's device.

    What is timed is the compiled pass from images to logits, with stored statistics, called from
    Python; not its compilation. Nothing is trained: weights do not change a latency.

    Args:
        networks, space, table: as for `score`.
        images: whose size counts, an `ImageSet` or its name.
        batch: images of a pass.
        repeats: passes that are timed, after the first.
        target: a GPU or TPU that is not at hand, as for `fits`: its compiler says what it can.
        out: a `.csv` file, written after every network; those of a space that it has are not timed
            again.
        report: called with the networks that are done and all of them, after each.

    Returns:
        A row per network, by its key, as `load_costs` would read it. `DEVICE_latency`: the median
        in milliseconds. `DEVICE_latency_spread`: its interquartile range. With a batch of 32 images
        the names end in `_b32`. Of a target: `DEVICE_latency_bound`, milliseconds of the arithmetic
        at the published rate for float32, below which no pass of that precision is;
        `DEVICE_moved_ms`, those of what is read and written at the published bandwidth, of which a
        cache spares a part; and `DEVICE_launches`, operations that start one by one.

    Raises:
        InputError: if something does not fit, or the file holds other columns.

    Example:
        >>> from cells import Residual
        >>> frame = measure_latency(["01", "0110"], space=Residual(width=8), repeats=5)
        >>> frame.shape, bool((frame > 0).all(axis=None))
        ((2, 2), True)
    """
    for name, number in (("batch", batch), ("repeats", repeats)):
        if number < 1:
            raise InputError(f"a {name} of at least 1", number, "raise it")
    space, named = own_or_named(networks, space)
    scoring = Scoring.of(images, space=space)
    keys = list(dict.fromkeys(map(scoring.space.key, scoring.select(named, table))))
    trained = scoring.space.trained()
    device = None if target is None else target_named(target)
    kinds = columns_of(target, batch)
    heading = next(iter(scoring.space.identity(scoring.space.parse(keys[0]))))
    path = None if out is None else local(out)
    found = {} if path is None else begun(path, scoring.space, [heading, *kinds])
    for done, key in enumerate(keys, 1):
        if key not in found:
            network = trained.trainable(key)
            points = np.zeros((batch, *trained.task.image_shape), np.float32)
            arguments = network.params, network.statistics, points
            program = jax.jit(network.evaluate)
            if device is None:
                arguments = jax.device_put(arguments)
                numbers = timed(lambda: program(*arguments), repeats)  # noqa: B023
            else:
                numbers = bounded(program, arguments, device)
            found[key] = dict(zip(kinds, numbers, strict=True))
            if path is not None:
                with writing_to(path), path.open("a", encoding="utf-8", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerow([key, *numbers])
        report(done, len(keys))
    frame = pd.DataFrame.from_dict({key: found[key] for key in keys}, orient="index")
    return frame.rename_axis(heading)


def begun(path: Path, space: Space, columns: Sequence[str]) -> dict[Any, dict[str, float]]:
    """The latencies that a file has, by key; it is made if there is none.

    Nothing of networks of one's own, which it knows by name alone. Its first line says what the
    numbers are of.
    """
    trained = space.trained()
    choices = {**trained.columns, "images": trained.task.image_shape}
    of = ", ".join(f"{name} {value}" for name, value in choices.items())
    start, text = f"# {of}\n{','.join(columns)}\n", ""
    if path.exists():
        if not path.is_file():  # such as a device, which never ends
            raise InputError(f"a file at {path}", "something else", "name another")
        text = path.read_text(encoding="utf-8")
        if not text.startswith(start):
            there = " / ".join(text.splitlines()[:2])
            raise InputError(
                f"a file at {path} that begins with {start.strip()!r}", there, "name another file"
            )
    # A row is cut off where a run was killed.
    whole = text[: text.rindex("\n") + 1] if text and not isinstance(space, Candidates) else start
    if whole != text:
        make_folder(path.absolute().parent)
        publish(path, whole.encode())
    if whole == start:
        return {}
    before = load_costs(path)
    names = space.written(list(before.index), str(before.index.name))
    keys = [space.key(space.parse(name)) for name in names]
    return dict(zip(keys, before.to_dict("records"), strict=True))


def columns_of(target: str | None, batch: int) -> list[str]:
    """The names of what is measured on a device."""
    kind = target or jax.local_devices()[0].device_kind
    device = re.sub(r"\W+", "_", kind.lower())
    whats = ("latency", "latency_spread")
    if target is not None:
        whats = ("latency_bound", "moved_ms", "launches")
    return [f"{device}_{what}" + (f"_b{batch}" if batch > 1 else "") for what in whats]


def timed(call: Callable[[], PyTree], repeats: int) -> tuple[float, float]:
    """The median of a call's milliseconds, after one that compiles, and their quartiles' range."""
    jax.block_until_ready(call())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    low, median, high = np.quantile(seconds, (0.25, 0.5, 0.75)) * MILLISECONDS
    return float(median), float(high - low)


def bounded(program: Wrapped, arguments: PyTree, target: Target) -> tuple[float, float, float]:
    """What a target's compiler says of a pass: bound, milliseconds of its memory, launches."""
    (device,) = devices_of(target)
    with target.traced():
        traced = program.trace(*placed(arguments, device))
        launches, moved = compiled_alone(traced, target).work
    seconds = 2 * program_multiply_adds(traced.jaxpr.jaxpr) / target.rate
    return MILLISECONDS * seconds, MILLISECONDS * moved / target.bandwidth, float(launches)
