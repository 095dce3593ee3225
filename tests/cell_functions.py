"""Which cells of NAS-Bench-201 compute the same function: what `cells.nasbench201.canonical` loads.

An output is a sum of terms up to the naming of the convolutions' weights, as is said there.
"""

import itertools
from collections import Counter

from cells.nasbench201.cell import AVG_POOL, EDGES, KERNEL_SIZES, SIZE, SKIP, Cell

Term = tuple[int, int]
"""A term of a sum, (number of poolings, source): source 0 is the cell's input, and e > 0 the
convolution on edge e−1."""

CONSTANT = 0
"""Kind of a convolution of a node without terms; the others have their kernel size as kind."""


Convolutions = dict[int, tuple[int, Counter[Term]]]
"""By source: the convolution's kind and the terms that it reads."""


def _expand(operations: tuple[int, ...]) -> tuple[Counter[Term], Convolutions]:
    """The output node as a sum of terms, and the kind and input terms of each convolution."""
    nodes: list[Counter[Term]] = [Counter({(0, 0): 1}), Counter(), Counter(), Counter()]
    convolutions: Convolutions = {}
    for edge, (operation, (source, target)) in enumerate(zip(operations, EDGES, strict=True)):
        terms = nodes[source]
        if operation == SKIP:
            nodes[target].update(terms)
        elif operation == AVG_POOL:
            for (pooled, name), count in terms.items():
                constant = name in convolutions and convolutions[name][0] == CONSTANT
                nodes[target][pooled + (not constant), name] += count
        elif operation in KERNEL_SIZES:
            name = edge + 1
            kind = KERNEL_SIZES[operation] if terms else CONSTANT
            convolutions[name] = (kind, terms.copy())
            nodes[target][0, name] += 1
    return nodes[3], convolutions


def _shape(name: int, convolutions: Convolutions) -> tuple:
    """A convolution's kind and input terms without names; () for the cell's input."""
    if name == 0:
        return ()
    kind, terms = convolutions[name]
    inputs = (((pooled, _shape(n, convolutions)), count) for (pooled, n), count in terms.items())
    return (kind, *sorted(inputs))


def _rename(terms: Counter[Term], rank: dict[int, int]) -> tuple:
    """A sum in a fixed order, its sources named by rank."""
    return tuple(sorted(((pooled, rank[n]), count) for (pooled, n), count in terms.items()))


def _describe(
    output: Counter[Term], convolutions: Convolutions, order: tuple[int, ...]
) -> tuple[tuple, ...]:
    """The output and every convolution, each named by its place in an order."""
    rank = {name: place for place, name in enumerate((0, *order))}
    parts = ((convolutions[n][0], _rename(convolutions[n][1], rank)) for n in order)
    return (_rename(output, rank), *parts)


def function_key(cell: Cell) -> tuple:
    """A value that is equal for two cells exactly when they compute the same function.

    The smallest description of the output over all namings of the convolutions. Convolutions of
    different shape (kind and inputs, names left out) cannot change places, so only those of equal
    shape are permuted.
    """
    output, convolutions = _expand(cell.operations)
    live: set[int] = set()
    pending = [name for _, name in output]
    while pending:
        name = pending.pop()
        if name and name not in live:
            live.add(name)
            pending += [n for _, n in convolutions[name][1]]

    shapes = {name: _shape(name, convolutions) for name in live}
    ordered = sorted(live, key=lambda name: (shapes[name], name))
    groups = [tuple(group) for _, group in itertools.groupby(ordered, key=shapes.__getitem__)]
    return min(
        _describe(output, convolutions, tuple(itertools.chain.from_iterable(orders)))
        for orders in itertools.product(*map(itertools.permutations, groups))
    )


def compare_all() -> tuple[int, ...]:
    """For every index, the lowest index whose cell computes the same function."""
    first: dict[tuple, int] = {}
    return tuple(first.setdefault(function_key(Cell(index)), index) for index in range(SIZE))
