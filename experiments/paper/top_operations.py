"""Operations on the edges of the most robust cells, drawn as cells (Figures 4 and 8)."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from cells.nasbench201 import EDGES, OPERATIONS, Cell
from experiments.data import BENCHMARK, DATASET, OLDER
from experiments.frame import Claim, Study, Within, exact, near
from experiments.plotting import COLOURS, COLUMN
from ntkscore.analysis.comparison import ROBUST_MEAN, ROBUST_METRICS

FIGURES = {"adversarial": "Figure 4", "without attacks": "Figure 8"}
"""The paper's figures, by how the networks were trained."""
STYLES = {
    "none": {"color": "0.75", "linestyle": ":", "linewidth": 0.8},
    "skip": {"color": COLOURS[2], "linestyle": "--", "linewidth": 1.2},
    "conv 1×1": {"color": COLOURS[4], "linestyle": "-", "linewidth": 1.2},
    "conv 3×3": {"color": COLOURS[0], "linestyle": "-", "linewidth": 2.0},
    "avg pool 3×3": {"color": COLOURS[1], "linestyle": "-.", "linewidth": 1.2},
}
"""Labels and lines of the operations, in their order."""
BENDS = {(0, 2): (-0.45, 0.45), (1, 3): (0.45, -0.45), (0, 3): (-0.65, 0.975)}
"""Curvature of the edges that pass a node, and the height of their middles between two nodes."""


def measure(at: Any) -> Iterator[dict[str, object]]:
    """Operations of the most robust cells of a table, a row per cell and edge."""
    table = at.data.table if at.training == "adversarial" else at.data.older
    cells = at.data.table.own
    robust = sum(table.accuracies(at.dataset, metric, cells) for metric in ROBUST_METRICS)
    means = pd.Series(robust / len(ROBUST_METRICS), cells)
    for rank, (index, accuracy) in enumerate(means.nlargest(at.top).items(), 1):
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
    most = commonest(new)["operation"]
    convolutions, skips = (most == "nor_conv_3x3").sum(), most.index[most == "skip_connect"]
    text = "Edges of six where a 3×3 convolution is commonest"
    yield Claim(text, "most", exact(convolutions), Within(low=4))
    text = "The edge where a skip connection is commonest"
    yield Claim(text, 4, [exact(edge) for edge in skips] or exact(float("nan")), Within(4, 4))
    top, shared = new["rank"].max(), len({*new["cell"]} & {*old["cell"]})
    text = f"Of the {top} best cells of the older table, those among ours"
    yield Claim(text, "a notable difference", exact(shared), Within(high=top / 2 - 1))
    others = (most != commonest(old)["operation"]).sum()
    yield Claim(
        "Edges with another commonest operation there", "some", exact(others), Within(low=1)
    )
    best, older = (part[ROBUST_MEAN].max() for part in (new, old))
    text = "Mean robust accuracy of the best cell"
    yield Claim(text, "about 0.6", exact(best), near(0.6, 0.05))
    yield Claim(f"{text} of the older table", "about 0.3", exact(older), near(0.3, 0.05))


def draw_cell(axis: Axes, operations: list[str], notes: list[str] | None = None) -> None:
    """A cell's four nodes in a row and its six edges, perhaps with texts beside these."""
    size = 11 if notes else 4.5
    for i, (edge, operation) in enumerate(zip(EDGES, operations, strict=True)):
        bend, height = BENDS.get(edge, (0, 0))
        style: Any = [*STYLES.values()][OPERATIONS.index(operation)]
        ends = {"shrinkA": size / 2, "shrinkB": size / 2, "connectionstyle": f"arc3,rad={bend}"}
        line = FancyArrowPatch((edge[0], 0), (edge[1], 0), arrowstyle="-", **ends, **style)
        axis.add_patch(line)
        if notes:
            white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            place = sum(edge) / 2, height
            axis.text(*place, notes[i], ha="center", va="center", bbox=white, fontsize=7)
    for node in range(4):
        axis.plot(node, 0, "o", markersize=size, color="white", markeredgecolor="black")
        if notes:
            axis.text(node, 0, str(node), ha="center", va="center_baseline", fontsize=7)
    axis.set(xlim=(-0.25, 3.25), ylim=(-0.65, 1.2), aspect="equal")
    axis.axis("off")


def draw_table(figure: SubFigure, frame: pd.DataFrame, columns: int = 5) -> None:
    """The commonest operation of each edge above, the cells one by one below."""
    cells = list(frame.groupby("rank"))
    rows = -(-len(cells) // columns)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[2.6] + [1] * rows)
    above, most = figure.add_subplot(grid[0, :]), commonest(frame)
    notes = [f"{count}/{len(cells)}" for count in most["count"]]
    draw_cell(above, list(most["operation"]), notes)
    above.set_title("commonest operation on each edge, and in how many cells")
    for i, (rank, part) in enumerate(cells):
        axis = figure.add_subplot(grid[1 + i // columns, i % columns])
        draw_cell(axis, list(part["operation"]))
        first = part.iloc[0]
        axis.set_title(f"{rank}: {first['cell']}\n{first[ROBUST_MEAN]:.4f}", fontsize=6.5)


def draw(frame: pd.DataFrame) -> Figure:
    """The tables side by side."""
    figure = plt.figure(figsize=(2.2 * COLUMN, 1.25 * COLUMN))
    parts = list(frame.groupby("training", sort=False))
    sides: Any = figure.subfigures(1, len(parts), squeeze=False)
    for side, (training, part) in zip(sides[0], parts, strict=True):
        side.suptitle(f"training: {training} ({FIGURES[str(training)]})", fontsize="medium")
        draw_table(side, part)
    title = "each cell: rank, digits, mean robust accuracy (fraction)"
    lines = [Line2D([], [], **style) for style in STYLES.values()]
    place = {"loc": "outside lower center", "ncols": len(STYLES), "handlelength": 2.6}
    figure.legend(lines, STYLES, title=title, **place)
    return figure


TOP_OPERATIONS = Study(
    "Operations on the edges of the best cells (Figures 4 and 8)",
    measure,
    {"training": tuple(FIGURES)},
    {"dataset": DATASET, "top": 10},
    claims=claims,
    figure=draw,
    note="Cells are ordered by the mean of FGSM and PGD at 3/255 and 8/255, in both tables.",
    needs=(BENCHMARK, OLDER),
    ours=False,
)
