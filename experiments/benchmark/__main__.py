"""Seconds per cell beside PyTorch, the plain contraction and the machine's own speed.

Run as `python -m experiments.benchmark`. Everything is measured warm, in one process; compilation
is measured apart.
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

from cells import Cell
from cells.nasbench201.checkpoints import write_state_dict
from cells.nasbench201.space import NASBench201
from experiments.benchmark.work import (
    COUNT,
    FULL,
    SMALL,
    Fidelity,
    in_turns,
    matrix_product_rate,
    peak_bytes,
    seconds,
    spread_cells,
    stack_flops,
)
from ntkscore import draw_images, load_images
from ntkscore.kernels.gram import evaluate
from ntkscore.run.devices import compiler_options, plan
from ntkscore.run.scorer import Batch, Scorer

TURNS = 7
"""Runs of the clean kernel and of PyTorch's, in turns; the shortest of each counts, since whatever
else a machine does makes a run longer."""


@dataclass
class Timing:
    """One cell's warm seconds; NaN where a rival was left out.

    The loop takes too long for every cell: it is of the smallest, the median and the largest.
    """

    cell: str
    params: int
    clean: float
    stack: float
    torch: float = float("nan")
    loop: float = float("nan")
    contraction: float = float("nan")
    torch_error: float = float("nan")


def clean_kernel(space: NASBench201, implementation: str) -> Callable[[Cell, Batch], Any]:
    """The clean kernel alone, compiled for every cell: (cell, batch) to N×N."""

    @partial(jax.jit, compiler_options=compiler_options())
    def kernel(digits: Any, variables: Any, images: Any, labels: Any) -> Any:
        model = space.model((), variables, digits, images)
        return evaluate(model, images, labels, implementation=implementation).gram[0]

    return lambda cell, batch: kernel(
        jnp.asarray(space.encode(cell)), batch.variables, batch.images, batch.labels
    )


def torch_network(space: NASBench201, cell: Cell, batch: Batch) -> tuple[Any, Any]:
    """The cell's network in PyTorch with the batch's weights, and its normalised images."""
    import torch  # type: ignore[import-not-found]

    from experiments.benchmark import torch_reference

    task = space.task
    network = torch_reference.TorchNetwork(
        cell, space.channels, space.cells_per_stage, task.num_classes
    )
    torch_reference.load(network, write_state_dict(batch.variables, cell, space.flax_network))
    normalised = (np.asarray(batch.images) - np.array(task.mean)) / np.array(task.std)
    images = torch.tensor(normalised, dtype=torch.float32).permute(0, 3, 1, 2).contiguous()
    return network, images


def torch_kernel(
    space: NASBench201, cell: Cell, batch: Batch, loop: bool = False
) -> Callable[[], Any] | None:
    """A function that computes the clean kernel in PyTorch, same weights; None without torch.

    Args:
        space, cell, batch: of which network, on which images.
        loop: whether to go backward an image at a time, as TE-NAS does.
    """
    try:
        from experiments.benchmark import torch_reference
    except ImportError:
        return None
    network, images = torch_network(space, cell, batch)
    kernel = torch_reference.kernel_by_loop if loop else torch_reference.kernel

    def compute() -> Any:
        torch_reference.calibrate(network, images)
        return kernel(network, images)

    return compute


def measure(fidelity: Fidelity, cells: list[Cell], device: Any, rivals: bool) -> Iterator[Any]:
    """A timing for each cell, then what is common to all of them."""
    data, config = load_images("synthetic"), fidelity.config
    space = fidelity.space.on(data.task)
    scorer = Scorer(space, config, plan(None, 1, [device]))
    batch = scorer.batch(*draw_images(data, config.samples, 0, False), 0)
    clean, plain = clean_kernel(space, "layerwise"), clean_kernel(space, "contraction")
    stack = lambda cell: scorer.start([cell], batch).stacks  # noqa: E731
    start = time.perf_counter()
    jax.block_until_ready(stack(cells[0]))
    compile_seconds = time.perf_counter() - start
    jax.block_until_ready(clean(cells[0], batch))
    if rivals:
        jax.block_until_ready(plain(cells[0], batch))
    rate = matrix_product_rate(device)
    timings = []
    for cell in cells:
        ours = clean(cell, batch)
        theirs = torch_kernel(space, cell, batch) if rivals else None
        kernels = [lambda cell=cell: clean(cell, batch), *([theirs] if theirs else [])]
        taken = in_turns(kernels, TURNS)
        params = int(space.costs(cell)["params"])
        timing = Timing(cell.digits, params, taken[0], seconds(lambda cell=cell: stack(cell)))
        if theirs:
            reference = theirs().numpy()
            timing.torch_error = float(np.linalg.norm(ours - reference) / np.linalg.norm(reference))
            timing.torch = taken[1]
        looped = rivals and cell in (cells[0], cells[len(cells) // 2], cells[-1])
        loop = torch_kernel(space, cell, batch, loop=True) if looped else None
        if loop:
            timing.loop = seconds(loop, 1)
        if rivals:
            timing.contraction = seconds(lambda cell=cell: plain(cell, batch), 1)
        timings.append(timing)
        yield timing
    start = time.perf_counter()
    for cell in cells:
        result = stack(cell)
    jax.block_until_ready(result)
    whole = time.perf_counter() - start
    work = [stack_flops(cell, space, config) for cell in cells]
    yield {
        "samples": config.samples,
        "channels": space.channels,
        "cells_per_stage": space.cells_per_stage,
        "device": device.device_kind,
        "clean_seconds_median": statistics.median(t.clean for t in timings),
        "stack_seconds_median": statistics.median(t.stack for t in timings),
        "stack_seconds_per_cell": whole / len(cells),
        "compile_seconds": compile_seconds,
        "peak_bytes": peak_bytes(device),
        "matrix_product_flops": rate,
        "fraction_of_matrix_product": sum(work) / whole / rate,
        "clean_to_torch": _geometric_mean([t.clean / t.torch for t in timings]),
        "clean_to_loop": _geometric_mean([t.clean / t.loop for t in timings]),
        "clean_to_contraction": _geometric_mean([t.clean / t.contraction for t in timings]),
        "largest_error_to_torch": max(t.torch_error for t in timings),
    }


def _geometric_mean(ratios: list[float]) -> float:
    """The geometric mean of those that were measured; NaN where none was."""
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    return float(np.exp(np.mean(np.log(known)))) if known else float("nan")


def main(
    device: Annotated[str | None, typer.Option(help="cpu, gpu or tpu; JAX's default.")] = None,
    count: Annotated[int, typer.Option(help="Cells, spread over parameter counts.")] = COUNT,
    full: Annotated[bool, typer.Option(help="The full fidelity.")] = True,
    small: Annotated[bool, typer.Option(help="The small fidelity too.")] = True,
    rivals: Annotated[bool, typer.Option(help="Time PyTorch and the contraction too.")] = True,
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
) -> None:
    """Time the clean kernel and the FGSM stack."""
    chosen = jax.devices(device)[0] if device else jax.devices()[0]
    report = []
    for fidelity in [FULL] * full + [SMALL] * small:
        *timings, summary = measure(fidelity, spread_cells(count), chosen, rivals)
        report.append(summary | {"cells": [asdict(timing) for timing in timings]})
    if format == "json":
        typer.echo(json.dumps(report, indent=1))
        return
    for summary in report:
        for timing in summary.pop("cells"):
            typer.echo("  ".join(f"{k} {v:.4g}" if k != "cell" else v for k, v in timing.items()))
        for name, value in summary.items():
            typer.echo(f"{name:28} {value if isinstance(value, str) else f'{value:.4g}'}")


if __name__ == "__main__":
    typer.run(main)
