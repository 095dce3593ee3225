"""Seconds and memory of a network's kernel: ours, the plain Jacobian's, and PyTorch's.

Run as `python -m experiments.networks.speed --network resnet18 --points 16 50 150`. Times are of
the second run of each, in turns in one process; the most memory in use is that of a process which
runs one method alone. PyTorch is left out where it is not installed.
"""

import argparse
import importlib.util
import math
import resource
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import jax
import numpy as np
import pandas as pd

from experiments.benchmark.work import in_turns
from experiments.networks.residual import stages_of
from experiments.networks.setting import Scale
from experiments.networks.table import error, markdown, plain_kernel
from experiments.networks.zoo import NETWORKS
from ntkscore import ntk

CHOICES = ("resnet18", "wide-resnet", "vit")
METHODS = ("ours", "jacobian", "torch")
TOLERANCE = 1e-3
"""Relative error that float32 leaves between two ways of computing a kernel."""


def torch_kernel(name: str, scale: Scale) -> Callable[[], Any]:
    """A function that computes the kernel in PyTorch, of the same weights and images."""
    import torch  # type: ignore[import-not-found]

    from experiments.benchmark import torch_reference
    from experiments.networks import torch_networks

    model, points = NETWORKS[name](scale)
    leaves = jax.tree_util.tree_leaves_with_path(model.params)
    weights = {".".join(e.key for e in path): np.asarray(leaf) for path, leaf in leaves}
    if name == "resnet18":
        filters = weights["conv_init.kernel"].shape[-1]
        network = torch_networks.ResNet(filters, stages_of(scale))
    elif name == "wide-resnet":
        filters = 2 * weights["conv_init.kernel"].shape[-1]
        stages = (scale.layers(4),) * scale.stages(3)
        network = torch_networks.WideResNet(filters, stages)
    else:
        width, tokens = weights["cls"].shape[-1], weights["pos_embedding"].shape[1] - 1
        heads = weights["encoderblock_0.MultiHeadDotProductAttention_0.query.bias"].shape[0]
        network = torch_networks.VisionTransformer(width, scale.layers(6), heads, tokens)
    torch_networks.load(network, weights)
    images = torch.tensor(np.asarray(points)).permute(0, 3, 1, 2).contiguous()
    return lambda: torch_reference.kernel(network, images).numpy()


def kernel_by(method: str, name: str, scale: Scale) -> Callable[[], Any]:
    """A function that computes the kernel by one of the methods."""
    if method == "torch":
        return torch_kernel(name, scale)
    model, points = NETWORKS[name](scale)
    compute = ntk if method == "ours" else plain_kernel
    return lambda: compute(model, points)


def _peak_here(method: str, name: str, scale: Scale) -> float:
    compute = kernel_by(method, name, scale)
    for _ in range(2):
        jax.block_until_ready(compute())
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**30


def peak(method: str, name: str, scale: Scale) -> float:
    """GiB of memory in use at most, in a process that runs one method twice; NaN where it fails."""
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        found = alone.submit(_peak_here, method, name, scale)
        return math.nan if found.exception() else found.result()


def measure(
    name: str, scales: Sequence[Scale], peaks: Sequence[dict[str, float]]
) -> Iterator[dict[str, str | float]]:
    """A row for each number of points, whose scale and memory by method are options.

    Raises:
        ValueError: if two methods give different kernels.
    """
    for scale, memory in zip(scales, peaks, strict=True):
        methods = list(memory)
        running = [method for method in methods if not math.isnan(memory[method])]
        functions = [kernel_by(method, name, scale) for method in running]
        first, *others = (function() for function in functions)
        for method, other in zip(running[1:], others, strict=True):
            if error(other, first) > TOLERANCE:
                raise ValueError(
                    f"expected one kernel of {name}, got another by {method}, "
                    f"{error(other, first):.1e} away; compare the two networks"
                )
        seconds = dict(zip(running, in_turns(functions, 1), strict=True))
        row: dict[str, str | float] = {"network": name, "points": scale.points}
        row |= {f"{method} (s)": seconds.get(method, math.nan) for method in methods}
        row |= {f"{method} (GiB)": memory[method] for method in methods}
        for unit, found in (("time", seconds), ("memory", memory)):
            for method in methods[1:]:
                ratio = found.get(method, math.nan) / found.get("ours", math.nan)
                row[f"{method} / ours, {unit}"] = ratio
        yield row
        jax.clear_caches()


def main() -> None:
    """Time the kernels of one network, or of all three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", nargs="+", choices=CHOICES, default=CHOICES)
    parser.add_argument("--points", nargs="+", type=int, default=(16, 50, 150))
    parser.add_argument("--width", type=float, default=1.0, help="of the published width")
    parser.add_argument("--depth", type=float, default=1.0, help="of the published depth")
    parser.add_argument("--side", type=int, default=32, help="of the images, in pixels")
    options = parser.parse_args()
    scales = [
        Scale(options.width, options.depth, options.side, points) for points in options.points
    ]
    methods = [each for each in METHODS if each != "torch" or importlib.util.find_spec("torch")]
    # A process starts with the memory of its parent, so peaks are measured first.
    peaks = {
        name: [{method: peak(method, name, scale) for method in methods} for scale in scales]
        for name in options.network
    }
    for name, memory in peaks.items():
        print(markdown(pd.DataFrame(measure(name, scales, memory))), flush=True)


if __name__ == "__main__":
    main()
