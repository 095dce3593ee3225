"""What spaces of convolutional networks share: images, modes, training; and weights of cells."""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attacks.lazy import Array, Lazy, PyTree, jax, jnp
from cells.costs import IMAGE_CHANNELS, ConvGroup, costs_of
from cells.initializers import INITIALIZERS
from cells.normalization import NORMALIZATIONS, measure_each
from ntkscore import program_cache
from ntkscore.errors import InputError
from ntkscore.model import Model, Passes, Trainable
from ntkscore.options import check_choices, check_least, option
from ntkscore.space import Architecture, Space

if TYPE_CHECKING:
    from cells import drawing, rules
else:  # These import JAX or pandas.
    drawing = Lazy("cells.drawing")
    rules = Lazy("cells.rules")

Code = PyTree
"""An architecture as data."""
Variables = PyTree
"""Weights, `params`, and the normalisations' `batch_stats`, named as flax names them."""
STATISTICS = "batch_stats"
Statistics = PyTree
"""What a network's normalisations have stored, the part `batch_stats` of its variables."""
WIDTH = "Width of the first stage; the others have twice and four times it."


def init_option(*left_out: str) -> str:
    """The field of the initialiser, one of `INITIALIZERS` but those left out."""
    names = lambda: tuple(name for name in INITIALIZERS if name not in left_out)  # noqa: E731
    return option("torch", "How weights are drawn.", choices=names)


def bn_option() -> str:
    """The field of the normalisation's mode."""
    return option(
        "calibrated",
        "Source of the normalisation's statistics.",
        choices=lambda: tuple(NORMALIZATIONS),
    )


