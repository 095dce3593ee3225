"""Seconds per cell beside PyTorch, the plain contraction and the machine's own speed.

Everything is measured warm, in one process; compilation is measured apart.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Annotated, Any

import jax
import numpy as np
import pandas as pd
import typer

from cells.nasbench201 import Cell
from cells.nasbench201.checkpoints import write_state_dict
from cells.nasbench201.space import NASBench201
from experiments.page import markdown_table
from experiments.recordings import FULL_FIDELITY, SMALL, Choices
from experiments.tools.clock import (
    compiled,
    in_turns,
    matrix_product_rate,
    peak_bytes,
    prepared,
    seconds,
    spread_cells,
    stack_flops,
)
from ntkscore.errors import InputError
from ntkscore.kernels.implementations import evaluate
from ntkscore.model import Model
from ntkscore.run.scorer import Batch
from ntkscore.space import Space

TURNS = 7
"""Runs of the clean kernel and of PyTorch's, in turns; the shortest of each counts, since whatever
else a machine does makes a run longer."""
COLUMNS = ("cell", "params", "clean", "stack", "torch", "contraction", "torch_error")
"""One cell's warm seconds; NaN where a rival was left out."""


def clean_kernel(space: Space, implementation: str) -> Callable[[Cell, Batch], jax.Array]:
    """The clean kernel alone, compiled for every cell: (cell, batch) to N×N."""

    def kernel(model: Model, images: jax.Array, labels: jax.Array) -> jax.Array:
        return evaluate(model, images, labels, implementation=implementation).gram[0]

    return compiled(space, kernel)


def torch_network(space: NASBench201, cell: Cell, batch: Batch) -> tuple[Any, Any]:
    """The cell's network in PyTorch with the batch's weights, and its normalised images."""
    import torch  # type: ignore[import-not-found]

    from experiments.tools import torch_reference

    task = space.task
    network = torch_reference.TorchNetwork(
        cell, space.channels, space.cells_per_stage, task.num_classes
    )
    torch_reference.load(network, write_state_dict(batch.variables, cell, space))
    normalised = (np.asarray(batch.images) - np.array(task.mean)) / np.array(task.std)
    images = torch.tensor(normalised, dtype=torch.float32).permute(0, 3, 1, 2).contiguous()
    return network, images


def torch_kernel(space: NASBench201, cell: Cell, batch: Batch) -> Callable[[], Any]:
    """A function that computes the clean kernel in PyTorch with the same weights."""
    from experiments.tools import torch_reference

    network, images = torch_network(space, cell, batch)

    def compute() -> Any:
        torch_reference.calibrate(network, images)
        return torch_reference.kernel(network, images)

    return compute


def measure(choices: Choices, cells: list[Cell], device: Any, rivals: bool) -> dict[str, Any]:
    """Medians, ratios and rates over some cells, and the timings of each under `cells`."""
    space, scorer, batch = prepared(choices, device)
    clean, plain = (clean_kernel(space, name) for name in ("layerwise", "contraction"))
    torch = rivals and importlib.util.find_spec("torch") is not None

    def stacks(cells: list[Cell]) -> list[Any]:
        return [scorer.start([cell], batch) for cell in cells]

    compile_seconds = seconds(partial(stacks, cells[:1]), 1)
    for kernel in (clean, plain) if rivals else (clean,):
        jax.block_until_ready(kernel(cells[0], batch))
    rate = matrix_product_rate(device)
    timings = []
    for cell in cells:
        row: dict[str, Any] = {"cell": cell.digits, "params": int(space.costs(cell)["params"])}
        kernels: dict[str, Callable[[], Any]] = {"clean": partial(clean, cell, batch)}
        if torch:
            kernels["torch"] = torch_kernel(space, cell, batch)
        row |= zip(kernels, in_turns([*kernels.values()], TURNS), strict=True)
        row["stack"] = seconds(partial(stacks, [cell]))
        if torch:
            reference = kernels["torch"]().numpy()
            error = np.linalg.norm(clean(cell, batch) - reference) / np.linalg.norm(reference)
            row["torch_error"] = float(error)
        if rivals:
            row["contraction"] = seconds(partial(plain, cell, batch), 1)
        timings.append(row)
    whole = seconds(partial(stacks, cells), 1)
    frame = pd.DataFrame(timings, columns=list(COLUMNS))
    flops = sum(stack_flops(cell, space, scorer.config, choices["samples"]) for cell in cells)
    return {
        **{name: choices[name] for name in ("samples", "channels", "cells_per_stage")},
        "device": device.device_kind,
        "clean_seconds_median": float(frame["clean"].median()),
        "stack_seconds_median": float(frame["stack"].median()),
        "stack_seconds_per_cell": whole / len(cells),
        "compile_seconds": compile_seconds,
        "peak_bytes": peak_bytes(device),
        "matrix_product_flops": rate,
        "fraction_of_matrix_product": flops / whole / rate,
        **{
            f"clean_to_{rival}": float(np.exp(np.log(frame["clean"] / frame[rival]).mean()))
            for rival in ("torch", "contraction")
        },
        "largest_error_to_torch": float(frame["torch_error"].max()),
        "cells": frame.to_dict("records"),
    }


