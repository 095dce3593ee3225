"""Which genotypes are the same network: those that differ in the names of a cell's nodes.

The two edges of a node may change places, since the node is their sum. Nodes 2 to 5 may change
names where each still reads earlier nodes only: that permutes the channels of the cell's output,
and with them the weights of what reads it. The two cells are independent of each other.
"""

import itertools
from fractions import Fraction

from cells.darts.genotype import CHOICES, NODES, TARGETS, Edge, Genotype

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


def count_cells(operations: int = len(CHOICES)) -> tuple[int, int]:
    """The number of cells with two sources at each node, and of those among them that differ.

    A cell of wiring W has e(W) / |Aut| forms, where e(W) counts the renamings that W allows and
    Aut are those that leave the cell as it is; so the distinct cells are the sum of |Aut| / e over
    all cells. By Burnside's argument that is, over the 180 wirings alone, the sum of n^c(σ) / e(W)
    over the automorphisms σ of W, with c(σ) cycles on its eight edges and n operations.

    Args:
        operations: n, the number of operations of an edge.

    Example:
        >>> count_cells()
        (1037664180, 382128166)
    """
    total, distinct = 0, Fraction(0)
    sources = [itertools.combinations(range(node), 2) for node in NODES]
    for pairs in itertools.product(*sources):
        wiring = {(s, node) for node, pair in zip(NODES, pairs, strict=True) for s in pair}
        moved = [{(s, t): (names[s], names[t]) for s, t in wiring} for names in RENAMINGS]
        allowed = [edges for edges in moved if all(s < t for s, t in edges.values())]
        fixed = [edges for edges in allowed if set(edges.values()) == wiring]
        total += operations ** len(TARGETS)
        distinct += Fraction(sum(operations ** _cycles(edges) for edges in fixed), len(allowed))
    return total, int(distinct)


def _cycles(permutation: dict) -> int:
    """The number of cycles of a permutation."""
    left, count = set(permutation), 0
    while left:
        element, count = next(iter(left)), count + 1
        while element in left:
            left.remove(element)
            element = permutation[element]
    return count