class StagedSpace(Space):
    """Convolutional networks of three stages with batch normalisation.

    A space of this kind is a dataclass with the fields below, in an order of its own.

    Attributes:
        channels: width C of the first stage; the others have 2C and 4C.
        init: how weights are drawn, a name in `cells.initializers.INITIALIZERS`.
        bn: where the normalisation's statistics come from, a name in
            `cells.normalization.NORMALIZATIONS`.
        title: the space's name in sentences.
        least: the least values of fields that are numbers.
        weights_module: name of the module, which imports JAX, where `draw` makes untrained weights,
            and statistics of mean 0 and variance 1, in float32.
        passes_module: name of the one where `run` is the forward pass, of (rules, params,
            statistics, images); its first output are the logits, its last one the statistics.

    Raises:
        InputError: if a field is below its least value or an unknown choice, or the images are of
            another kind.
    """

    title: ClassVar[str]
    least: ClassVar[dict[str, int]] = {"channels": 1}
    weights_module: ClassVar[str]
    passes_module: ClassVar[str]
    channels: int
    init: str
    bn: str

    def __post_init__(self) -> None:
        check_choices(self)
        check_least(self, **self.least)
        *sides, colours = self.task.image_shape
        if len(sides) != 2 or colours != IMAGE_CHANNELS:
            raise InputError(
                f"images (height, width, {IMAGE_CHANNELS})",
                self.task.image_shape,
                f"put the {IMAGE_CHANNELS} colours last",
            )
        if (given := len(self.task.mean)) != colours:
            raise InputError(
                f"a normaliser of {colours} colours, as the images have",
                given,
                "give a mean and a std for each",
            )
        if any(side % 4 for side in sides):
            raise InputError(
                f"images with sides that 4 divides, since {self.title} halves them twice",
                f"{sides[0]}×{sides[1]}",
                "crop or pad the sides",
            )

    def neighbours(self, architecture: Architecture) -> Sequence[Architecture]:
        """Other networks one step from an architecture, each in its canonical form."""
        here = self.canonical(architecture)
        near = dict.fromkeys(map(self.canonical, architecture.neighbours()))
        return [other for other in near if other != here]

    def trained(self) -> Space:
        """The networks of the benchmarks and papers, whose sizes are the fields' defaults."""
        return type(self)(task=self.task, measured=self.measured)

    @abstractmethod
    def convolutions(self, architecture: Architecture) -> Iterator[ConvGroup]:
        """All convolutions of a network, and at last its linear layer."""

    def costs(self, architecture: Architecture) -> dict[str, float]:
        """Trainable parameters, and multiply-adds for one image."""
        groups, task = self.convolutions(architecture), self.task
        return costs_of(groups, task.num_classes, task.image_shape)

    def structure(self, architecture: Architecture) -> dict[str, float]:
        """`layers`: convolutions and linear layers, whether they reach the output or not."""
        return {"layers": sum(each.layers for each in self.convolutions(architecture))}

    def rules(self, code: Code) -> "rules.Rules":
        """Computations of an encoded network's layers."""
        task = self.task
        return rules.Rules(self.init, self.bn, mean=task.mean, std=task.std, code=code)

    @abstractmethod
    def passes(
        self, code: Code, variables: Variables, images: Array | None = None
    ) -> tuple[Passes | None, Statistics]:
        """Passes, to be derived if None; and statistics, of these images where they are given."""

    def training(self, architecture: Architecture) -> Callable[..., tuple[Array, Statistics]]:
        """A known network's logits and new statistics, of (params, statistics, points, train=…).

        How normalisations train, `cells.rules.Rules` says.
        """
        code = self.encode(architecture)
        known = replace(self.rules(code), training=True, with_residuals=False)
        forward = import_module(self.passes_module).run

        def run(
            params: PyTree, statistics: Statistics, points: Array, train: bool
        ) -> tuple[Array, Statistics]:
            logits, *_, new = forward(replace(known, measure=train), params, statistics, points)
            return logits, new

        return run

    def model(self, shape: Hashable, variables: Variables, code: Code, images: Array) -> Model:
        """The network, in the mode `calibrated` with statistics of the clean images."""
        mode, statistics, passes = NORMALIZATIONS[self.bn], variables[STATISTICS], None
        if mode.live in (None, measure_each):
            calibrating = images if mode.calibrates else None
            passes, statistics = self.passes(code, variables, calibrating)
        own = replace(self.rules(code), with_residuals=False)
        apply = rules.Apply(import_module(self.passes_module).run, own, statistics)
        return Model(apply, variables["params"], mode.coupled, passes)

    def trainable(
        self, architecture: Architecture, seed: int = 0, dtype: Any = np.float32
    ) -> Trainable:
        """The untrained network of a cell, with batch normalisation as in training.

        Example:
            >>> from cells.nasbench201 import NASBench201
            >>> network = NASBench201(channels=2, cells_per_stage=1).trainable("323133")
            >>> sorted(network.statistics)[:3]
            ['head', 'reduction_1', 'reduction_2']
        """
        cell = self.parse(architecture)
        variables, run = self.draw(self.shape(cell), seed, dtype), self.training(cell)
        return Trainable(
            partial(run, train=True),
            lambda params, statistics, x: run(params, statistics, x, train=False)[0],
            variables["params"],
            variables[STATISTICS],
        )

    def trained_model(
        self, architecture: Architecture, params: PyTree, statistics: Statistics
    ) -> Model:
        """A cell's network at trained weights and running statistics, with its fast passes."""
        cell = self.parse(architecture)
        code = jax.tree.map(jnp.asarray, self.encode(cell))
        # The mode `init` normalises by the stored statistics.
        stored = replace(self, bn="init")
        passes, _ = stored.passes(code, {"params": params, STATISTICS: statistics})
        # Here the cell is known, so that unused operations are not compiled.
        run = partial(self.training(cell), train=False)
        return Model(lambda params, x: run(params, statistics, x)[0], params, passes=passes)


class CellSpace(StagedSpace):
    """Networks whose cell is data: one compiled program for all of a size.

    There `draw` is a function of (space, key), and `passes_module` has the class `Passes`.
    """

    def passes(
        self, code: Code, variables: Variables, images: Array | None = None
    ) -> tuple[Passes, Statistics]:
        """The passes, and their statistics."""
        given = self.rules(code), variables[STATISTICS], variables["params"], images
        passes = import_module(self.passes_module).Passes(*given)
        return passes, passes.statistics

    def graphs(self, architecture: Architecture) -> "tuple[drawing.Graph, ...]":
        """The cell, or the normal cell and the reduction cell."""
        return drawing.graphs_of(architecture)

    def draw(self, shape: Hashable, seed: int, dtype: Any) -> Variables:
        """Weights, and statistics of mean 0 and variance 1, as a function of seed and shape alone.

        Weights are drawn in float32 whatever the dtype, so that both precisions share them.
        """
        drawn = _drawing(self)(shape, jax.random.key(seed))  # type: ignore[arg-type]
        return jax.tree.map(lambda leaf: leaf.astype(dtype), drawn)


@lru_cache
def _drawing(space: CellSpace) -> Callable[[Hashable, Array], Variables]:
    """A compiled function that draws the variables of the space's network from a key."""

    draw = lambda _, key: import_module(space.weights_module).draw(space, key)  # noqa: E731
    # The program runs once, and optimising it takes four times as long as running it.
    return program_cache.compiled(draw, (space,), {"xla_backend_optimization_level": 0})
