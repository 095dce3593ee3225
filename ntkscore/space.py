"""A search space: architectures by name, their costs, their encoding as data, their networks.

A space of your own is a frozen dataclass that inherits from `Space`: a name and four short methods,
and `score`, `rank` and resuming work on it, from the library and from the command line
(`--space FILE.py`). Its fields, declared with `option`, become the command line's options, the
columns of its rows and the entries of a run's record.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from attacks.lazy import PyTree, jax, jnp
from ntkscore.errors import InputError
from ntkscore.names import as_text, names_of
from ntkscore.options import Named, options
from ntkscore.task import Task

if TYPE_CHECKING:
    from jax.typing import DTypeLike
    from jaxtyping import Array

    from ntkscore.explore.graphs import Graph
    from ntkscore.model import Model, Trainable
    from ntkscore.verify.reference import Reference

S = TypeVar("S", bound="Space")
SIDE_BY_SIDE = "side by side"
"""Name of the axis along which networks are computed side by side."""
WEIGHTS = "weights"
"""The column, of a space whose networks come with weights, that has a digest of these."""
COSTS = ("params", "flops")
"""Names of the costs that each space of the library counts."""
Architecture = Any
"""An architecture: whatever its space's `parse` returns, hashable, and equal for equal networks."""


USUAL = Task()
"""Images of CIFAR's size in ten classes, without normaliser."""


