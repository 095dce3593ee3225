"""Operations on the edges of the most robust cells, drawn as cells (Figures 4 and 8)."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from cells import EDGES, OPERATIONS, Cell
from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS
from experiments.study import DATASET, MEANS, Finding, Outcome, Study, verdict
from ntkscore.analysis.comparison import ROBUST_MEAN, table_scores
from ntkscore.data.tables import Table

TOP = 10
TRAINED = {"adversarially trained": "Figure 4", "trained without attacks": "Figure 8"}
"""Training of the two tables' networks, and the paper's figures of their best cells."""
OLDER_METRICS = ("fgsm", "pgd")
"""The older table's robust accuracies, whose radius its page does not say."""
BEST, BEST_OLDER = 0.6, 0.3
"""Accuracies of the two tables' best cells, by the caption of Figure 8."""
ABOUT = 0.05
"""Largest deviation, as a fraction, that counts as "about"."""

LABELS = ("none", "skip", "conv 1×1", "conv 3×3", "avg pool 3×3")
LINES = (
    {"color": "0.75", "linestyle": ":", "linewidth": 0.8},
    {"color": COLOURS[2], "linestyle": "--", "linewidth": 1.2},
    {"color": COLOURS[4], "linestyle": "-", "linewidth": 1.2},
    {"color": COLOURS[0], "linestyle": "-", "linewidth": 2.0},
    {"color": COLOURS[1], "linestyle": "-.", "linewidth": 1.2},
)
BENDS = {(0, 2): -0.45, (1, 3): 0.45, (0, 3): -0.65}
"""Curvature of the edges that pass a node, which stand in a row; the others are straight."""
PEAKS = {(0, 2): 0.45, (1, 3): -0.45, (0, 3): 0.975}
"""Height of the middle of a bent edge, in distances between nodes."""


def top_operations(accuracies: pd.DataFrame, top: int = TOP) -> pd.DataFrame:
    """Operations of the most robust cells, a row per cell and edge."""
    rows = []
    for rank, (index, accuracy) in enumerate(accuracies[ROBUST_MEAN].nlargest(top).items(), 1):
        cell = Cell(int(str(index)))
        whole = {"rank": rank, "cell": cell.index, "digits": cell.digits, ROBUST_MEAN: accuracy}
        edges = zip(EDGES, cell.operations, strict=True)
        for edge, ((source, target), operation) in enumerate(edges, 1):
            nodes, name = f"{source}→{target}", OPERATIONS[operation]
            rows.append(whole | {"edge": edge, "nodes": nodes, "operation": name})
    return pd.DataFrame(rows)


def commonest(frame: pd.DataFrame) -> pd.DataFrame:
    """The most frequent operation of every edge, and the number of cells that have it there."""
    counts = frame.groupby(["edge", "operation"]).size().rename("count").reset_index()
    most = counts.loc[counts.groupby("edge")["count"].idxmax()]
    return most.reset_index(drop=True)


def draw_cell(axis: Axes, operations: list[str], notes: list[str] | None = None) -> None:
    """A cell's four nodes in a row and its six edges, perhaps with texts beside these."""
    size = 11 if notes else 4.5
    for i, (edge, operation) in enumerate(zip(EDGES, operations, strict=True)):
        style = LINES[OPERATIONS.index(operation)]
        arrow = FancyArrowPatch(
            (edge[0], 0),
            (edge[1], 0),
            connectionstyle=f"arc3,rad={BENDS.get(edge, 0)}",
            arrowstyle="-",
            shrinkA=size / 2,
            shrinkB=size / 2,
            **style,
        )
        axis.add_patch(arrow)
        if notes:
            place = (sum(edge) / 2, PEAKS.get(edge, 0))
            background = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            axis.text(*place, notes[i], ha="center", va="center", bbox=background, fontsize=7)
    for node in range(4):
        axis.plot(node, 0, "o", markersize=size, color="white", markeredgecolor="black")
        if notes:
            axis.text(node, 0, str(node), ha="center", va="center_baseline", fontsize=7)
    axis.set(xlim=(-0.25, 3.25), ylim=(-0.65, 1.2), aspect="equal")
    axis.axis("off")


def older_means(table: Table) -> pd.DataFrame:
    """Mean robust accuracy of the older table's cells, as a frame like `table_scores`'s."""
    columns = [table.accuracies(DATASET, metric) for metric in OLDER_METRICS]
    return pd.DataFrame({ROBUST_MEAN: sum(columns) / len(columns)}, index=pd.Index(table.own))


def draw(frame: pd.DataFrame) -> Figure:
    """Both tables side by side: each edge's commonest operation, below it the cells one by one."""
    figure = plt.figure(figsize=(2.2 * COLUMN, 1.25 * COLUMN))
    sides: Any = figure.subfigures(1, len(TRAINED))
    for side, (trained, of) in zip(sides, TRAINED.items(), strict=True):
        side.suptitle(f"{trained} ({of})", fontsize="medium")
        draw_table(side, frame[frame["trained"] == trained])
    handles = [Line2D([], [], **style) for style in LINES]
    figure.legend(
        handles,
        LABELS,
        title="each cell: rank, digits, mean robust accuracy (fraction)",
        loc="outside lower center",
        ncols=len(LABELS),
        handlelength=2.6,
    )
    return figure


