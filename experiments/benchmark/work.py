"""Settings, cells and clocks of the benchmark, and the arithmetic that a kernel takes.

FLOPs are counted in closed form: two per multiply-add of the convolutions and the linear layer,
once for each forward pass, gradient in the activations and per-image gradient of the weights; and
the products of these gradients, two per parameter and pair of images. Calibration is the forward
pass at the clean images, and every attacked image has one, which its own attack and the kernel
share.
"""

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cells import Cell, distinct_cells
from cells.nasbench201.space import NASBench201
from ntkscore.config import Config


@dataclass(frozen=True)
class Fidelity:
    """A space and a config: the size of the network, and how it is scored."""

    space: NASBench201
    config: Config

    @classmethod
    def of(cls, samples: int, channels: int, cells_per_stage: int) -> "Fidelity":
        """The default choices at this many images, channels and cells per stage."""
        space = NASBench201(channels=channels, cells_per_stage=cells_per_stage)
        return cls(space, Config(samples=samples))


FULL = Fidelity.of(samples=50, channels=16, cells_per_stage=5)
SMALL = Fidelity.of(samples=16, channels=8, cells_per_stage=1)
COUNT = 25


def spread_cells(count: int = COUNT) -> list[Cell]:
    """Distinct cells at even steps of the parameter count."""
    ordered = sorted(distinct_cells(), key=lambda cell: (cell.params(), cell.index))
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


def peak_bytes(device: Any) -> int:
    """The most memory that was in use: the device's, or where it does not say this process's."""
    stats = device.memory_stats() or {}
    used = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(stats.get("peak_bytes_in_use", used))


def matrix_product_rate(device: Any, size: int = 4096) -> float:
    """FLOP/s of a float32 matrix product in full precision."""
    a = jax.device_put(jnp.ones((size, size), jnp.float32), device)
    product = jax.jit(partial(jnp.matmul, precision="highest"))
    jax.block_until_ready(product(a, a))
    return 2 * size**3 / seconds(lambda: product(a, a), 3)


def stack_flops(cell: Cell, space: NASBench201, config: Config) -> float:
    """FLOPs of the kernel at 3N points, the two attacks between them included."""
    n, steps = config.samples, config.attack_at(0.1).steps
    forward, back, weights = 3 + 2 * (steps - 1), 3 + 2 * steps, 3
    costs = space.costs(cell)
    passes = n * (forward + back + weights)
    return 2 * costs["flops"] * passes + 2 * (3 * n) ** 2 * costs["params"]
