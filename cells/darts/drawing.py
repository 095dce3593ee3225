"""Both cells of a genotype as drawings."""

from cells.darts.genotype import TARGETS, Genotype
from ntkscore.explore.graphs import COLOURS, Edge, Graph

LABELS = ("", "max", "avg", "skip", "sep 3×3", "sep 5×5", "dil 3×3", "dil 5×5")
"""The operations in drawings."""
KINDS = (0, 4, 4, 1, 3, 3, 2, 2)
"""Places of their colours: pooling, separable and dilated convolutions have one each."""
NODES = ("k−2", "k−1", "0", "1", "2", "3")


def graphs_of(genotype: Genotype) -> tuple[Graph, ...]:
    """Graphs of the normal cell and of the reduction cell.

    Example:
        >>> normal, reduction = graphs_of(Genotype.parse("AdvRush"))
        >>> normal.edges[0]
        Edge(source=1, target=2, label='sep 3×3', colour='#d55e00')
    """
    graphs = []
    for title, cell in zip(("normal cell", "reduction cell"), genotype.cells, strict=True):
        edges = [
            Edge(source, target, LABELS[operation], COLOURS[KINDS[operation]])
            for (operation, source), target in zip(cell, TARGETS, strict=True)
        ]
        graphs.append(Graph(title, NODES, tuple(edges)))
    return tuple(graphs)
