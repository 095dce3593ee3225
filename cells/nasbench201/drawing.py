"""A cell as a drawing."""

from cells.nasbench201.cell import EDGES, Cell
from ntkscore.explore.graphs import COLOURS, Edge, Graph

LABELS = ("", "skip", "conv 1×1", "conv 3×3", "pooling")
"""The operations in drawings."""


def graph_of(cell: Cell) -> Graph:
    """The graph of a cell.

    Example:
        >>> graph_of(Cell.parse("023133")).edges[1]
        Edge(source=0, target=2, label='conv 1×1', colour='#e69f00')
    """
    edges = [
        Edge(*ends, LABELS[operation], COLOURS[operation])
        for ends, operation in zip(EDGES, cell.operations, strict=True)
    ]
    return Graph("cell", ("0", "1", "2", "3"), tuple(edges))
