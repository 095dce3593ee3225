"""Seconds per cell beside PyTorch, plain JAX and the machine's own speed, in one process.

Run as `python -m experiments.benchmark`. Everything is measured warm; compilation is measured
apart. FLOPs are counted in closed form: two per multiply-add of the convolutions and the linear
layer, once for each of the calibration, the forward pass, the gradient in the activations and the
per-image gradients of the weights; and the products of these gradients, two per parameter and
pair of images.
"""

import json
import resource
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

from cells import Cell, distinct_cells
from cells.checkpoints import write_state_dict
from ntkscore import devices, load_images
from ntkscore.config import Config
from ntkscore.images import choose
from ntkscore.scorer import Batch, Scorer
from ntkscore.stack import cell_functions

FULL = Config(samples=50, channels=16, cells_per_stage=5)
SMALL = Config(samples=16, channels=8, cells_per_stage=1)
COUNT = 25


def spread_cells(count: int = COUNT) -> list[Cell]:
    """Distinct cells at even steps of the parameter count."""
    ordered = sorted(distinct_cells(), key=lambda cell: (cell.params(), cell.index))
    places = np.linspace(0, len(ordered) - 1, count).round().astype(int)
    return [ordered[place] for place in places]


def seconds(function: Callable[[], Any], repeats: int = 2) -> float:
    """The shortest of some runs of a function that returns arrays."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return min(times)


def matrix_product_rate(device: Any, size: int = 4096) -> float:
    """FLOP/s of a float32 matrix product in full precision."""
    a = jax.device_put(jnp.ones((size, size), jnp.float32), device)
    product = jax.jit(partial(jnp.matmul, precision="highest"))
    jax.block_until_ready(product(a, a))
    return 2 * size**3 / seconds(lambda: product(a, a), 3)


def clean_flops(cell: Cell, config: Config, images: int, points: int) -> float:
    """Of the kernel of `points` images after a calibration on `images` of them."""
    shape = {"channels": config.channels, "cells_per_stage": config.cells_per_stage}
    forward = 2 * cell.flops(**shape)
    return forward * (images + 3 * points) + 2 * points**2 * cell.params(**shape)


def stack_flops(cell: Cell, config: Config) -> float:
    """Of the kernel at 3N points and two attacks, forward and back, on N."""
    n = config.samples
    shape = {"channels": config.channels, "cells_per_stage": config.cells_per_stage}
    steps = 2 * config.attack_steps
    return clean_flops(cell, config, n, 3 * n) + 4 * steps * n * cell.flops(**shape)


@dataclass
class Timing:
    """One cell's warm seconds; NaN where a rival was left out."""

    cell: str
    params: int
    clean: float
    stack: float
    torch: float = float("nan")
    plain_jax: float = float("nan")
    torch_error: float = float("nan")


def clean_kernel(scorer: Scorer) -> Any:
    """The clean kernel alone, compiled for every cell: (digits, batch) to N×N."""

    @jax.jit
    def kernel(digits: Any, variables: Any, images: Any, labels: Any) -> Any:
        cell = cell_functions(scorer.network, variables, digits, images, labels, scorer.config)
        return cell.gram(images, labels)[0]

    return lambda cell, batch: kernel(
        jnp.asarray(cell.operations, jnp.int32), batch.variables, batch.images, batch.labels
    )


def plain_jax_kernel(scorer: Scorer) -> Any:
    """The clean kernel by jax.vmap(jax.grad), one image at a time, whole gradients in memory."""
    network = scorer.network

    @jax.jit
    def kernel(digits: Any, variables: Any, images: Any) -> Any:
        _, measured = network.apply(
            variables, images, digits, calibrate=True, mutable=["batch_stats"]
        )

        def reading(params: Any, image: Any) -> Any:
            given = {**variables, **measured, "params": params}
            return jnp.sum(network.apply(given, image[None], digits))  # type: ignore[arg-type]

        gradients = jax.vmap(jax.grad(reading), (None, 0))(variables["params"], images)
        rows = [leaf.reshape(len(images), -1) for leaf in jax.tree.leaves(gradients)]
        return sum(jnp.matmul(row, row.T, precision="highest") for row in rows)

    return lambda cell, batch: kernel(
        jnp.asarray(cell.operations, jnp.int32), batch.variables, batch.images
    )


