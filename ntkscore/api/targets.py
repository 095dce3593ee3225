"""Whether a scoring fits on a GPU or TPU that is not at hand, and how fast it is at best."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ntkscore.config import Config
from ntkscore.data.images import ImageSet
from ntkscore.errors import InputError
from ntkscore.kernels.network import checked_model
from ntkscore.model import Model
from ntkscore.run.devices import Plan
from ntkscore.run.fits import (
    Compiled,
    arithmetic,
    compiled_alone,
    fit,
    least_seconds,
    mean_cost,
    trace_network,
)
from ntkscore.run.scorer import dtype_of, precision
from ntkscore.run.scoring import Scoring
from ntkscore.run.targets import GIB, Target, devices_of, target_named
from ntkscore.space import Architecture, Space
from ntkscore.trace.operations import program_multiply_adds


def fits(
    target: str,
    networks: Model | str | Sequence[Architecture] = "distinct",
    images: ImageSet | str | np.ndarray = "synthetic",
    config: Config | None = None,
    *,
    space: Space | None = None,
    seeds: int | Sequence[int] | None = None,
    batch: int | None = None,
) -> pd.DataFrame:
    """Compile what `score` would run for a GPU or TPU, and say what it needs; nothing is run.

    The program is that of the most expensive network's shape, in the largest group that has room.
    A network of your own is one program; computed in blocks on the device it needs less memory.
    Needs the target's compiler: `pip install 'ntkscore[targets]'`.

    Args:
        target: `a100`, `h100`, `h200`, `v4`, `v5e` or `v6e`.
        networks: of a space, as for `score`; or a model of your own.
        images: as for `score`; beside a model an array (N, …), of which the shape alone counts.
        config, space, seeds, batch: as for `score`; the last three not beside a model.

    Returns:
        One row: `target`; `fits`; `networks`, times seeds; `group`, networks side by side;
        `needs_gib` and `has_gib`, memory by the compiler and what JAX takes of the device's by
        default; `at_best_seconds`, the networks' arithmetic at the device's published rate for
        float32, a bound below any measurement; of the most expensive network, `launches`,
        operations that the device starts one by one, and `moved_gb`, what these read and write;
        `moved_seconds`, that for every network at the published bandwidth, of which a cache may
        spare a part; `compiled_seconds` on this machine. What is moved is NaN where only the
        numbers decide how often a loop runs.

    Raises:
        InputError: if something does not fit, or the target's compiler is not installed.

    Example:
        >>> row = fits("h100", "random:64").iloc[0]  # doctest: +SKIP
        >>> row["fits"], row["group"], round(row["needs_gib"], 1)  # doctest: +SKIP
        (True, 16, 5.2)
        >>> linear = Model(lambda w, x: x @ w, np.ones((48, 10), "float32"))
        >>> bool(fits("v5e", linear, np.zeros((4, 48))).fits[0])  # doctest: +SKIP
        True
    """
    if isinstance(networks, Model):
        return _fits_network(target, networks, np.asarray(images), config or Config())
    device = target_named(target)
    devices_of(device)
    if isinstance(images, np.ndarray):
        raise InputError(
            "an array of images beside a model alone",
            "one beside networks of a space",
            "name a set",
        )
    job = Scoring.of(images, config, space=space, seeds=seeds)
    chosen = job.select(networks, None)
    dearest = max(chosen, key=lambda each: job.space.costs(each).get("flops", 0))
    samples = job.data.drawn["samples"]
    layout, program = fit(job.space, job.config, dearest, samples, device, batch=batch)
    work = arithmetic(job.space, job.config, dearest, samples)
    count = len(chosen) * len(job.seeds)
    seconds = least_seconds(device, count, *work, mean_cost(job.space, chosen))
    return _row(device, layout, program, count, seconds)


def _fits_network(target: str, model: Model, images: np.ndarray, config: Config) -> pd.DataFrame:
    chosen = target_named(target)
    (device, *_) = devices_of(chosen)
    with chosen.traced():
        with precision(config):
            model = checked_model(model, dtype_of(config))
        traced = trace_network(model, images.shape, config, device)
        found = compiled_alone(traced, chosen)
    seconds = least_seconds(chosen, 1, 2 * program_multiply_adds(traced.jaxpr.jaxpr))
    return _row(chosen, Plan((device,), 1, 1), found, 1, seconds)


def _row(target: Target, plan: Plan, program: Compiled, count: int, seconds: float) -> pd.DataFrame:
    """The row of a program: networks in all, and the least seconds that they take."""
    launches, moved = (total / plan.batch for total in program.work)
    row = {
        "target": target.name,
        "fits": program.memory <= target.room,
        "networks": count,
        "group": plan.group,
        "needs_gib": program.memory / GIB,
        "has_gib": target.room / GIB,
        "at_best_seconds": seconds,
        "launches": launches,
        "moved_gb": moved / 1e9,
        "moved_seconds": count * moved / target.bandwidth,
        "compiled_seconds": program.seconds,
    }
    return pd.DataFrame([row])
