"""Seconds of each train-free measure by itself, beside those of the kernels."""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

from cells.nasbench201 import Cell
from experiments.page import markdown_table
from experiments.recordings import FULL_FIDELITY, MODERATE, Choices
from experiments.tools.benchmark import clean_kernel
from experiments.tools.clock import compiled, prepared, seconds, spread_cells
from ntkscore.measures import MEASURES
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.registry import ATTACKED_ONCE, NETWORK, Quantity, measures_of, quantities
from ntkscore.measures.slopes import SLOPES, correlation
from ntkscore.model import Model
from ntkscore.trace.passes import passes_of


def timed_quantities() -> dict[Quantity, Callable[[Pass], Any]]:
    """Quantities of one set of images, and of the network alone; the loss costs nothing."""
    once = {*ATTACKED_ONCE[:1], NETWORK}
    computed = {q: q.compute for q in quantities() if q.compute and once & {*q.at}}
    del computed[MEASURES["loss"].of]
    return {SLOPES: lambda at: correlation(at.pullback(jnp.ones_like(at.logits))), **computed}


def measure_times(choices: Choices, count: int) -> Iterator[tuple[str, float]]:
    """Measures, each with the median of its seconds over some cells."""
    cells = spread_cells(count)
    space, scorer, batch = prepared(choices)
    _, with_proxies, _ = prepared(choices | {"proxies": True})

    def median(compute: Callable[[Cell], Any]) -> float:
        jax.block_until_ready(compute(cells[0]))
        return statistics.median(seconds(partial(compute, cell)) for cell in cells)

    def alone(quantity: Quantity, function: Callable[[Pass], Any]) -> Callable[[Cell], Any]:
        """A quantity of a cell: a compiled program, and what the host does with its arrays."""

        def of_model(model: Model, x: Any, y: Any) -> Any:
            return function(Pass(model, passes_of(model, x), x, y, jax.random.key(0)))

        program, read = compiled(space, of_model), quantity.on_host
        if not read:
            return lambda cell: program(cell, batch)
        return lambda cell: read(jax.tree.map(np.asarray, program(cell, batch)))

    for quantity, function in timed_quantities().items():
        yield ", ".join(measures_of(quantity)), median(alone(quantity, function))
    kernel = clean_kernel(space, "layerwise")
    yield "the clean kernel", median(lambda cell: kernel(cell, batch))
    yield "all kernels, FGSM", median(lambda cell: scorer.start([cell], batch).rows())
    with_all = median(lambda cell: with_proxies.start([cell], batch).rows())
    yield "the same with --proxies", with_all


def measures(
    count: Annotated[int, typer.Option(help="Cells, from the smallest to the largest.")] = 9,
) -> None:
    """Time every train-free measure by itself, beside the kernels.

    Each is measured warm and alone, with the passes that it would share with the kernel. Beside a
    kernel those passes cost nothing more.
    """
    full, moderate = (dict(measure_times(each, count)) for each in (FULL_FIDELITY, MODERATE))
    head = "measure", "full fidelity, s", "16 images, C = 8, s"
    typer.echo(markdown_table(head, ((name, full[name], moderate[name]) for name in full)))