def draw_table(figure: SubFigure, frame: pd.DataFrame) -> None:
    """The commonest operation of each edge above, the cells one by one below."""
    cells = list(frame.groupby("rank"))
    columns = 5
    rows = -(-len(cells) // columns)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[2.6] + [1] * rows)
    above = figure.add_subplot(grid[0, :])
    most = commonest(frame)
    notes = [f"{count}/{len(cells)}" for count in most["count"]]
    draw_cell(above, list(most["operation"]), notes)
    above.set_title("commonest operation on each edge, and in how many cells")
    for i, (rank, part) in enumerate(cells):
        axis = figure.add_subplot(grid[1 + i // columns, i % columns])
        draw_cell(axis, list(part["operation"]))
        accuracy = part[ROBUST_MEAN].iloc[0]
        axis.set_title(f"{rank}: {part['digits'].iloc[0]}\n{accuracy:.4f}", fontsize=6.5)


def finding(frame: pd.DataFrame) -> Finding:
    """The finding that most edges prefer 3×3 convolutions, and edge 4 a skip connection."""
    most = commonest(frame)
    skips = list(most.loc[most["operation"] == "skip_connect", "edge"])
    convolutions = int((most["operation"] == "nor_conv_3x3").sum())
    agrees = skips == [4] and convolutions > len(most) / 2
    return Finding(
        "The commonest operation of the ten most robust cells",
        "3×3 convolution on most edges, skip connection on edge 4",
        f"3×3 convolution on {convolutions} of {len(most)} edges, skip connection on edge "
        + ", ".join(map(str, skips)),
        verdict(agrees),
        "commonest operation on each edge",
        "Figure 4",
    )


def difference(newer: pd.DataFrame, older: pd.DataFrame) -> Finding:
    """The finding that the two tables' best cells are others."""
    shared = len({*newer["cell"]} & {*older["cell"]})
    edges = commonest(newer)["operation"] != commonest(older)["operation"]
    return Finding(
        "The ten most robust cells of the older table, trained without attacks",
        "a notable difference in cells and operations (Figure 8)",
        f"{shared} of {TOP} cells in common; another commonest operation on {edges.sum()} of "
        f"{len(edges)} edges",
        verdict(shared < TOP / 2 and edges.any()),
        "fewer than half in common",
        "Figure 8",
    )


def best_accuracies(newer: pd.DataFrame, older: pd.DataFrame) -> Iterator[Finding]:
    """The finding on the best cell of either table, the share that the caption of Figure 8 gives.

    The caption does not say which accuracy it means. Figure 8 orders cells by their mean robust
    accuracy, so that is what is compared.
    """
    best, best_older = (frame[ROBUST_MEAN].max() for frame in (newer, older))
    yield Finding(
        "Mean robust accuracy of the best cell of NAS-RobBench-201",
        f"about {100 * BEST:.0f} % (Figure 8)",
        f"{best:.3f}",
        verdict(abs(best - BEST) <= ABOUT),
        f"within {ABOUT}; the mean of FGSM and PGD, 3/255 and 8/255",
        "Figure 8",
    )
    yield Finding(
        "Mean robust accuracy of the best cell of the older table",
        f"about {100 * BEST_OLDER:.0f} %, half of the other's (Figure 8)",
        f"{best_older:.3f}, {best_older / best:.2f} of the other's",
        "not decidable",
        "the mean of its FGSM and PGD, whose radius is not known; a larger one lowers both",
        "Figure 8",
    )


def run(study: Study) -> Outcome:
    """The ten most robust cells on CIFAR-10, of both tables."""
    tables = table_scores(study.table, DATASET), older_means(study.older)
    frame, older = (
        top_operations(means).assign(trained=name)
        for name, means in zip(TRAINED, tables, strict=True)
    )
    most = ", ".join(
        f"edge {row.edge} {row.operation} ({row.count} of {TOP})"
        for row in commonest(frame).itertuples(index=False)
    )
    remarks = (
        f"Commonest operations by mean robust accuracy on {DATASET_LABELS[DATASET]}: {most}.",
        "The paper names 3×3 convolutions as best on most edges and the skip connection on edge 4.",
        MEANS,
    )
    configuration = {
        "table": study.table.name,
        "older": study.older.name,
        "dataset": DATASET,
        "top": TOP,
        "by": ROBUST_MEAN,
    }
    both = pd.concat([frame, older], ignore_index=True)
    findings = finding(frame), difference(frame, older), *best_accuracies(frame, older)
    return Outcome(both, draw(both), configuration, remarks, findings)
