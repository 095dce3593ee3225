"""Seconds per cell of every train-free measure by itself, beside the kernels.

Run as `python -m experiments.benchmark.measures`. Each is measured warm and alone, with the passes
that it would share with the kernel; what the kernel's way gives for nothing costs nothing more
there.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import typer

from experiments.benchmark.work import FULL, Fidelity, seconds, spread_cells
from ntkscore import draw_images, load_images
from ntkscore.kernels.gram import evaluate
from ntkscore.measures import MEASURES
from ntkscore.measures.declaration import ATTACKED_ONCE, NETWORK, Quantity, measures_of, quantities
from ntkscore.measures.forward import Pass
from ntkscore.measures.slopes import SLOPES, correlation
from ntkscore.run.devices import compiler_options
from ntkscore.run.scorer import Scorer
from ntkscore.trace.passes import passes_of

MODERATE = Fidelity.of(samples=16, channels=8, cells_per_stage=5)
KEY = 0
Function = Callable[[Pass], Any]


def slopes(at: Pass) -> jax.Array:
    """The correlation of the gradients of the logit sum in the images."""
    return correlation(at.pullback(jnp.ones_like(at.logits)))


def timed_quantities() -> dict[Quantity, Function]:
    """What is taken at one set of images, and of the network alone; the loss costs nothing."""
    once = {*ATTACKED_ONCE[:1], NETWORK}
    own = {q: q.compute for q in quantities() if q.compute and once & {*q.at}}
    del own[MEASURES["loss"].of]
    return {SLOPES: slopes, **own}


def measure(fidelity: Fidelity, count: int) -> Iterator[dict[str, Any]]:
    """A row for each measure: the median over some cells."""
    data = load_images("synthetic")
    space, config = fidelity.space.on(data.task), fidelity.config
    cells = spread_cells(count)
    scorer = Scorer(space, config)
    batch = scorer.batch(*draw_images(data, config.samples, 0, False), 0)
    own = Scorer(space, replace(config, proxies=True))

    def timed(compute: Callable[[Any], Any]) -> float:
        return statistics.median(seconds(lambda cell=cell: compute(cell)) for cell in cells)

    where = {"images": config.samples, "C": space.channels, "N": space.cells_per_stage}

    def runner(function: Function, read: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
        """What measures a cell: a compiled program, and what the host does with its arrays."""

        def compute(digits: Any, variables: Any, x: Any, y: Any) -> Any:
            model = space.model((), variables, digits, x)
            return function(Pass(model, passes_of(model, x), x, y, jax.random.key(KEY)))

        program = jax.jit(compute, compiler_options=compiler_options())

        def run(cell: Any) -> Any:
            digits = jnp.asarray(space.encode(cell))
            out = program(digits, batch.variables, batch.images, batch.labels)
            return read(jax.tree.map(np.asarray, out)) if read else out

        jax.block_until_ready(run(cells[0]))
        return run

    for quantity, function in timed_quantities().items():
        name = ", ".join(measures_of(quantity))
        yield where | {"measure": name, "seconds": timed(runner(function, quantity.read))}
    clean = runner(lambda at: evaluate(at.model, at.points, at.labels).gram[0], None)
    yield where | {"measure": "the clean kernel", "seconds": timed(clean)}
    for name, each in (("all kernels, FGSM", scorer), ("the same with --proxies", own)):
        whole = lambda cell, each=each: each.start([cell], batch).rows()  # noqa: E731
        whole(cells[0])
        yield where | {"measure": name, "seconds": timed(whole)}


def main(
    count: Annotated[int, typer.Option(help="Cells, from the smallest to the largest.")] = 9,
) -> None:
    """Time every measure."""
    rows = [row for fidelity in (FULL, MODERATE) for row in measure(fidelity, count)]
    frame = pd.DataFrame(rows).pivot(
        index="measure", columns=["images", "C", "N"], values="seconds"
    )
    typer.echo(frame.loc[list(dict.fromkeys(row["measure"] for row in rows))].round(3).to_string())


if __name__ == "__main__":
    typer.run(main)