def torch_kernel(scorer: Scorer, cell: Cell, batch: Batch, mean: Any, std: Any) -> Any:
    """A function that computes the clean kernel in PyTorch, same weights; None without torch."""
    try:
        import torch  # type: ignore[import-not-found]

        from experiments import torch_reference
    except ImportError:
        return None
    config = scorer.config
    shape = (config.channels, config.cells_per_stage, scorer.network.num_classes)
    network = torch_reference.TorchNetwork(cell, *shape)
    torch_reference.load(network, write_state_dict(batch.variables, cell, scorer.network))
    normalised = (np.asarray(batch.images) - np.array(mean)) / np.array(std)
    images = torch.tensor(normalised, dtype=torch.float32).permute(0, 3, 1, 2).contiguous()

    def compute() -> Any:
        torch_reference.calibrate(network, images)
        return torch_reference.kernel(network, images)

    return compute


def measure(config: Config, cells: list[Cell], device: Any, rivals: bool) -> Iterator[Any]:
    """A timing for each cell, then what is common to all of them."""
    data = load_images("synthetic")
    layout = devices.plan(config, data.images.shape[1], 1, [device])
    scorer = Scorer(config, data.mean, data.std, data.num_classes, data.name, layout)
    batch = scorer.batch(*choose(data, config.samples, 0, False), 0)
    clean, plain = clean_kernel(scorer), plain_jax_kernel(scorer)
    stack = lambda cell: scorer.start([cell], batch)  # noqa: E731
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
        timing = Timing(
            cell.digits,
            cell.params(config.channels, config.cells_per_stage),
            seconds(lambda cell=cell: clean(cell, batch)),
            seconds(lambda cell=cell: stack(cell)),
        )
        theirs = torch_kernel(scorer, cell, batch, data.mean, data.std) if rivals else None
        if theirs:
            reference = theirs().numpy()
            timing.torch_error = float(np.linalg.norm(ours - reference) / np.linalg.norm(reference))
            timing.torch = seconds(theirs)
        if rivals:
            timing.plain_jax = seconds(lambda cell=cell: plain(cell, batch), 1)
        timings.append(timing)
        yield timing
    start = time.perf_counter()
    for cell in cells:
        result = stack(cell)
    jax.block_until_ready(result)
    whole = time.perf_counter() - start
    work = [stack_flops(cell, config) for cell in cells]
    stats = device.memory_stats() or {}
    peak = stats.get("peak_bytes_in_use", 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    yield {
        "samples": config.samples,
        "channels": config.channels,
        "cells_per_stage": config.cells_per_stage,
        "device": device.device_kind,
        "clean_seconds_median": statistics.median(t.clean for t in timings),
        "stack_seconds_median": statistics.median(t.stack for t in timings),
        "stack_seconds_per_cell": whole / len(cells),
        "compile_seconds": compile_seconds,
        "compilations": scorer.compilations,
        "peak_bytes": peak,
        "matrix_product_flops": rate,
        "fraction_of_matrix_product": sum(work) / whole / rate,
        "clean_to_torch": _geometric_mean([t.clean / t.torch for t in timings]),
        "clean_to_plain_jax": _geometric_mean([t.clean / t.plain_jax for t in timings]),
        "largest_error_to_torch": max(t.torch_error for t in timings),
    }


def _geometric_mean(ratios: list[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def main(
    device: Annotated[str | None, typer.Option(help="cpu, gpu or tpu; JAX's default.")] = None,
    count: Annotated[int, typer.Option(help="Cells, spread over parameter counts.")] = COUNT,
    small: Annotated[bool, typer.Option(help="The small fidelity too.")] = True,
    rivals: Annotated[bool, typer.Option(help="Time PyTorch and plain JAX as well.")] = True,
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
) -> None:
    """Time the clean kernel and the FGSM stack."""
    chosen = jax.devices(device)[0] if device else jax.devices()[0]
    report = []
    for config in (FULL, SMALL) if small else (FULL,):
        *timings, summary = measure(config, spread_cells(count), chosen, rivals)
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
