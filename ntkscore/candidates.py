"""Networks of one's own by name, as a space of which they are all."""

import dataclasses
import inspect
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import numpy as np

from attacks.lazy import Array, PyTree, jax
from ntkscore.data.images import ImageSet
from ntkscore.errors import InputError, check_choice
from ntkscore.space import WEIGHTS, Architecture, Space

if TYPE_CHECKING:
    from jax.typing import DTypeLike

    from ntkscore.model import Model

POINTS = 64
"""Images that functions of one's own are called with; normalisations may measure them."""
CONVERTED = 8
"""Those of them at which a PyTorch module is converted."""
S = TypeVar("S", bound=Space)
log = logging.getLogger("ntkscore")


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates(Space):
    """Networks of one's own, at the weights that they have; another seed draws other images.

    Attributes:
        networks: models or PyTorch modules by name; those that `made` makes if left out.
        made: a function of images that returns such networks, as a file of one's own has it.
        example: images for it, (n, height, width, colours); random ones if left out.

    Example:
        >>> import jax.numpy as jnp
        >>> from ntkscore import Model
        >>> apply = lambda w, x: jnp.tanh(x.reshape(len(x), -1) @ w[0]) @ w[1]
        >>> sizes = {"narrow": 4, "wide": 8}
        >>> space = Candidates(
        ...     networks={
        ...         name: Model(apply, [jnp.ones((3072, m)), jnp.ones((m, 10))])
        ...         for name, m in sizes.items()
        ...     }
        ... )
        >>> space.architectures("all"), space.costs("wide")["params"]
        (('narrow', 'wide'), 24656.0)
    """

    name: ClassVar[str] = "candidates"
    piecewise: ClassVar[bool] = True
    made: ClassVar[Callable[[np.ndarray], Mapping[str, Any]] | None] = None
    networks: Mapping[str, Any] | None = None
    example: np.ndarray | None = None

    def __getstate__(self) -> dict[str, object]:
        """What another process needs; it makes the networks of `made` itself."""
        names = {field.name for field in dataclasses.fields(self)}
        return {name: value for name, value in vars(self).items() if name in names}

    @property
    def points(self) -> np.ndarray:
        """Images that networks are made and PyTorch modules converted at."""
        if self.example is not None:
            return self.example
        shape = (POINTS, *self.task.image_shape)
        return np.random.default_rng(0).uniform(size=shape).astype(np.float32)

    @cached_property
    def models(self) -> Mapping[str, "Model"]:
        """The networks on the space's images."""
        from ntkscore.bridges import from_torch
        from ntkscore.kernels.network import checked_model

        images = self.points
        given: Any = self.networks if type(self).made is None else self._made(images)
        if not isinstance(given, Mapping) or not given or not all(map(_is_name, given)):
            raise InputError(
                "networks by name, {'resnet18': model, …}",
                f"the names {[*given]}" if isinstance(given, Mapping) else type(given).__name__,
                "give a dict with a text without commas for each model or PyTorch module",
            )
        models = dict[str, "Model"]()
        for name, each in given.items():
            with self.named(name):
                if hasattr(each, "state_dict"):
                    models[name] = from_torch(each, images[:CONVERTED])
                else:
                    models[name] = checked_model(each)
        return models

    def _made(self, images: np.ndarray) -> object:
        """What the function of images returns."""
        make: Any = type(self).made
        signature = inspect.signature(make)
        try:
            signature.bind(images)
        except TypeError as error:
            raise InputError(
                "a function networks(images)",
                f"networks{signature}",
                "give it the images as its only argument",
            ) from error
        return make(images)

    @contextmanager
    def named(self, name: object) -> Iterator[None]:
        """Errors and warnings say which network they are of; each warning comes once."""

        def tell(record: logging.LogRecord) -> bool:
            record.msg, record.args = f"network {name!r}: {record.getMessage()}", ()
            is_new = record.msg not in self._told
            self._told.add(record.msg)
            return is_new

        log.addFilter(tell)
        try:
            yield
        except InputError as error:
            expected = f"{error.expected} (network {name!r})"
            raise InputError(expected, error.got, error.remedy) from error
        finally:
            log.removeFilter(tell)

    @cached_property
    def _told(self) -> set[str]:
        return set()

    def parse(self, text: object) -> str:
        return one_of(self.models, text)

    def identity(self, architecture: str) -> dict[str, str | int]:
        """The name, a digest of the weights, and which statistics its normalisations use.

        These are `own` ones, `init` for the mean 0 and variance 1 of new ones, those of the
        `batch`, or `none`.
        """
        if architecture in self._identities:
            return self._identities[architecture]
        from ntkscore.grams import in_full_precision
        from ntkscore.kernels.network import checked_model, network_of
        from ntkscore.results.checkpoints import fingerprint
        from ntkscore.trace.content import captured_by

        leaves, tree = jax.tree.flatten(self.models[architecture].params)
        points = jax.numpy.zeros((2, *self.task.image_shape))
        with self.named(architecture):
            model = checked_model(self.models[architecture], points.dtype)
            # As it will be scored, so that it is traced once.
            network = in_full_precision(network_of)(model, [(points, None)])
        # Statistics that a normalisation has measured are no weights, and decide scores like them.
        content = str(tree) + captured_by(network.model.apply, model.params, points)
        digest = fingerprint([np.frombuffer(content.encode(), np.uint8), *leaves])[:16]
        self._identities[architecture] = {
            "network": architecture,
            WEIGHTS: digest,
            "bn": network.normalisation,
        }
        return self._identities[architecture]

    @cached_property
    def _identities(self) -> dict[str, dict[str, str | int]]:
        return {}

    def names(self, architecture: str) -> dict[str, str | int]:
        return {"network": architecture}

    def architectures(self, which: str) -> Sequence[str]:
        return tuple(self.models) if which in self.sets else super().architectures(which)

    def shape(self, architecture: str) -> Hashable:
        """The network itself: each has a program of its own."""
        return architecture

    def draw(self, shape: Hashable, seed: int, dtype: "DTypeLike") -> PyTree:
        """The network's own weights in this dtype, for every seed."""
        from ntkscore.kernels.network import checked_model

        return checked_model(self.models[str(shape)], dtype).params

    def model(self, shape: Hashable, variables: PyTree, code: PyTree, images: Array) -> "Model":
        return self.models[str(shape)]._replace(params=variables)


