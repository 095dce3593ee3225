"""What spaces of convolutional networks share: images, modes, training; and weights of cells."""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cells.initializers import INITIALIZERS
from cells.normalization import NORMALIZATIONS, measure_each
from ntkscore import program_cache
from ntkscore.errors import InputError
from ntkscore.lazy import Array, Lazy, jax, jnp
from ntkscore.model import Model, Trainable
from ntkscore.options import check_choices, check_least, option
from ntkscore.space import Architecture, Space

if TYPE_CHECKING:
    from cells import rules
    from cells.passes import CellPasses
    from ntkscore.model import Passes
else:  # It imports JAX.
    rules = Lazy("cells.rules")

IMAGE_CHANNELS = 3
"""Colours of the images that networks of cells take."""
Variables = Any
"""Weights, `params`, and the normalisations' `batch_stats`, named as flax names them."""
STATISTICS = "batch_stats"
Statistics = Any
"""What a network's normalisations have stored, the part `batch_stats` of its variables."""


def channels_option() -> Any:
    """The field of the width."""
    return option(16, "Width of the first stage; the others have twice and four times it.")


def init_option(*left_out: str) -> Any:
    """The field of the initialiser, one of `INITIALIZERS` but those left out."""
    names = lambda: tuple(name for name in INITIALIZERS if name not in left_out)  # noqa: E731
    return option("torch", "How weights are drawn.", choices=names)


def bn_option() -> Any:
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
        init: how weights are drawn, a name in `INITIALIZERS`.
        bn: where the normalisation's statistics come from, a name in `NORMALIZATIONS`.
        title: the space's name in sentences.
    """

    title: ClassVar[str]
    channels: int
    init: str
    bn: str

    def check(self, **least: int) -> None:
        """Refuse a field below its least value, an unknown choice, and images of another kind.

        Raises:
            InputError: if there is one.
        """
        check_choices(self)
        check_least(self, channels=1, **least)
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

    @property
    def of_layers(self) -> dict[str, Any]:
        """Fields of `cells.rules.NetworkRules`."""
        task = self.task
        return {"init_name": self.init, "bn": self.bn, "mean": task.mean, "std": task.std}

    def neighbours(self, architecture: Architecture) -> Sequence[Architecture]:
        """Other networks one step from an architecture, each in its canonical form."""
        here = self.canonical(architecture)
        near = dict.fromkeys(map(self.canonical, architecture.neighbours()))
        return [other for other in near if other != here]

    def trained(self) -> Space:
        """The networks of the benchmarks and papers, whose sizes are the fields' defaults."""
        return type(self)(task=self.task, measured=self.measured)

    @abstractmethod
    def logits(self, variables: Variables, code: Any, points: Array) -> Any:
        """Logits of an encoded network, without residuals."""

    @abstractmethod
    def prepared(
        self, code: Any, variables: Variables, images: Array | None
    ) -> "tuple[Statistics, Passes | None]":
        """Statistics, of these images where they are given; and passes, to be derived if None."""

    @abstractmethod
    def training(self, architecture: Architecture) -> Callable[..., tuple[Array, Any]]:
        """A known network's logits and new statistics, of (params, statistics, points, train=…)."""

    def model(self, shape: Hashable, variables: Any, code: Any, images: Array) -> Model:
        """The network, in the mode `calibrated` with statistics of the clean images."""
        mode, statistics, passes = NORMALIZATIONS[self.bn], variables[STATISTICS], None
        if mode.live in (None, measure_each):
            calibrating = images if mode.calibrates else None
            statistics, passes = self.prepared(code, variables, calibrating)

        def apply(params: Any, points: Array) -> Any:
            return self.logits({"params": params, STATISTICS: statistics}, code, points)

        return Model(apply, variables["params"], mode.coupled, passes)

    def trainable(self, architecture: Any, seed: int = 0, dtype: Any = np.float32) -> Trainable:
        """The untrained network of a cell, with batch normalisation as in training.

        Args:
            architecture, seed, dtype: as for `Space.trainable`.

        Raises:
            InputError: if there is no such cell.

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

    def trained_model(self, architecture: Any, params: Any, statistics: Any) -> Model:
        """A cell's network at trained weights and running statistics, with its fast passes."""
        cell = self.parse(architecture)
        # The mode `init` normalises by the stored statistics.
        stored = replace(self, bn="init")
        variables = {"params": params, STATISTICS: statistics}
        code = jax.tree.map(jnp.asarray, self.encode(cell))
        blank = jnp.zeros((1, *self.task.image_shape))
        model, run = stored.model(self.shape(cell), variables, code, blank), self.training(cell)
        # Here the cell is known, so that unused operations are not compiled.
        return model._replace(
            apply=lambda params, points: run(params, statistics, points, train=False)[0]
        )


class CellSpace(StagedSpace):
    """Networks whose cell is data: one compiled program for all of a size."""

    @abstractmethod
    def initial(self, key: Array) -> Variables:
        """Untrained weights and statistics of mean 0 and variance 1, in float32."""

    @property
    @abstractmethod
    def passes_class(self) -> "type[CellPasses]":
        """The forward and backward passes of an encoded cell."""

    @abstractmethod
    def rules(self, code: Any) -> "rules.NetworkRules":
        """Computations of an encoded cell's layers."""

    def passes(self, code: Any, variables: Variables, images: Array | None = None) -> "CellPasses":
        """The passes of an encoded cell, with statistics of these images where they are given."""
        given = variables["params"], variables[STATISTICS], images
        return self.passes_class(self.rules(code), *given)

    def logits(self, variables: Variables, code: Any, points: Array) -> Array:
        """Logits of the forward pass."""
        own = replace(self.rules(code), with_residuals=False)
        return self.passes_class.run(own, variables["params"], variables[STATISTICS], points)[0]

    def training(self, architecture: Architecture) -> Callable[..., tuple[Array, Any]]:
        """A known cell's logits and new statistics."""
        known = self.rules(self.encode(architecture))
        return partial(rules.trained_logits, self.passes_class.run, known)

    def prepared(
        self, code: Any, variables: Variables, images: Array | None
    ) -> "tuple[Statistics, CellPasses]":
        """The passes, and their statistics."""
        fast = self.passes(code, variables, images)
        return fast.statistics, fast

    def draw(self, shape: Hashable, seed: int, dtype: Any) -> Variables:
        """Weights, and statistics of mean 0 and variance 1, as a function of seed and shape alone.

        Weights are drawn in float32 whatever the dtype, so that both precisions share them.
        """
        drawn = _drawing(self)(shape, jax.random.key(seed))  # type: ignore[arg-type]
        return jax.tree.map(lambda leaf: leaf.astype(dtype), drawn)


@lru_cache
def _drawing(space: CellSpace) -> Callable[[Hashable, Array], Any]:
    """A compiled function that draws the variables of the space's network from a key."""

    def draw(_: Hashable, key: Array) -> Any:
        return space.initial(key)

    # The program runs once, and optimising it takes four times as long as running it.
    return program_cache.compiled(draw, (space,), {"xla_backend_optimization_level": 0})
