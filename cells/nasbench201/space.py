"""NAS-Bench-201 as a `Space`: cells as digits, one program for all of them."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cells.initializers import INITIALIZERS
from cells.nasbench201 import paths
from cells.nasbench201.canonical import canonical, distinct_cells
from cells.nasbench201.cell import (
    CONV_1X1,
    CONV_3X3,
    EDGES,
    IMAGE_CHANNELS,
    Cell,
    all_cells,
)
from cells.normalization import NORMALIZATIONS, measure_each
from cells.space import Space, check_choices, check_least, option
from ntkscore import program_cache
from ntkscore.errors import InputError
from ntkscore.lazy import Array, Lazy, jax, jnp
from ntkscore.model import Model, Trainable

if TYPE_CHECKING:
    from cells.nasbench201 import forward, network, passes, training
else:  # These import JAX and flax.
    forward = Lazy("cells.nasbench201.forward")
    network = Lazy("cells.nasbench201.network")
    passes = Lazy("cells.nasbench201.passes")
    training = Lazy("cells.nasbench201.training")

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
class NASBench201(Space):
    """The 15,625 cells of NAS-Bench-201 in a network of three stages.

    Attributes:
        channels: width C of the first stage; the others have 2C and 4C.
        cells_per_stage: N, cells in each of the three stages.
        init: how weights are drawn, a name in `cells.initializers.INITIALIZERS`.
        bn: where the normalisation's statistics come from, a name in
            `cells.normalization.NORMALIZATIONS`.

    Raises:
        InputError: if a value is not one that its description allows.

    Example:
        >>> space = NASBench201(channels=8, cells_per_stage=1)
        >>> space.identity(space.parse("323133"))["cell"]
        2581
        >>> space.costs(space.parse("323133"))["params"]
        69026
    """

    name: ClassVar[str] = "nasbench201"
    fewer: ClassVar[tuple[str, ...]] = paths.FEWER

    channels: int = option(16, "Width of the first stage; the others have twice and four times it.")
    cells_per_stage: int = option(5, "Cells in each of the three stages.")
    init: str = option("torch", "How weights are drawn.", choices=lambda: tuple(INITIALIZERS))
    bn: str = option(
        "calibrated",
        "Source of the normalisation's statistics",
        choices=lambda: tuple(NORMALIZATIONS),
    )

    def __post_init__(self) -> None:
        check_choices(self)
        check_least(self, channels=1, cells_per_stage=1)
        *sides, colours = self.task.image_shape
        if len(sides) != 2 or colours != IMAGE_CHANNELS:
            raise InputError(
                f"expected images (height, width, {IMAGE_CHANNELS}), got "
                f"{self.task.image_shape}; put the {IMAGE_CHANNELS} colours last"
            )
        if any(side % 4 for side in sides):
            raise InputError(
                "expected images with sides that 4 divides, since NAS-Bench-201 halves them "
                f"twice, got {sides[0]}×{sides[1]}; crop or pad the sides"
            )

    def parse(self, text: Any) -> Cell:
        """A cell from its index, its six digits or its genotype string."""
        return Cell.parse(text)

    def identity(self, architecture: Cell) -> dict[str, str | int]:
        """The benchmark's index and the genotype string."""
        return {"cell": architecture.index, "string": architecture.string}

    def names(self, architecture: Cell) -> dict[str, str | int]:
        """The benchmark's index and the six digits."""
        return {"cell": architecture.index, "digits": architecture.digits}

    def costs(self, architecture: Cell) -> dict[str, float]:
        """Trainable parameters, and multiply-adds for one image."""
        shape = (self.channels, self.cells_per_stage, self.task.num_classes)
        height, width, _ = self.task.image_shape
        return {
            "params": architecture.params(*shape),
            "flops": architecture.flops(*shape, (height, width)),
        }

    def structure(self, architecture: Cell) -> dict[str, float]:
        """Layers of the network, and counts on the cell's paths from input to output."""
        return paths.structure(architecture, self.cells_per_stage)

    def trained(self) -> "NASBench201":
        """The benchmark's networks: C = 16, five cells per stage."""
        return NASBench201(task=self.task)

    def architectures(self, which: str) -> Sequence[Cell]:
        """Cells of a named set: `all`, or `distinct`, one for each function that they compute."""
        if which == "all":
            return tuple(all_cells())
        if which == "distinct":
            return distinct_cells()
        return super().architectures(which)

    def neighbours(self, architecture: Cell) -> Sequence[Cell]:
        """Other functions one operation away, each as its cell in `distinct`."""
        others = dict.fromkeys(canonical(cell) for cell in architecture.neighbours())
        return [cell for cell in others if cell != canonical(architecture)]

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

    @property
    def flax_network(self) -> "network.Network":
        """The flax network, whose normaliser (pixel scale [0, 1]) is built in."""
        task, shape = self.task, (self.channels, self.cells_per_stage)
        return network.Network(*shape, task.num_classes, task.mean, task.std, self.init, self.bn)

    def draw(self, shape: Hashable, seed: int, dtype: Any) -> dict[str, Any]:
        """Weights, and statistics of mean 0 and variance 1, as a function of seed and shape alone.

        Weights are drawn in float32 whatever the dtype, so that both precisions share them.
        """
        drawn = _drawing(self)(shape, jax.random.key(seed))  # type: ignore[arg-type]
        return jax.tree.map(lambda leaf: leaf.astype(dtype), drawn)

    def model(self, shape: Hashable, variables: Any, code: Any, images: Array) -> Model:
        """The cell's network, in the mode `calibrated` with statistics of the clean images."""
        flax_network, mode, params = self.flax_network, NORMALIZATIONS[self.bn], variables["params"]

        def apply(params: Any, points: Array) -> Any:
            return flax_network.apply({**variables, "params": params}, points, code)

        def by_batches(params: Any, points: Array) -> Any:
            # Each set of N points is normalised by itself.
            if points.shape == images.shape:
                return apply(params, points)
            batches = points.reshape(-1, *images.shape)
            return jax.vmap(lambda x: apply(params, x))(batches).reshape(len(points), -1)

        if mode.live not in (None, measure_each):
            return Model(by_batches if mode.coupled else apply, params, coupled=mode.coupled)
        clean = images if mode.calibrates else None
        rules = forward.CellRules.of(flax_network, code)
        fast = passes.Passes(rules, params, variables[network.STATISTICS], clean)
        variables = {**variables, network.STATISTICS: fast.statistics}
        return Model(apply, params, passes=fast)

    def trainable(self, architecture: Any, seed: int = 0, dtype: Any = np.float32) -> Trainable:
        """The untrained network of a cell, with batch normalisation as in training.

        Args:
            architecture, seed, dtype: as for `Space.trainable`.

        Raises:
            InputError: if there is no such cell.

        Example:
            >>> network = NASBench201(channels=2, cells_per_stage=1).trainable("323133")
            >>> sorted(network.statistics)[:3]
            ['head', 'reduction_1', 'reduction_2']
        """
        cell = self.parse(architecture)
        variables = self.draw(self.shape(cell), seed, dtype)
        run = partial(training.logits, self.flax_network, cell)
        return Trainable(
            partial(run, train=True),
            lambda params, statistics, x: run(params, statistics, x, train=False)[0],
            variables["params"],
            variables[network.STATISTICS],
        )

    def trained_model(self, architecture: Any, params: Any, statistics: Any) -> Model:
        """A cell's network at trained weights and running statistics, with its fast passes."""
        cell = self.parse(architecture)
        # The mode `init` normalises by the stored statistics.
        stored = replace(self, bn="init")
        variables = {"params": params, network.STATISTICS: statistics}
        code = jnp.asarray(self.encode(cell))
        blank = jnp.zeros((1, *self.task.image_shape))
        model = stored.model(self.shape(cell), variables, code, blank)

        def apply(params: Any, points: Array) -> Any:
            # Here the cell is known, so that unused operations are not compiled.
            return training.logits(
                self.flax_network, cell, params, statistics, points, train=False
            )[0]

        return model._replace(apply=apply)

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


@lru_cache
def _drawing(space: NASBench201) -> Callable[[Hashable, Array], Any]:
    """A compiled function that draws the variables of the space's network from a key."""

    def draw(_: Hashable, key: Array) -> Any:
        return space.flax_network.init(key, *network.blank_inputs())

    # The program runs once, and optimising it takes four times as long as running it.
    return program_cache.compiled(draw, (space,), {"xla_backend_optimization_level": 0})
