"""NAS-Bench-201 as a `Space`: cells as digits, one program for all of them."""

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from attacks.lazy import Lazy, PyTree
from cells.cell_space import STATISTICS, WIDTH, CellSpace, bn_option, init_option
from cells.costs import ConvGroup
from cells.nasbench201 import paths
from cells.nasbench201.canonical import canonical, distinct_cells
from cells.nasbench201.cell import CONV_1X1, CONV_3X3, EDGES, Cell, all_cells, refuse_operations
from cells.normalization import NORMALIZATIONS, measure_each
from ntkscore.errors import InputError
from ntkscore.names import DIGITS, INDICES, names_of
from ntkscore.options import option

if TYPE_CHECKING:
    from cells.nasbench201 import checkpoints, parity
    from ntkscore.verify.reference import Reference
else:  # These import JAX.
    checkpoints = Lazy("cells.nasbench201.checkpoints")
    parity = Lazy("cells.nasbench201.parity")

# Activations of the first stage's size. Estimated from them, memory is 1.1 to 2.5 times what XLA
# allots on a CPU, in groups or not (`CompiledMemoryStats`, tests/run/test_devices.py).
NODES, OUTPUTS = max(target for _, target in EDGES), len(EDGES)
"""Arrays of a cell that the backward pass needs: its nodes; and, where each image is normalised by
itself, its edges' outputs."""
COUPLED = 24
"""The same where images are coupled: there every operation of every edge is differentiated."""
AT_WORK = 40
"""Further arrays that a pass holds."""


