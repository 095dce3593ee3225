"""Operations on the edges of the most robust cells (Figures 4 and 8)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells.drawing import graphs_of
from cells.nasbench201 import OPERATIONS, Cell
from experiments.data import BENCHMARK, DATASET, OLDER
from experiments.frame import Claim, Study, Within, exact, near
from experiments.plotting import COLUMN
from ntkscore.analysis.comparison import ROBUST_MEAN, ROBUST_METRICS
from ntkscore.explore.graphs import draw

FIGURES = {"adversarial": "Figure 4", "without attacks": "Figure 8"}
"""The paper's figures, by how the networks were trained."""


def measure(at: Any) -> Iterator[dict[str, object]]:
    """Operations of the most robust cells of a table, a row per cell and edge."""
    table = at.data.table if at.training == "adversarial" else at.data.older
    cells = at.data.table.own
    robust = np.mean([table.accuracies(at.dataset, m, cells) for m in ROBUST_METRICS], axis=0)
    best = pd.Series(robust, cells).nlargest(at.top)
    for rank, (index, accuracy) in enumerate(best.items(), 1):
        cell = Cell(int(str(index)))
        whole = {"rank": rank, "cell": cell.digits, ROBUST_MEAN: accuracy}
        for edge, operation in enumerate(cell.operations, 1):
            yield whole | {"edge": edge, "operation": OPERATIONS[operation]}


def commonest(frame: pd.DataFrame) -> pd.DataFrame:
    """The most frequent operation of every edge, and the number of cells that have it there."""
    counts = frame.groupby(["edge", "operation"]).size().rename("count").reset_index()
    return counts.loc[counts.groupby("edge")["count"].idxmax()].set_index("edge")


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What the paper says of the best cells of either table.

    The caption of Figure 8 does not say which accuracy it means. The mean robust accuracy, by which
    the figure orders cells, is what is compared.
    """
    new, old = (frame[frame["training"] == training] for training in FIGURES)
    if new.empty or old.empty:
        return
    most, most_old = commonest(new)["operation"], commonest(old)["operation"]
    text = "Edges of six where a 3×3 convolution is commonest"
    yield Claim(text, "most", exact((most == "nor_conv_3x3").sum()), Within(low=4))
    skips = [exact(edge) for edge in most.index[most == "skip_connect"]]
    text = "The edge where a skip connection is commonest"
    yield Claim(text, 4, skips or exact(float("nan")), Within(4, 4))
    top, shared = new["rank"].max(), len({*new["cell"]} & {*old["cell"]})
    text = f"Of the {top} best cells of the older table, those among ours"
    yield Claim(text, "a notable difference", exact(shared), Within(high=top / 2 - 1))
    text = "Edges with another commonest operation there"
    yield Claim(text, "some", exact((most != most_old).sum()), Within(low=1))
    text = "Mean robust accuracy of the best cell"
    yield Claim(text, "about 0.6", exact(new[ROBUST_MEAN].max()), near(0.6, 0.05))
    text += " of the older table"
    yield Claim(text, "about 0.3", exact(old[ROBUST_MEAN].max()), near(0.3, 0.05))


def figure(frame: pd.DataFrame) -> Figure:
    """By table: a cell of the commonest operations, with their counts; below it the best cells."""
    parts = list(frame.groupby("training", sort=False))
    size = (1.1 * len(parts) * COLUMN, 1.05 * COLUMN)
    figure, axes = plt.subplots(2, len(parts), figsize=size, squeeze=False, height_ratios=(4, 1))
    for (above, below), (training, part) in zip(axes.T, parts, strict=True):
        most = commonest(part)
        digits = "".join(str(OPERATIONS.index(operation)) for operation in most["operation"])
        (graph,) = graphs_of(Cell.from_digits(digits))
        edges = zip(graph.edges, most["count"], strict=True)
        named = tuple(e._replace(label=f"{e.label or 'none'}: {count}") for e, count in edges)
        title = f"training: {training} ({FIGURES[str(training)]})"
        draw(above, graph._replace(title=title, edges=named))
        best = part.drop_duplicates("rank")
        cells = [f"{row.rank}: {row.cell}  {row.robust_mean:.4f}" for row in best.itertuples()]
        middle = -(-len(cells) // 2)
        for place, column in ((0.3, cells[:middle]), (0.7, cells[middle:])):
            below.text(place, 0.5, "\n".join(column), ha="center", va="center", fontsize=7)
        below.axis("off")
    text = "commonest operations, and in how many cells; these, with their mean robust accuracy"
    figure.supxlabel(text, fontsize="medium")
    return figure


TOP_OPERATIONS = Study(
    "Operations on the edges of the best cells (Figures 4 and 8)",
    measure,
    {"training": tuple(FIGURES)},
    {"dataset": DATASET, "top": 10},
    claims=claims,
    figure=figure,
    note="Cells are ordered by the mean of FGSM and PGD at 3/255 and 8/255, in both tables.",
    needs=(BENCHMARK, OLDER),
    ours=False,
)
