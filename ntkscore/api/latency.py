"""Latency of networks on a device of this machine, in the form of measured costs."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from ntkscore.api.scoring import own_or_named
from ntkscore.data.costs import load_costs
from ntkscore.data.images import ImageSet
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.paths import local
from ntkscore.results.atomic import make_folder, publish, writing_to
from ntkscore.run.fits import compiled, no_room
from ntkscore.run.scoring import Scoring
from ntkscore.run.targets import Target, devices_of, placed, target_named
from ntkscore.space import Architecture, Space
from ntkscore.trace.arithmetic import program_multiply_adds

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
        out: a `.csv` file, written after every network; those that it has are not timed again.
        report: called with the networks that are done and all of them, after each.

    Returns:
        A row per network, by its key, as `load_costs` would read it. `DEVICE_latency`: the median
        in milliseconds. `DEVICE_latency_spread`: its interquartile range. With a batch of 32 images
        the names end in `_b32`. Of a target: `DEVICE_latency_bound`, milliseconds that the
        arithmetic takes at the published rate in float32, a bound below any measurement;
        `DEVICE_moved_ms`, those that its reads and writes take at the published bandwidth, of which
        a cache spares a part; and `DEVICE_launches`, operations that start one by one.

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
    chosen = scoring.select(named, table)
    trained = scoring.space.trained()
    kinds = columns_of(target, batch)
    if out is not None:
        local(out)
        make_folder(Path(out).absolute().parent)
    done = _done(out, scoring.space, kinds)
    keys = list(dict.fromkeys(map(scoring.space.key, chosen)))
    device = None if target is None else target_named(target)
    heading = next(iter(scoring.space.identity(chosen[0])))
    for key in keys:
        if key not in done:
            network = trained.trainable(key)
            points = np.zeros((batch, *trained.task.image_shape), np.float32)
            arguments = network.params, network.statistics, points
            program = jax.jit(network.evaluate)
            if device is None:
                found = timed(lambda: program(*arguments), repeats)  # noqa: B023
            else:
                found = bounded(program, arguments, device)
            done[key] = dict(zip(kinds, found, strict=True))
            if out is not None:
                with writing_to(Path(out)):
                    publish(Path(out), _frame(done, heading).to_csv().encode())
        report(len(done.keys() & set(keys)), len(keys))
    return _frame({key: done[key] for key in keys}, heading)


def columns_of(target: str | None, batch: int) -> list[str]:
    """The names of what is measured on a device."""
    kind = target or jax.local_devices()[0].device_kind
    device = re.sub(r"\W+", "_", kind.lower())
    whats = ("latency", "latency_spread")
    if target is not None:
        whats = ("latency_bound", "moved_ms", "launches")
    return [f"{device}_{what}" + (f"_b{batch}" if batch > 1 else "") for what in whats]


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """The median of a call's milliseconds, after one that compiles, and their quartiles' range."""
    jax.block_until_ready(call())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    low, median, high = np.quantile(seconds, (0.25, 0.5, 0.75)) * MILLISECONDS
    return float(median), float(high - low)


def bounded(program: Any, arguments: Any, target: Target) -> tuple[float, float, float]:
    """What a target's compiler says of a pass: bound, milliseconds of its memory, launches."""
    (device,) = devices_of(target)
    shapes = jax.tree.map(lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype), arguments)
    with target.traced():
        traced = program.trace(*placed(shapes, device))
        try:
            found = compiled(traced, target)
        except jax.errors.JaxRuntimeError as error:
            raise no_room(target, str(error).splitlines()[0]) from None
    work = 2 * program_multiply_adds(traced.jaxpr.jaxpr) / target.rate
    # Where only the numbers decide how often a loop runs, a program's work is not known.
    known = 0 not in found.reading.trips
    launches, moved = found.reading.work[:2] if known else (np.nan, np.nan)
    return MILLISECONDS * work, MILLISECONDS * moved / target.bandwidth, float(launches)


def _done(out: str | PathLike[str] | None, space: Space, kinds: Sequence[str]) -> dict[Any, Any]:
    """What a file holds of the networks of a space, by key."""
    if out is None or not Path(out).exists():
        return {}
    before = load_costs(Path(out))
    if list(before) != list(kinds):
        raise InputError(
            f"a file with the columns {', '.join(kinds)} at {out}",
            ", ".join(before),
            "name another file",
        )
    keys = [space.key(space.parse(name)) for name in before.index]
    return dict(zip(keys, before.to_dict("records"), strict=True))


def _frame(found: Mapping[Any, Mapping[str, float]], heading: str) -> pd.DataFrame:
    return pd.DataFrame.from_dict(dict(found), orient="index").rename_axis(heading)
