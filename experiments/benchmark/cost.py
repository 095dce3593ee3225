"""Seconds per cell against the number of images, channels and cells per stage, as a picture.

Run as `python -m experiments.benchmark.cost --out STEM`. One cell, the FGSM stack, warm;
each point is a shape of its own and so a compilation of its own, which is not counted.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import jax
import pandas as pd
import typer
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells import Cell
from experiments.benchmark.work import Fidelity, seconds
from experiments.plotting import COLUMN, save
from ntkscore import draw_images, load_images
from ntkscore.run.scorer import Scorer

FULL = {"samples": 50, "channels": 16, "cells_per_stage": 5}
VALUES = {
    "samples": (16, 32, 50, 100),
    "channels": (4, 8, 16, 32),
    "cells_per_stage": (1, 2, 3, 5),
}
LABELS = ("images N", "channels C", "cells per stage")


def stack_seconds(cell: Cell, sizes: dict[str, int]) -> float:
    """Warm seconds of one cell's stack on the first device."""
    data, fidelity = load_images("synthetic"), Fidelity.of(**sizes)
    scorer = Scorer(fidelity.space.on(data.task), fidelity.config)
    batch = scorer.batch(*draw_images(data, sizes["samples"], 0, False), 0)
    jax.block_until_ready(scorer.start([cell], batch).stacks)
    return seconds(lambda: scorer.start([cell], batch).stacks)


def measure(cell: Cell) -> Iterator[dict[str, str | int | float]]:
    """Seconds at every value of each choice, the others being those of full fidelity."""
    full = stack_seconds(cell, FULL)
    for name, values in VALUES.items():
        for value in values:
            taken = full if value == FULL[name] else stack_seconds(cell, FULL | {name: value})
            yield {"choice": name, "value": value, "seconds": taken}


def draw(frame: pd.DataFrame) -> Figure:
    """A panel for each choice."""
    size = (COLUMN * 2, 0.7 * COLUMN)
    figure, axes = plt.subplots(1, len(VALUES), figsize=size, sharey=True)
    groups = frame.groupby("choice", sort=False)
    for axis, label, (_, part) in zip(axes, LABELS, groups, strict=True):
        axis.plot(part["value"], part["seconds"], marker="o", markersize=4)
        axis.set_xlabel(label)
        axis.set_xscale("log", base=2)
        axis.set_xticks(part["value"], map(str, part["value"]))
        axis.set_yscale("log", base=2)
        axis.yaxis.set_major_formatter("{x:g}")
    axes[0].set_ylabel("seconds per cell, FGSM stack")
    return figure


def main(
    out: Annotated[Path, typer.Option(help="Where figure and data go, without an ending.")],
    cell: Annotated[str, typer.Option(help="Which cell.")] = "323133",
) -> None:
    """Measure and draw what a cell costs."""
    frame = pd.DataFrame(measure(Cell.parse(cell)))
    frame.to_csv(out.with_suffix(".csv"), index=False)
    for path in save(draw(frame), out):
        typer.echo(path)


if __name__ == "__main__":
    typer.run(main)
