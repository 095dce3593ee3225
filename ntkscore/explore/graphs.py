"""Graphs of architectures, as the page and pictures draw them (`Space.graphs`)."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#9aa0a6", "#0072b2", "#e69f00", "#d55e00", "#009e73")
"""Colours of operations, from Okabe and Ito's palette; the first is for edges without one."""
STEP = 14
"""Height by which an arc exceeds one that spans a node less: a label fits between them."""


class Edge(NamedTuple):
    """An operation between two nodes; `label` is "" where it is `none`."""

    source: int
    target: int
    label: str
    colour: str


class Graph(NamedTuple):
    """A cell or another part: its name, the names of its nodes and its edges."""

    title: str
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]


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
