"""DARTS as a `Space`: genotypes as data, one program for all of a size."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cells.cell_space import WIDTH, CellSpace, bn_option, init_option
from cells.costs import ConvGroup
from cells.darts import counts
from cells.darts.canonical import canonical
from cells.darts.genotype import DIL_5, SEP_3, SEP_5, TARGETS, Genotype, Genotypes
from cells.darts.published import PUBLISHED
from cells.normalization import NORMALIZATIONS, measure_each
from ntkscore.options import option

# Estimated from these, memory is 1.0 to 1.5 times what XLA allots on a CPU (`CompiledMemoryStats`,
# tests/run/test_devices.py).
EDGES, CELL = len(TARGETS), 16
"""Arrays of the first stage's size that a normal cell holds for the backward pass: of its nodes and
the rounds of its edges; and, where each image is normalised by itself, its edges' outputs."""
AT_WORK = 100
"""Further such arrays that a pass holds, those of the reduction cells among them."""


@dataclass(frozen=True, kw_only=True)
class Darts(CellSpace):
    """The DARTS space: a normal and a reduction cell, in a network of any number of cells.

    Attributes:
        channels: width C of a node in the first cells; reductions double it.
        layers: L, number of cells; those at ⌊L/3⌋ and ⌊2L/3⌋ are reduction cells.
        init, bn: as of every `StagedSpace`, but not `ntk`.

    Example:
        >>> space = Darts(channels=36, layers=20)
        >>> space.costs(space.parse("DARTS"))["params"]
        3349342
    """

    name: ClassVar[str] = "darts"
    title: ClassVar[str] = "DARTS"
    # With fewer layers, a reduction cell would follow the stem or another one.
    least: ClassVar[dict[str, int]] = {"channels": 1, "layers": 5}
    fewer: ClassVar[tuple[str, ...]] = ("n_pool",)
    sets: ClassVar[tuple[str, ...]] = ("distinct", "all", "published")
    weights_module: ClassVar[str] = "cells.darts.network"
    passes_module: ClassVar[str] = "cells.darts.passes"

    channels: int = option(16, WIDTH)
    layers: int = option(8, "Number of cells, those at one and two thirds reductions.")
    # Fan-ins are those of the kernels' shapes, and preprocessing behind the stem has fewer inputs.
    init: str = init_option("ntk")
    bn: str = bn_option()

    def parse(self, text: object) -> Genotype:
        """A genotype from a paper's string, its digits or a published name."""
        return Genotype.parse(text)

    def identity(self, architecture: Genotype) -> dict[str, str | int]:
        """The digits, the published name, and the string that papers print."""
        return self.names(architecture) | {"string": architecture.string}

    def names(self, architecture: Genotype) -> dict[str, str | int]:
        """The digits and the published name."""
        return {"genotype": architecture.digits, "published": architecture.name}

    def convolutions(self, architecture: Genotype) -> Iterator[ConvGroup]:
        """All convolutions, and at last the linear layer."""
        return counts.convolutions(architecture, self.channels, self.layers)

    def structure(self, architecture: Genotype) -> dict[str, float]:
        """Layers of the network, and counts on the genotype's operations and paths."""
        return super().structure(architecture) | counts.structure(architecture)

    def architectures(self, which: str) -> Sequence[Genotype]:
        """Genotypes of a named set: `published`, those with a name; `all`; or `distinct`.

        `all` and `distinct` are computed as they are asked for. `distinct` lists the canonical form
        of every genotype, so a network stands in it once for each of its genotypes.
        """
        if which in ("all", "distinct"):
            return Genotypes(canonical) if which == "distinct" else Genotypes()
        if which == "published":
            return tuple(dict.fromkeys(map(Genotype.parse, PUBLISHED.values())))
        return super().architectures(which)

    def canonical(self, architecture: Genotype) -> Genotype:
        """The genotype of smallest digits that is the same network."""
        return canonical(architecture)

    def encode(self, architecture: Genotype) -> dict[str, np.ndarray]:
        """Operation and source of each edge of both cells, int32."""
        cells = zip(("normal", "reduce"), architecture.cells, strict=True)
        return {name: np.array(edges, np.int32) for name, edges in cells}

    def needs(self, architecture: Genotype) -> tuple[bool, ...]:
        """Masks of the normal cell's edges with each convolution, the most expensive first."""
        return tuple(
            operation == convolution
            for convolution in (SEP_5, SEP_3, DIL_5)
            for operation, _ in architecture.normal
        )

    def memory(self, shape: Hashable, points: int, width: int) -> int | None:
        """Bytes for one network, estimated from the residuals of its passes; None by batches."""
        mode = NORMALIZATIONS[self.bn]
        if mode.coupled:
            return None
        residuals = CELL + EDGES * (mode.live is measure_each)
        # The stages hold 1, 1/2 and 1/4: twice the channels on a quarter of the pixels.
        cells = sum(count / 2**stage for stage, count in enumerate(self.normal_cells))
        pixels = self.task.image_shape[0] * self.task.image_shape[1]
        activations = (residuals * cells + AT_WORK) * points * pixels * self.channels
        return int(width * (activations + points * 3 * (8 * self.channels) ** 2))

    @property
    def normal_cells(self) -> tuple[int, int, int]:
        """Normal cells of each stage."""
        first, second = self.layers // 3, 2 * self.layers // 3
        return first, second - first - 1, self.layers - second - 1
