"""Convolutions and counts of a genotype's network, which need no network.

The network is the DARTS code's for CIFAR: a stem of 3C channels, cells of which those at one and
two thirds halve the image and double the channels, and a linear layer; normalisations have scale
and shift, poolings have none, and there is no auxiliary head.
"""

from collections.abc import Iterator

from cells.costs import IMAGE_CHANNELS, ConvGroup
from cells.darts.genotype import (
    AVG_POOL,
    DIL_3,
    DIL_5,
    MAX_POOL,
    NODES,
    NONE,
    SEP_3,
    SEP_5,
    SKIP,
    TARGETS,
    Genotype,
)

STEM = 3
"""Channels of the stem, by the channels of the first cells' nodes."""
SEPARABLE, DILATED = {SEP_3: 3, SEP_5: 5}, {DIL_3: 3, DIL_5: 5}
"""Sides of depthwise kernels. A separable operation applies its two convolutions twice, a dilated
one once."""
SIZES = SEPARABLE | DILATED
FIELD = {SKIP: 0, AVG_POOL: 1, MAX_POOL: 2, SEP_3: 4, SEP_5: 8, DIL_3: 4, DIL_5: 8}
"""Pixels by which an operation widens the receptive field. A mean counts half, since it weighs all
its pixels alike."""


def _operation(operation: int, strided: bool, halvings: int, channels: int) -> Iterator[ConvGroup]:
    """The convolutions of an edge, between nodes of so many channels."""
    if operation == SKIP and strided:
        # Two 1×1 convolutions with half of the channels each, one of them a pixel further.
        yield ConvGroup(halvings, channels**2, channels, 2)
    if size := SIZES.get(operation):
        group = ConvGroup(halvings, channels * size**2 + channels**2, channels, 2)
        yield from (group,) * (2 if operation in SEPARABLE else 1)


def convolutions(genotype: Genotype, channels: int, layers: int) -> Iterator[ConvGroup]:
    """All convolutions of a network of the space's sizes, and at last its linear layer."""
    before = last = STEM * channels
    halvings, downsampled = 0, False
    yield ConvGroup(0, 9 * IMAGE_CHANNELS * last, last)
    for cell in range(layers):
        reduces = cell in (layers // 3, 2 * layers // 3)
        # The older input has the size of the other, halved by two convolutions where they differ.
        width = channels << (halvings + reduces)
        yield ConvGroup(halvings, before * width, width, 1 + downsampled)
        yield ConvGroup(halvings, last * width, width)
        halvings += reduces
        for operation, source in genotype.reduce if reduces else genotype.normal:
            yield from _operation(operation, reduces and source < NODES.start, halvings, width)
        before, last, downsampled = last, len(NODES) * width, reduces
    yield ConvGroup(halvings, last)


def structure(genotype: Genotype) -> dict[str, float]:
    """Counts on a genotype's operations and paths.

    Returns:
        `n_sep`, `n_dil`, `n_pool` and `n_skip`: operations of each kind in the two cells. Of the
        normal cell: `depth`, the most edges on a path from an input to a node, and `field`, the
        widest receptive field of such a path, in pixels less one, where an average counts half.

    Example:
        >>> structure(Genotype.parse("AdvRush"))
        {'n_sep': 9, 'n_dil': 1, 'n_pool': 1, 'n_skip': 5, 'depth': 1, 'field': 8}
    """
    operations = [operation for edges in genotype.cells for operation, _ in edges]
    depths, fields = [0] * NODES.stop, [0] * NODES.stop
    for (operation, source), target in zip(genotype.normal, TARGETS, strict=True):
        if operation != NONE:
            depths[target] = max(depths[target], depths[source] + 1)
            fields[target] = max(fields[target], fields[source] + FIELD[operation])
    return {
        "n_sep": sum(operation in SEPARABLE for operation in operations),
        "n_dil": sum(operation in DILATED for operation in operations),
        "n_pool": sum(operation in (MAX_POOL, AVG_POOL) for operation in operations),
        "n_skip": operations.count(SKIP),
        "depth": max(depths),
        "field": max(fields),
    }