def benchmark(
    count: Annotated[int, typer.Option(help="Cells, spread over parameter counts.")] = 25,
    full: Annotated[bool, typer.Option(help="The full fidelity too.")] = True,
    rivals: Annotated[bool, typer.Option(help="Time PyTorch and the contraction too.")] = True,
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
) -> None:
    """Time the clean kernel and the FGSM stack on the first device."""
    device, fidelities = jax.devices()[0], [FULL_FIDELITY] * full + [SMALL]
    report = [measure(choices, spread_cells(count), device, rivals) for choices in fidelities]
    if format == "json":
        typer.echo(json.dumps(report, indent=1))
        return
    for summary in report:
        timings = (timing.values() for timing in summary.pop("cells"))
        typer.echo(markdown_table(COLUMNS, timings) + "\n")
        typer.echo(markdown_table(("", ""), summary.items()) + "\n")


def seconds_to_a_result(
    module: str, *arguments: object, environment: Mapping[str, str] | None = None
) -> float:
    """Seconds from the start of a module, in a process of its own, to its first line.

    Raises:
        InputError: if it prints none.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    start, environment = time.perf_counter(), os.environ | (environment or {})
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        first, elapsed = process.stdout.readline(), time.perf_counter() - start
        process.stdout.read()
    if not first:
        raise InputError(f"a result of {' '.join(command[1:])}", "none", "run it alone to see why")
    return elapsed


def first_result(
    cell: Annotated[str, typer.Option(help="Which cell.")] = "323133",
    repeats: Annotated[int, typer.Option(help="Warm starts behind a median.")] = 3,
) -> None:
    """Time the way from the shell to a cell's first number.

    `ntkscore score` prints every score of every kernel: once with nothing compiled before, then
    again and again. The rival, where the interpreter has PyTorch, prints the clean kernel's norm
    and smallest eigenvalue.
    """
    sizes = [SMALL[name] for name in ("channels", "cells_per_stage", "samples")]
    flags = zip(("--channels", "--cells-per-stage", "--samples"), sizes, strict=True)
    score = "ntkscore", "score", cell, "--seeds", "1", *chain(*flags), "--format", "csv"
    with tempfile.TemporaryDirectory() as compiled_programs:
        cache = {
            "JAX_COMPILATION_CACHE_DIR": compiled_programs,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        cold, *warm = (seconds_to_a_result(*score, environment=cache) for _ in range(1 + repeats))
    times = {"cold": cold, "warm": statistics.median(warm)}
    if importlib.util.find_spec("torch"):
        rival = "experiments.tools.torch_reference", cell, *sizes
        times["torch"] = statistics.median(seconds_to_a_result(*rival) for _ in range(repeats))
    for name, elapsed in times.items():
        typer.echo(f"{name:8} {elapsed:.2f} s")
