"""Graphs of cells: which edges a cell has, how the page and pictures name them, how they look."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cells.darts.genotype import TARGETS, Genotype
from cells.nasbench201.cell import EDGES, Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OPERATIONS = ("none", "skip", "conv 1×1", "conv 3×3", "pooling")
"""NAS-Bench-201's operations in drawings."""
NODES = ("0", "1", "2", "3")
GENOTYPE_OPERATIONS = ("none", "max", "avg", "skip", "sep 3×3", "sep 5×5", "dil 3×3", "dil 5×5")
"""DARTS' operations in drawings."""
GENOTYPE_NODES = ("k−2", "k−1", "0", "1", "2", "3")
COLOURS = ("#9aa0a6", "#0072b2", "#e69f00", "#d55e00", "#009e73")
"""Colours of NAS-Bench-201's operations, from Okabe and Ito's palette."""
KINDS = (0, 4, 4, 1, 3, 3, 2, 2)
"""For each of DARTS' operations the similar one of NAS-Bench-201, whose colour it has."""
STEP = 14
"""Height by which an arc exceeds one that spans a node less: a label fits between them."""


class Edge(NamedTuple):
    """An operation between two nodes; `label` is "" where it is `none`."""

    source: int
    target: int
    label: str
    colour: str


class Graph(NamedTuple):
    """A cell: its name, the names of its nodes and its edges."""

    title: str
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]


def graphs_of(architecture: Any) -> tuple[Graph, ...]:
    """Graphs of an architecture's cells; none where its space has no cells.

    Args:
        architecture: of any space.

    Example:
        >>> normal, reduction = graphs_of(Genotype.parse("AdvRush"))
        >>> normal.edges[0]
        Edge(source=1, target=2, label='sep 3×3', colour='#d55e00')
    """
    if isinstance(architecture, Cell):
        edges = _edges(EDGES, architecture.operations, OPERATIONS, range(len(COLOURS)))
        return (Graph("cell", NODES, edges),)
    if isinstance(architecture, Genotype):
        graphs = []
        for title, cell in zip(("normal cell", "reduction cell"), architecture.cells, strict=True):
            indices, sources = zip(*cell, strict=True)
            edges = _edges(zip(sources, TARGETS, strict=True), indices, GENOTYPE_OPERATIONS, KINDS)
            graphs.append(Graph(title, GENOTYPE_NODES, edges))
        return tuple(graphs)
    return ()


def _edges(
    ends: Iterable[tuple[int, int]],
    indices: Iterable[int],
    names: Sequence[str],
    kinds: Sequence[int],
) -> tuple[Edge, ...]:
    """Edges, from their nodes and the indices of their operations; index 0 is `none`."""
    return tuple(
        Edge(source, target, names[index] if index else "", COLOURS[kinds[index]])
        for (source, target), index in zip(ends, indices, strict=True)
    )


def draw(axis: "Axes", graph: Graph) -> None:
    """Draw a graph as arcs over a row of its nodes, in turn above and below it.

    Labels do not overlap: those of arcs on one side differ in height, or by a node in place.

    Args:
        axis: at least 200 points wide and 140 high.
        graph: of a cell; the edges into one node lie on both sides of the row.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    last = len(graph.nodes) - 1
    for place, (source, target, label, colour) in enumerate(graph.edges):
        top = (-1) ** place * STEP * (1.4 + target - source)
        # A Bézier curve reaches three quarters of its control points' height.
        points = [(source, 0), (source, top / 0.75), (target, top / 0.75), (target, 0)]
        line = {"lw": 1.8} if label else {"lw": 0.7, "ls": (0, (2, 4))}
        path = Path(points, [Path.MOVETO, *[Path.CURVE4] * 3])
        axis.add_patch(PathPatch(path, fill=False, edgecolor=colour, **line))
        white = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        middle = (source + target) / 2
        axis.text(middle, top, label, size=7, ha="center", va="center", bbox=white)
    axis.plot(range(last + 1), [0] * (last + 1), "o", ms=17, mfc="white", mec="black", zorder=3)
    for node, name in enumerate(graph.nodes):
        axis.text(node, 0, name, size=7, ha="center", va="center", zorder=4)
    bound = STEP * (1.9 + last)
    axis.set(xlim=(-0.4, last + 0.4), ylim=(-bound, bound))
    axis.set_box_aspect(0.6)
    axis.set_title(graph.title, fontsize=8)
    axis.axis("off")