@dataclass(frozen=True, kw_only=True)
class NASBench201(CellSpace):
    """The 15,625 cells of NAS-Bench-201 in a network of three stages.

    Attributes:
        channels: width C of the first stage; the others have 2C and 4C.
        cells_per_stage: N, cells in each of the three stages.
        init, bn: as of every `StagedSpace`.

    Example:
        >>> space = NASBench201(channels=8, cells_per_stage=1)
        >>> space.identity(space.parse("323133"))["cell"]
        2581
        >>> space.costs(space.parse("323133"))["params"]
        69026
    """

    name: ClassVar[str] = "nasbench201"
    title: ClassVar[str] = "NAS-Bench-201"
    least: ClassVar[dict[str, int]] = {"channels": 1, "cells_per_stage": 1}
    fewer: ClassVar[tuple[str, ...]] = ("path_pools",)
    weights_module: ClassVar[str] = "cells.nasbench201.network"
    passes_module: ClassVar[str] = "cells.nasbench201.passes"
    # Chosen by the frozen studies `default-score` and `default-order` of experiments; of one seed
    # λ_min/trace is too noisy.
    order: ClassVar[str] = "params+layers+path_pools+field+clean.lambda_min_normalized"
    seeds: ClassVar[int] = 3

    channels: int = option(16, WIDTH)
    cells_per_stage: int = option(5, "Cells in each of the three stages.")
    init: str = init_option()
    bn: str = bn_option()

    def parse(self, text: object) -> Cell:
        """A cell from its index, its six digits or its genotype string."""
        return Cell.parse(text)

    def parse_all(self, architectures: object) -> list[Cell]:
        """Cells from one name or several; refuses what may be the operations of one."""
        refuse_operations(names_of(architectures))
        return super().parse_all(architectures)

    def written(self, names: Sequence[Any], heading: str = "") -> list[Any]:
        """The names in a column, where six digits may have lost their leading zeros.

        The heading `digits` gives them back. Refused is a number that may be an index or what a
        spreadsheet has left of six digits, if neither the heading nor the other numbers tell.

        Example:
            >>> space = NASBench201()
            >>> space.written(["12343", "323133"], "digits"), space.written(["12343"], "cell")
            (['012343', '323133'], ['12343'])
        """
        names, heading = super().written(names, heading), heading.strip().lower()
        is_number = [isinstance(name, str) and re.fullmatch(r"\d{1,6}", name) for name in names]
        if heading == DIGITS:
            pairs = zip(names, is_number, strict=True)
            return [name.zfill(len(EDGES)) if number else name for name, number in pairs]
        numbers = [name for name, number in zip(names, is_number, strict=True) if number]
        either = [name for name in numbers if re.fullmatch("[0-4]{1,5}", name)]
        whole = [name for name in numbers if len(name) == len(EDGES)]
        # A number with another digit is an index, and so are the others if none has six digits.
        surely = (heading in INDICES or len(either) < len(numbers)) and not whole
        # Where one leading zero is kept, all are.
        if not either or surely or any(name[0] == "0" for name in whole):
            return names
        raise InputError(
            "a column of indices or of six digits",
            f"{either[0]}{f' beside {whole[0]}' if whole else ''} under the heading {heading!r}, "
            "which may be an index or digits without their leading zeros",
            "head the column `digits` for six digits (the zeros are put back), or `cell` for "
            "indices alone",
        )

    def identity(self, architecture: Cell) -> dict[str, str | int]:
        """The benchmark's index and the genotype string."""
        return {"cell": architecture.index, "string": architecture.string}

    def names(self, architecture: Cell) -> dict[str, str | int]:
        """The benchmark's index and the six digits."""
        return {"cell": architecture.index, "digits": architecture.digits}

    def convolutions(self, architecture: Cell) -> Iterator[ConvGroup]:
        """All convolutions, and at last the linear layer."""
        return architecture.convolutions(self.channels, self.cells_per_stage)

    def structure(self, architecture: Cell) -> dict[str, float]:
        """Layers of the network, and counts on the cell's paths from input to output."""
        return super().structure(architecture) | paths.structure(architecture)

    def architectures(self, which: str) -> Sequence[Cell]:
        """Cells of a named set: `all`, or `distinct`, one for each function that they compute."""
        if which == "all":
            return tuple(all_cells())
        if which == "distinct":
            return distinct_cells()
        return super().architectures(which)

    def canonical(self, architecture: Cell) -> Cell:
        """The cell of lowest index that computes the same function."""
        return canonical(architecture)

    def encode(self, architecture: Cell) -> np.ndarray:
        """The six digits, int32."""
        return np.array(architecture.operations, np.int32)

    def needs(self, architecture: Cell) -> tuple[bool, ...]:
        """Masks of the edges with a 3×3 convolution, the most expensive, and with a 1×1 one."""
        return tuple(
            operation == convolution
            for convolution in (CONV_3X3, CONV_1X1)
            for operation in architecture.operations
        )

    def read_weights(self, path: Path, architecture: Cell) -> tuple[PyTree, PyTree]:
        """Trained weights and running statistics from a state dict (.npz, .pth)."""
        state = checkpoints.load_state_dict(path)
        variables = checkpoints.read_state_dict(state, architecture, self, running=True)
        return variables["params"], variables[STATISTICS]

    def write_weights(
        self, path: Path, architecture: Cell, params: PyTree, statistics: PyTree
    ) -> None:
        """Write weights and running statistics under the benchmark's names in PyTorch (.npz)."""
        variables = {"params": params, STATISTICS: statistics}
        state: PyTree = checkpoints.write_state_dict(variables, architecture, self, running=True)
        np.savez(path, **state)

    @classmethod
    def reference(cls, path: Path) -> "Callable[[DTypeLike], Reference]":
        """The reference values of a parity file."""
        return partial(parity.reference_of, cls, parity.load_parity(path))

    def memory(self, shape: Hashable, points: int, width: int) -> int:
        """Bytes for one network, estimated from the residuals of its passes."""
        # The stages hold 1, 1/2 and 1/4: twice the channels on a quarter of the pixels.
        stages = 1 + 1 / 2 + 1 / 4
        mode = NORMALIZATIONS[self.bn]
        residuals = COUPLED if mode.coupled else NODES + OUTPUTS * (mode.live is measure_each)
        activations = stages * (residuals * self.cells_per_stage + 1) + AT_WORK
        pixels = self.task.image_shape[0] * self.task.image_shape[1]
        gradients = points * (4 * self.channels) ** 2 * 9 * 3
        return int(width * (activations * points * pixels * self.channels + gradients))
