"""Which genotypes are the same network: those that differ in the names of a cell's nodes.

The two edges of a node may change places, since the node is their sum. Nodes 2 to 5 may change
names where each still reads earlier nodes only: that permutes the channels of the cell's output,
and with them the weights of what reads it. The two cells are independent of each other.
"""

import itertools

from cells.darts.genotype import NODES, TARGETS, Edge, Genotype

RENAMINGS = tuple((0, 1, *order) for order in itertools.permutations(NODES))
"""The new name of each node, for every order of nodes 2 to 5."""


def canonical(genotype: Genotype) -> Genotype:
    """The genotype of smallest digits that is the same network.

    Example:
        >>> canonical(Genotype.parse("AdvRush")).digits
        '3041404140414150-2130404130333063'
    """

    def smallest(edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
        placed = list(zip(edges, TARGETS, strict=True))
        forms = (sorted((names[t], o, names[s]) for (o, s), t in placed) for names in RENAMINGS)
        allowed = (form for form in forms if all(source < target for target, _, source in form))
        return tuple((operation, source) for _, operation, source in min(allowed))

    return Genotype(*map(smallest, genotype.cells))