@dataclass(frozen=True, kw_only=True)
class Space(Named, ABC):
    """Architectures by name, and the network of each.

    The weights depend on the seed and on the architecture's shape alone, so that a score does not
    depend on which other architectures are scored with it.

    Attributes:
        task: images and classes; `on` sets it.
        measured: costs that somebody has measured, by key; `data.costs.with_costs` sets it.
        name: the space's name in records and on the command line.
        fewer: names in `structure` of which fewer are better; of all others more are.
        sets: names of sets of architectures that may be asked for (`architectures`).
        order: the sum of log-ranks that orders its networks where nobody names one; terms that none
            of the networks has are left out.
        seeds: how many that order needs, and are scored where nobody says how many.
        piecewise: whether runs compute one network at a time, and compile each of its passes by
            itself, or each of its pieces (`ntkscore.trace.compiled.Chain`): for spaces whose
            networks share no program, where compiling one that does everything would take longer
            than running it.

    Example:
        >>> from cells.residual import Residual
        >>> space = Residual(width=32).on(Task((8, 8, 3), num_classes=4))
        >>> space.choices()["width"]
        32
        >>> space.key(space.parse("0110"))
        '0110'
    """

    name: ClassVar[str]
    fewer: ClassVar[tuple[str, ...]] = ()
    sets: ClassVar[tuple[str, ...]] = ("distinct", "all")
    order: ClassVar[str] = "params+clean.naswot"
    seeds: ClassVar[int] = 1
    piecewise: ClassVar[bool] = False
    task: Task = USUAL
    measured: Any = dataclasses.field(default=None, repr=False, compare=False)

    @abstractmethod
    def parse(self, text: object) -> Architecture:
        """An architecture from any of its names.

        Raises:
            InputError: if it is none.
        """

    def parse_all(self, architectures: object) -> list[Architecture]:
        """Architectures from one name, or from a list, tuple or array of names.

        Raises:
            InputError: if one is none.
        """
        return [self.parse(name) for name in names_of(architectures)]

    def written(self, names: Sequence[object], heading: str = "") -> list[Any]:
        """The names in a column of a table or file, each as `parse` takes it.

        Spreadsheets and pandas drop leading zeros, and write whole numbers as 7.0. A space where a
        name without its zeros is another architecture's refuses what may be either.

        Args:
            names: texts or numbers; anything else is an architecture, and stays.
            heading: of the column, "" for none.

        Raises:
            InputError: if it is not clear what the names are.

        Example:
            >>> from cells.nasbench201.space import NASBench201
            >>> NASBench201().written([12343.0, 323133], "digits")
            ['012343', '323133']
        """
        return [as_text(name) for name in names]

    @abstractmethod
    def identity(self, architecture: Architecture) -> dict[str, str | int]:
        """Columns that identify a row's architecture; the first is a name for `parse`."""

    def costs(self, architecture: Architecture) -> dict[str, float]:
        """Costs that a score is compared with, such as the number of parameters: larger is better.

        By default `params` and `flops`, counted on the network's trace (`ntkscore.anatomy`).
        """
        counted = _counted(self, self.key(architecture))
        return {name: counted[name] for name in COSTS if name in counted}

    def structure(self, architecture: Architecture) -> dict[str, float]:
        """Counts on an architecture beside its costs, by name.

        By default the other counts on the network's trace: its layers, depth, receptive field.
        Empty where the space has `costs` of its own.
        """
        if type(self).costs is not Space.costs:
            return {}
        counted = _counted(self, self.key(architecture))
        return {name: number for name, number in counted.items() if name not in COSTS}

    @abstractmethod
    def draw(self, shape: Hashable, seed: int, dtype: "DTypeLike") -> PyTree:
        """Untrained weights (a pytree of arrays of this dtype) for all architectures of a shape."""

    @abstractmethod
    def model(self, shape: Hashable, variables: PyTree, code: PyTree, images: "Array") -> "Model":
        """The network of an encoded architecture, ready to be scored on these clean images.

        It is called under `jax.jit`: `variables`, `code` and `images` are tracers.
        """

    def network(
        self,
        architecture: Architecture,
        images: "Array | np.ndarray",
        seed: int = 0,
        dtype: "DTypeLike" = np.float32,
    ) -> "Model":
        """The untrained network of an architecture, for kernels and attacks outside of a run.

        Args:
            architecture: one, or any of its names.
            images: the clean images that it will be scored on; its statistics may depend on them.
            seed: of the weights.
            dtype: of the weights and the computation.

        Raises:
            InputError: if there is no such architecture.

        Example:
            >>> from cells.residual import Residual
            >>> model = Residual(width=8).network("01", np.zeros((2, 32, 32, 3)))
            >>> [weight.shape for weight in model.params]
            [(3072, 8), (8, 8), (8, 8), (8, 10)]
        """
        parsed = self.parse(architecture)
        shape = self.shape(parsed)
        code = jax.tree.map(jnp.asarray, self.encode(parsed))
        variables = self.draw(shape, seed, dtype)
        return self.model(shape, variables, code, jnp.asarray(images, dtype))

    def trainable(self, architecture: Any, seed: int = 0, dtype: Any = np.float32) -> "Trainable":
        """The untrained network of an architecture, for training.

        Args:
            architecture: one, or any of its names.
            seed: of the weights.
            dtype: of the weights and the computation.

        Raises:
            InputError: if there is no such architecture.

        Example:
            >>> import jax.numpy as jnp
            >>> from cells.residual import Residual
            >>> network = Residual(width=8).trainable("01")
            >>> network.evaluate(network.params, (), jnp.ones((2, 32, 32, 3))).shape
            (2, 10)
        """
        from ntkscore.model import Trainable

        blank = np.zeros((1, *self.task.image_shape))
        return Trainable.of(self.network(architecture, blank, seed, dtype))

    def trained_model(self, architecture: Any, params: PyTree, statistics: PyTree) -> "Model":
        """A network at trained weights and statistics, for kernels and attacks.

        Args:
            architecture: one, or any of its names.
            params, statistics: of its `Trainable`, after training.
        """
        return self.trainable(architecture).at(params, statistics)

    def read_weights(self, path: Path, architecture: Architecture) -> tuple[PyTree, PyTree]:
        """Trained weights and statistics from a file, as `trained_model` takes them.

        Raises:
            InputError: if the file does not hold them, or the space has no such files.
        """
        raise self._lacks("with files of trained weights", "read_weights")

    def write_weights(
        self, path: Path, architecture: Architecture, params: PyTree, statistics: PyTree
    ) -> None:
        """Write trained weights and statistics to a file, for `read_weights`.

        Raises:
            InputError: if the space has no such files.
        """
        raise self._lacks("with files of trained weights", "write_weights")

    def graphs(self, architecture: Architecture) -> "tuple[Graph, ...]":
        """Drawings of an architecture for pages and pictures, by default none."""
        return ()

    @classmethod
    def reference(cls, path: Path) -> "Callable[[DTypeLike], Reference]":
        """Another implementation's results from a file, as a function of the dtype to compare in.

        Raises:
            InputError: if the file cannot be used, or the space has no such files.
        """
        raise cls._lacks("with files of reference values", "reference")

    def names(self, architecture: Architecture) -> dict[str, str | int]:
        """The architecture's short names for display, by default its key alone."""
        key, *_ = self.identity(architecture).items()
        return dict([key])

    def architectures(self, which: str) -> Sequence[Architecture]:
        """All architectures of a named set, one of `sets`, in a fixed order.

        Raises:
            InputError: if the space has no such set.
        """
        if which not in self.sets:
            raise InputError(
                f"a set of the space {self.name}, one of {', '.join(self.sets)}",
                repr(which),
                "choose one, or name architectures for `parse`",
            )
        raise InputError(
            f"architectures by name, since the space {self.name} does not list its own",
            repr(which),
            "name them, or write a method `architectures`",
        )

    def neighbours(self, architecture: Architecture) -> Sequence[Architecture]:
        """Architectures one step away, for a search.

        Raises:
            InputError: if the space does not say which those are.
        """
        raise self._lacks("whose architectures have neighbours", "neighbours")

    def canonical(self, architecture: Architecture) -> Architecture:
        """The architecture that stands for all that compute the same function.

        By default the architecture itself. Intervals of `ntkscore.correlate` draw these together.
        """
        return architecture

    def shape(self, architecture: Architecture) -> Hashable:
        """A value that is equal for architectures that share weights and one compiled program."""
        return ()

    def encode(self, architecture: Architecture) -> PyTree:
        """The architecture as data: an array, or a pytree of arrays, of its shape's form."""
        return np.zeros((), np.int32)

    def needs(self, architecture: Architecture) -> tuple[Any, ...]:
        """Computations of an architecture that others of its shape may leave out, by default none.

        An accelerator computes networks side by side in the order of their sorted needs.
        """
        return ()

    def trained(self) -> "Space":
        """The space at the size of its trained networks; scoring may use smaller ones."""
        return self

    def memory(self, shape: Hashable, points: int, width: int) -> int | None:
        """Bytes that one network's kernel holds at once, for many numbers of `width` bytes.

        None where it is unknown: then the memory is found by trying.
        """
        return None

    def on(self: S, task: Task) -> S:
        """The same space for other images and classes.

        Raises:
            InputError: if its networks cannot take such images.
        """
        return dataclasses.replace(self, task=task)

    def counted(self, architecture: Architecture) -> dict[str, float]:
        """Everything that is known without computing: costs, counts, and costs that were measured.

        A cost that was not measured is NaN.
        """
        found = {**self.costs(architecture), **self.structure(architecture)}
        if self.measured is not None:
            key, names = self.key(architecture), self.measured.columns
            there = key in self.measured.index
            values = self.measured.loc[key].tolist() if there else [nan] * len(names)
            found |= zip(names, values, strict=True)
        return found

    def check_counted(self, names: Iterable[str], counted: Collection[str]) -> None:
        """Refuse names that are none of the costs and counts."""
        if unknown := [name for name in names if name not in counted]:
            expected = f"costs or counts of {self.name}, {', '.join(counted)}"
            raise InputError(expected, repr(unknown[0]), "name some of these")

    @property
    def smaller(self) -> tuple[str, ...]:
        """Names of what is known without computing of which less is better."""
        return (*self.fewer, *self.measured_names)

    @property
    def measured_names(self) -> tuple[str, ...]:
        """Names of the measured costs."""
        return () if self.measured is None else tuple(map(str, self.measured))

    def key(self, architecture: Architecture) -> str | int:
        """The architecture's first name, its key in rows and tables."""
        return next(iter(self.identity(architecture).values()))

    def choices(self) -> dict[str, object]:
        """The space's options by name, with their values."""
        return {field.name: getattr(self, field.name) for field in options(self)}

    @classmethod
    def _lacks(cls, what: str, method: str) -> InputError:
        """The error for a space without one of the methods that it need not have."""
        return InputError(f"a space {what}", cls.name, f"write a method `{method}`")

    @property
    def columns(self) -> Mapping[str, object]:
        """Columns that all rows of a run share: the space's name and its options."""
        return {"space": self.name, **self.choices()}


@lru_cache(maxsize=10_000)
def _counted(space: Space, key: str | int) -> dict[str, float]:
    """Counts on the trace of an architecture's network, without those that it does not show."""
    from ntkscore.trace.anatomy import anatomy

    blank = np.zeros((1, *space.task.image_shape), np.float32)
    if type(space).network is Space.network:
        parsed = space.parse(key)
        shape, code = space.shape(parsed), jax.tree.map(jnp.asarray, space.encode(parsed))
        weights = jax.tree.map(
            lambda a: jnp.zeros(a.shape, a.dtype) if isinstance(a, jax.ShapeDtypeStruct) else a,
            _sizes(space, shape),
        )
        network = space.model(shape, weights, code, jnp.asarray(blank))
    else:
        network = space.network(key, blank)
    # What is counted does not depend on the other images.
    counts = anatomy(network._replace(coupled=False), blank).counts
    return {name: float(number) for name, number in counts.items() if not isnan(number)}


@lru_cache(maxsize=1_000)
def _sizes(space: Space, shape: Hashable) -> PyTree:
    """A shape's weights, with their sizes alone in place of real numbers."""

    def size(leaf: Any) -> Any:
        real = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if real else leaf

    return jax.tree.map(size, space.draw(shape, 0, np.float32))
