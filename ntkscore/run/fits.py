"""Programs compiled for a target: what they need, what they do, and how fast they are at best.

Nothing is run. Numerics, speed and the choice of cuDNN's algorithms show only on the device.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from math import isnan, nan
from typing import NamedTuple

import jax
import numpy as np
from jax.stages import Traced
from jaxtyping import Array, PyTree

from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.platforms import traced_for
from ntkscore.run.devices import Device, Plan, bytes_needed, largest_with_room, plan
from ntkscore.run.program_text import parse
from ntkscore.run.scorer import Scorer, dtype_of, kernels, precision
from ntkscore.run.targets import Target, devices_of, options_for, placed
from ntkscore.space import Architecture, Space
from ntkscore.trace.operations import program_multiply_adds


class Compiled(NamedTuple):
    """A program as a target's compiler left it.

    Attributes:
        seconds: of compilation, on this machine.
        memory: bytes that it needs on a device at its peak, arguments and results among them.
        text: as XLA prints it.
    """

    seconds: float
    memory: int
    text: str

    @property
    def work(self) -> tuple[float, float]:
        """Operations that start one by one, and bytes that these read and write.

        NaN where only the numbers decide how often a loop runs.
        """
        work, trips = parse(self.text)
        return (nan, nan) if 0 in trips else work


def compiled(traced: Traced, target: Target) -> Compiled:
    """Compile a traced program, whose arguments lie on `devices_of` the target."""
    start = time.monotonic()
    lowered = traced.lower(lowering_platforms=(target.platform,))
    program = lowered.compile(options_for(target))
    seconds = time.monotonic() - start
    return Compiled(seconds, bytes_needed(program), program.as_text() or "")


def arithmetic(
    space: Space, config: Config, architecture: Architecture, samples: int
) -> tuple[float, float]:
    """Floating-point operations, twice the multiply-adds, of an architecture's network, alone.

    Returns:
        Those of all that is computed of it on so many images, and those of its forward pass for
        an image.
    """
    shape, dtype = space.shape(architecture), dtype_of(config)
    with traced_for("gpu"):
        whole = Scorer(space, config, layout_independent=True).trace(architecture, samples).jaxpr
    variables, code = space.draw(shape, 0, dtype), space.encode(architecture)
    images = jax.ShapeDtypeStruct((samples, *space.task.image_shape), dtype)
    counted: list[float] = []

    def count(variables: PyTree, code: PyTree, images: Array) -> Array:
        # A model may compute statistics when it is made; a pass is counted apart from that.
        model = space.model(shape, variables, code, images)
        jaxpr = jax.make_jaxpr(model.apply)(model.params, images)
        counted.append(program_multiply_adds(jaxpr.jaxpr))
        return images

    with precision(config):
        jax.eval_shape(count, variables, code, images)
    return 2 * program_multiply_adds(whole.jaxpr), 2 * counted[0] / samples


def least_seconds(
    target: Target, networks: int, whole: float, forward: float = nan, mean: float | None = None
) -> float:
    """A bound below the time of so many networks: their work at the device's published rate.

    Args:
        networks: how many, times seeds.
        whole, forward: `arithmetic` of the dearest network.
        mean: `mean_cost` of them; the dearest network's if left out.
    """
    part = 1.0 if mean is None else min(2 * mean / forward, 1.0)
    return networks * part * whole / target.rate


def fit(
    space: Space,
    config: Config,
    architecture: Architecture,
    samples: int,
    target: Target,
    *,
    count: int = 1,
    batch: int | None = None,
) -> tuple[Plan, Compiled]:
    """The layout with the largest group that has room, or the smallest, and its program.

    The program scores networks on `samples` images, on `count` devices, 1 or 8.
    """
    layout = plan(batch=batch, devices=devices_of(target, count))
    if space.piecewise:
        layout = replace(layout, group=1, batch=1)
    programs: dict[Plan, Compiled] = {}
    said = ""

    def needed(layout: Plan) -> int:
        nonlocal said
        scorer = Scorer(space, config, layout, layout_independent=True)
        try:
            programs[layout] = compiled(scorer.trace(architecture, samples), target)
        except jax.errors.JaxRuntimeError as error:
            said = str(error).splitlines()[0]
            raise
        return programs[layout].memory

    with target.traced():
        layout = largest_with_room(layout, target.room, needed)
    if layout not in programs:
        raise no_room(target, said)
    return layout, programs[layout]


def compiled_alone(traced: Traced, target: Target) -> Compiled:
    """Compile a traced program that is of one network."""
    try:
        return compiled(traced, target)
    except jax.errors.JaxRuntimeError as error:
        raise no_room(target, str(error).splitlines()[0]) from None


def no_room(target: Target, said: str) -> InputError:
    """The error for a program that a target's compiler refuses, with the first line of its own."""
    return InputError(
        f"networks that {target.name} has room for",
        f"but its compiler says: {said}",
        "score fewer images, or smaller networks",
    )


def trace_network(model: Model, shape: tuple[int, ...], config: Config, device: Device) -> Traced:
    """The program that scores a network, as JAX traces it; nothing is computed."""
    with precision(config):
        dtype = dtype_of(config)
        arrays = (
            model.params,
            jax.ShapeDtypeStruct(shape, dtype),
            jax.ShapeDtypeStruct(shape[:1], np.int32),
            jax.ShapeDtypeStruct((len(config.rhos),), dtype),
            jax.random.key(0),
        )

        def program(params: PyTree, *others: Array) -> tuple[PyTree, ...]:
            return tuple(kernels(model._replace(params=params), config, *others))

        return jax.jit(program).trace(*placed(arrays, device))


def mean_cost(space: Space, architectures: Sequence[Architecture]) -> float | None:
    """Mean multiply-adds of the networks' forward passes for an image; None where not counted."""
    costs = [space.costs(each).get("flops", nan) for each in architectures]
    mean = sum(costs) / len(costs)
    return None if isnan(mean) else mean
