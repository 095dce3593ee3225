"""Cells, clocks and the arithmetic of a kernel.

FLOPs are counted in closed form: two per multiply-add of the convolutions and the linear layer,
once for each forward pass, gradient in the activations and per-image gradient of the weights; and
the products of these gradients, two per parameter and pair of images. Calibration is the forward
pass at the clean images, and every attacked image has one, which its own attack and the kernel
share.
"""

import resource
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cells.nasbench201 import Cell, distinct_cells
from cells.nasbench201.space import NASBench201
from experiments.recordings import Choices, Recording
from ntkscore import load_images
from ntkscore.compiler import compiler_options
from ntkscore.config import Config
from ntkscore.model import Model
from ntkscore.run.devices import plan
from ntkscore.run.scorer import Batch, Scorer
from ntkscore.space import Space


def prepared(choices: Choices, device: Any = None) -> tuple[NASBench201, Scorer, Batch]:
    """A space, its scorer, and weights and embedded images of seed 0.

    Args:
        choices: fields of `Config` and of `NASBench201`.
        device: that networks are scored on, one at a time; the first one if left out.
    """
    recording = Recording(choices)
    data = load_images("synthetic", **recording.drawn)
    space, config = recording.space.on(data.task), recording.config
    scorer = Scorer(space, config, plan(None, 1, [device]) if device else None)
    return space, scorer, scorer.batch(*data.draw(0), 0)


def compiled(
    space: Space, function: Callable[[Model, Any, Any], Any]
) -> Callable[[Cell, Batch], Any]:
    """A function of a model, images and labels, compiled once for all cells, of cell and batch."""

    @partial(jax.jit, compiler_options=compiler_options())
    def program(digits: Any, variables: Any, images: Any, labels: Any) -> Any:
        return function(space.model((), variables, digits, images), images, labels)

    return lambda cell, batch: program(
        jnp.asarray(space.encode(cell)), batch.variables, batch.images, batch.labels
    )


def spread_cells(count: int) -> list[Cell]:
    """Distinct cells at even steps of the parameter count."""
    space = NASBench201()
    params = {cell: space.costs(cell)["params"] for cell in distinct_cells()}
    ordered = sorted(params, key=lambda cell: (params[cell], cell.index))
    places = np.linspace(0, len(ordered) - 1, count).round().astype(int)
    return [ordered[place] for place in places]


def in_turns(functions: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """Seconds of the shortest run of each function, run in turns; each returns arrays."""

    def once(function: Callable[[], Any]) -> float:
        start = time.perf_counter()
        jax.block_until_ready(function())
        return time.perf_counter() - start

    return list(np.min([[once(function) for function in functions] for _ in range(repeats)], 0))


def seconds(function: Callable[[], Any], repeats: int = 2) -> float:
    """Seconds of the shortest of some runs of a function that returns arrays."""
    return in_turns([function], repeats)[0]


def peak_bytes(device: Any = None) -> int:
    """Peak memory in bytes: the device's, or this process's where the device does not report it."""
    stats = (device.memory_stats() if device else None) or {}
    used = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(stats.get("peak_bytes_in_use", used))


def matrix_product_rate(device: Any) -> float:
    """FLOP/s of a float32 matrix product in full precision."""
    size = 4096
    a = jax.device_put(jnp.ones((size, size), jnp.float32), device)
    product = jax.jit(partial(jnp.matmul, precision="highest"))
    jax.block_until_ready(product(a, a))
    return 2 * size**3 / seconds(lambda: product(a, a), 3)


def stack_flops(cell: Cell, space: Space, config: Config, n: int) -> float:
    """FLOPs of the kernel at 3N points of N images, the two attacks between them included."""
    steps = config.attack_at(0.1).steps
    forward, back, weights = 3 + 2 * (steps - 1), 3 + 2 * steps, 3
    costs = space.costs(cell)
    passes = n * (forward + back + weights)
    return 2 * costs["flops"] * passes + 2 * (3 * n) ** 2 * costs["params"]
