"""Counts on a cell's paths from input to output.

The published proxies correlate with these counts, which need no network: compare their agreement
with accuracies to that of the counts.
"""

from collections.abc import Iterator

from cells.nasbench201.cell import AVG_POOL, CONV_3X3, KERNEL_SIZES, NONE, Cell

PATHS = ((0, 2, 5), (0, 4), (1, 5), (3,))
"""The edges, by their place in `EDGES`, of each path from input to output."""
FIELD = {CONV_3X3: 2, AVG_POOL: 1}
"""Pixels by which an operation widens the receptive field, if it does. A mean counts half, since it
weighs all its pixels alike."""


def paths(cell: Cell) -> Iterator[tuple[int, ...]]:
    """The operations on each path from input to output that no `none` interrupts.

    Example:
        >>> sorted(paths(Cell.from_digits("213104")))
        [(1,), (1, 4), (2, 3, 4)]
    """
    operations = cell.operations
    passed = (tuple(operations[edge] for edge in path) for path in PATHS)
    return (path for path in passed if NONE not in path)


def structure(cell: Cell) -> dict[str, float]:
    """Counts on a cell's paths.

    Returns:
        `paths` from input to output; `path_convs` and `path_pools`, convolutions and poolings, each
        as often as paths pass through it; `shortest_path` and `longest_path`, the fewest and the
        most convolutions on a path; `field`, the widest receptive field of one path, in pixels less
        one, where a pooling counts half. Where no path reaches the output, all are 0.

    Source: Kadlecová et al. (2024), "Surprisingly strong performance prediction with neural graph
    features" (GRAF), for the kinds of counts.

    Example:
        >>> structure(Cell.from_digits("323133"))  # doctest: +NORMALIZE_WHITESPACE
        {'paths': 4, 'path_convs': 7, 'path_pools': 0, 'shortest_path': 0, 'longest_path': 3,
         'field': 6}
    """
    found = list(paths(cell))
    convolutions = [sum(operation in KERNEL_SIZES for operation in path) for path in found]
    return {
        "paths": len(found),
        "path_convs": sum(convolutions),
        "path_pools": sum(path.count(AVG_POOL) for path in found),
        "shortest_path": min(convolutions, default=0),
        "longest_path": max(convolutions, default=0),
        "field": max((sum(FIELD.get(op, 0) for op in path) for path in found), default=0),
    }
