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
from experiments.page import entry, markdown_table
from experiments.recordings import FULL_FIDELITY, MODERATE, Choices
from experiments.tools.clock import prepared, seconds, spread_cells
from ntkscore.kernels.gram import evaluate
from ntkscore.measures import MEASURES
from ntkscore.measures.declaration import ATTACKED_ONCE, NETWORK, Quantity, measures_of, quantities
from ntkscore.measures.forward import Pass
from ntkscore.measures.slopes import SLOPES, correlation
from ntkscore.run.devices import compiler_options
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

    def timed(name: str, compute: Callable[[Cell], Any]) -> tuple[str, float]:
        jax.block_until_ready(compute(cells[0]))
        return name, statistics.median(seconds(partial(compute, cell)) for cell in cells)

    def runner(
        function: Callable[[Pass], Any], read: Callable[[Any], Any] | None
    ) -> Callable[[Cell], Any]:
        """A function of a cell: a compiled program, and what the host does with its arrays."""

        @partial(jax.jit, compiler_options=compiler_options())
        def program(digits: Any, variables: Any, x: Any, y: Any) -> Any:
            model = space.model((), variables, digits, x)
            return function(Pass(model, passes_of(model, x), x, y, jax.random.key(0)))

        def run(cell: Cell) -> Any:
            digits = jnp.asarray(space.encode(cell))
            out = program(digits, batch.variables, batch.images, batch.labels)
            return read(jax.tree.map(np.asarray, out)) if read else out

        return run

    for quantity, function in timed_quantities().items():
        yield timed(", ".join(measures_of(quantity)), runner(function, quantity.read))
    clean = runner(lambda at: evaluate(at.model, at.points, at.labels).gram[0], None)
    yield timed("the clean kernel", clean)
    yield timed("all kernels, FGSM", lambda cell: scorer.start([cell], batch).rows())
    yield timed("the same with --proxies", lambda cell: with_proxies.start([cell], batch).rows())


def measures(
    count: Annotated[int, typer.Option(help="Cells, from the smallest to the largest.")] = 9,
) -> None:
    """Time every train-free measure by itself, beside the kernels.

    Each is measured warm and alone, with the passes that it would share with the kernel. Beside a
    kernel those passes cost nothing more.
    """
    full, moderate = (dict(measure_times(each, count)) for each in (FULL_FIDELITY, MODERATE))
    head = "measure", "full fidelity, s", "16 images, C = 8, s"
    typer.echo(markdown_table(head, ((n, entry(t), entry(moderate[n])) for n, t in full.items())))
