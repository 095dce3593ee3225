"""Cells as drawings."""

from collections.abc import Sequence

from cells.darts.genotype import TARGETS, Genotype
from cells.nasbench201.cell import EDGES, Cell
from ntkscore.explore.graphs import COLOURS, Edge, Graph

LABELS = {"": 0, "skip": 1, "conv 1×1": 2, "conv 3×3": 3, "pooling": 4}
"""The operations of NAS-Bench-201 in drawings, with the places of their colours."""
DARTS_LABELS = {
    **{"": 0, "max": 4, "avg": 4, "skip": 1},
    **{"sep 3×3": 3, "sep 5×5": 3, "dil 3×3": 2, "dil 5×5": 2},
}
"""Those of DARTS: pooling, separable and dilated convolutions have a colour each."""


def graphs_of(architecture: Cell | Genotype) -> tuple[Graph, ...]:
    """The graph of a cell of NAS-Bench-201, or those of a genotype's normal and reduction cell.

    Example:
        >>> (cell,) = graphs_of(Cell.parse("023133"))
        >>> cell.edges[1]
        Edge(source=0, target=2, label='conv 1×1', colour='#e69f00')
        >>> normal, reduction = graphs_of(Genotype.parse("AdvRush"))
        >>> normal.edges[0]
        Edge(source=1, target=2, label='sep 3×3', colour='#d55e00')
    """
    if isinstance(architecture, Cell):
        edges = zip(architecture.operations, EDGES, strict=True)
        return (_graph("cell", "0123", LABELS, [(o, *ends) for o, ends in edges]),)
    nodes, graphs = ("k−2", "k−1", "0", "1", "2", "3"), []
    for title, cell in zip(("normal cell", "reduction cell"), architecture.cells, strict=True):
        edges = zip(cell, TARGETS, strict=True)
        graphs.append(_graph(title, nodes, DARTS_LABELS, [(o, s, t) for (o, s), t in edges]))
    return tuple(graphs)


def _graph(
    title: str, nodes: Sequence[str], labels: dict[str, int], edges: Sequence[tuple[int, int, int]]
) -> Graph:
    """The graph of edges (operation, source, target)."""
    named = [(label, COLOURS[colour]) for label, colour in labels.items()]
    return Graph(title, tuple(nodes), tuple(Edge(s, t, *named[o]) for o, s, t in edges))
