"""Scores against accuracy, cell by cell, beside the parameter count.

Run as `python -m experiments.scatter DIR --table PATH --score NAME --out STEM`.
"""

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from experiments.style import COLOURS, COLUMN, metric_label, save
from ntkscore.comparison import scores_in
from ntkscore.selection import baselines
from ntkscore.tables import load_table

LABELS = {"params": "parameters of the network"}


def scatter(scores: pd.DataFrame, accuracy: pd.Series, metric: str) -> Figure:
    """One panel per column of scores.

    Args:
        scores: a line per cell, a column per score, plotted logarithmically.
        accuracy: of the same cells, as a fraction.
        metric: name of the accuracy.
    """
    width = COLUMN * len(scores.columns)
    figure, axes = plt.subplots(
        1, len(scores.columns), figsize=(width, 0.75 * COLUMN), sharey=True, squeeze=False
    )
    for axis, colour, (name, values) in zip(axes[0], COLOURS, scores.items(), strict=False):
        label = str(name)
        known = values.notna()
        correlation = spearmanr(values[known], accuracy[known]).statistic
        axis.scatter(values[known], accuracy[known], s=9, alpha=0.7, color=colour, linewidths=0)
        axis.set_xscale("log")
        axis.set_xlabel(LABELS.get(label, label))
        axis.set_title(f"Spearman {correlation:.3f}, {known.sum()} cells")
    axes[0, 0].set_ylabel(f"{metric_label(metric)} accuracy (fraction)")
    return figure


def main(
    directory: Annotated[Path, typer.Argument(help="A result directory.")],
    table: Annotated[Path, typer.Option(help="Benchmark table.")],
    out: Annotated[Path, typer.Option(help="Where the figure goes, without its ending.")],
    score: Annotated[list[str], typer.Option(help="Score to draw (repeatable).")] = [  # noqa: B006
        "robust.lambda_min_normalized"
    ],
    dataset: str = "cifar10",
    metric: str = "val_pgd_8_acc",
) -> None:
    """Draw scores and the parameter count against accuracy."""
    scores, _ = scores_in(directory, dataset)
    cells = list(scores.index)
    shown = scores[list(score)].join(baselines(cells)["params"])
    accuracy = pd.Series(load_table(table).accuracies(dataset, metric, cells), scores.index)
    for path in save(scatter(shown, accuracy, metric), out):
        typer.echo(path)


if __name__ == "__main__":
    typer.run(main)