@dataclass(frozen=True, kw_only=True, eq=False)
class Described(Space):
    """Networks of one's own as their run describes them: all but what computes."""

    networks: Mapping[str, Mapping[str, dict[str, Any]]]

    def parse(self, text: object) -> str:
        return one_of(self.networks, text)

    def identity(self, architecture: str) -> dict[str, str | int]:
        return self.networks[architecture]["identity"]

    def costs(self, architecture: str) -> dict[str, float]:
        return self.networks[architecture]["costs"]

    def structure(self, architecture: str) -> dict[str, float]:
        return self.networks[architecture]["structure"]

    def architectures(self, which: str) -> Sequence[str]:
        return tuple(self.networks) if which in self.sets else super().architectures(which)

    def draw(self, shape: Hashable, seed: int, dtype: "DTypeLike") -> NoReturn:
        """Refuse: the run has no weights."""
        raise InputError(
            "the networks themselves", "a run of them", "name the file that has them with --space"
        )

    def model(self, shape: Hashable, variables: PyTree, code: PyTree, images: Array) -> NoReturn:
        """Refuse, as `draw` does before."""
        self.draw(shape, 0, np.float32)


def described(space: Space, architectures: Iterable[Architecture]) -> dict[str, Any]:
    """What is known of networks without computing, by key; as `Described` takes it."""
    return {
        str(space.key(each)): {
            "identity": space.identity(each),
            "costs": space.costs(each),
            "structure": space.structure(each),
        }
        for each in architectures
    }


def on_images(space: S, images: ImageSet) -> S:
    """A space on the size and classes of images, some of which networks of one's own are made at.

    These are the same whatever the seed.
    """
    space = space.on(images.task)
    if not isinstance(space, Candidates):
        return space
    some = dataclasses.replace(images, samples=min(POINTS, len(images.labels)), balanced=False)
    example, _ = some.draw(0)
    return dataclasses.replace(space, example=example)


def one_of(networks: Iterable[str], name: object) -> str:
    """A network's name; refuses any other."""
    check_choice(str(name), [*networks], "a network")
    return str(name)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip()) and "," not in name
