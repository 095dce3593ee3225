"""Residual fully connected networks as a `Space`: skip patterns as data.

With m features a layer, L layers and skips α_1 … α_{L−2} ∈ {0, 1}, a point x, flattened and divided
by its Euclidean length, gives

    f_1 = σ(W_1 x),   f_l = σ(W_l f_{l−1}) / L + α_{l−1} f_{l−1}  (l = 2 … L−1),   f = W_L f_{L−1}.

All entries of all weights are N(0, 1/m), there are no biases, and every layer is trained. The paper
has one output; here there is one for each class, each with weights of its own.

Source: Wu et al. (2024), "Robust NAS under adversarial training", equation 1.
"""

import itertools
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from cells.errors import InputError
from cells.lazy import Array, jax, jnp
from cells.model import Activations, Model
from cells.space import Space, check_choices, option

Weights = list[Float[Array, "_ _"]]
"""W_1 … W_L, each (in, out)."""

# Functions of our own, because naming those of JAX would import it.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda z: jax.nn.relu(z),
    "leaky_relu": lambda z: jax.nn.leaky_relu(z),
    "tanh": lambda z: jnp.tanh(z),
    "sigmoid": lambda z: jax.nn.sigmoid(z),
    "swish": lambda z: jax.nn.swish(z),
    "softplus": lambda z: jax.nn.softplus(z),
}


@dataclass(frozen=True, order=True)
class Skips:
    """A residual network, written as its skip indicators α_1 … α_{L−2}, such as `0110`."""

    pattern: str

    def __post_init__(self) -> None:
        if not re.fullmatch("[01]+", self.pattern):
            raise InputError(
                f"expected a skip pattern of zeros and ones such as 0110, got {self.pattern!r}; "
                "write one digit for each layer between the first and the last"
            )

    @property
    def layers(self) -> int:
        """Number of layers L, the first and the last included."""
        return len(self.pattern) + 2


@dataclass(frozen=True, kw_only=True)
class Residual(Space):
    """Residual fully connected networks of a width, with any pattern of skips.

    Attributes:
        depth: L, layers of the networks that `architectures` lists; a pattern of another length
            is a network of another depth.
        width: m, features of each hidden layer.
        activation: σ, a name in `ACTIVATIONS`.

    Raises:
        InputError: if a value is outside what its line says.

    Example:
        >>> space = Residual(depth=5, width=32)
        >>> [skips.pattern for skips in space.architectures("all")][:3]
        ['000', '001', '010']
        >>> space.costs(space.parse("010"))["params"]
        101696
    """

    name: ClassVar[str] = "residual"

    depth: int = option(6, "Layers of the residual networks that are listed.")
    width: int = option(64, "Features of each hidden layer.")
    activation: str = option(
        "relu", "Activation of the hidden layers.", choices=lambda: tuple(ACTIVATIONS)
    )

    def __post_init__(self) -> None:
        check_choices(self)
        for name, least in (("depth", 3), ("width", 1)):
            if getattr(self, name) < least:
                raise InputError(
                    f"expected {name} to be at least {least}, got {getattr(self, name)}; raise it"
                )

    def parse(self, text: Any) -> Skips:
        """A network from its skip pattern, such as `0110`."""
        return text if isinstance(text, Skips) else Skips(str(text).strip())

    def identity(self, architecture: Skips) -> dict[str, str | int]:
        """The skip pattern."""
        return {"skips": architecture.pattern}

    def costs(self, architecture: Skips) -> dict[str, float]:
        """Trainable parameters; multiply-adds for one image, which are as many; and the skips."""
        inputs, m = int(np.prod(self.task.image_shape)), self.width
        params = inputs * m + (architecture.layers - 2) * m * m + m * self.task.num_classes
        return {"params": params, "flops": params, "shortcuts": architecture.pattern.count("1")}

    def architectures(self, which: str) -> Sequence[Skips]:
        """Every skip pattern of networks of this depth, for `all` and `distinct` alike."""
        if which not in ("all", "distinct"):
            return super().architectures(which)
        return [Skips("".join(bits)) for bits in itertools.product("01", repeat=self.depth - 2)]

    def neighbours(self, architecture: Skips) -> Sequence[Skips]:
        """The networks with one skip more or less."""
        bits = architecture.pattern
        flipped = {"0": "1", "1": "0"}
        return [Skips(bits[:i] + flipped[bit] + bits[i + 1 :]) for i, bit in enumerate(bits)]

    def shape(self, architecture: Skips) -> Hashable:
        """The number of layers: networks of equal depth share weights and a program."""
        return architecture.layers

    def encode(self, architecture: Skips) -> np.ndarray:
        """The skip indicators α_1 … α_{L−2}, int32."""
        return np.array([int(bit) for bit in architecture.pattern], np.int32)

    def draw(self, shape: Hashable, seed: int, dtype: Any) -> Weights:
        """Weights W_1 … W_L, each (in, out); drawn in float32 whatever the dtype."""
        assert isinstance(shape, int)
        inputs = int(np.prod(self.task.image_shape))
        widths = [inputs, *[self.width] * (shape - 1), self.task.num_classes]
        keys = jax.random.split(jax.random.key(seed), shape)
        return [
            (jax.random.normal(key, pair, jnp.float32) / self.width**0.5).astype(dtype)
            for key, pair in zip(keys, itertools.pairwise(widths), strict=True)
        ]

    def model(self, shape: Hashable, variables: Weights, code: Any, images: Array) -> Model:
        """The network with these skips."""
        apply = partial(logits, skips=code, activation=self.activation)
        inside = partial(activations, skips=code) if self.activation == "relu" else None
        return Model(apply, variables, activations=inside, unnormalized=apply)


def logits(
    weights: Weights,
    points: Float[Array, "n ..."],
    skips: Int[Array, "l"],
    activation: str = "relu",
) -> Float[Array, "n o"]:
    """The outputs f of equation 1.

    Args:
        weights: W_1 … W_L, each (in, out).
        points: of any shape; each is flattened and divided by its length.
        skips: α_1 … α_{L−2}.
        activation: a name in `ACTIVATIONS`.
    """
    *_, f = hidden(weights, points, skips, activation)
    return jnp.matmul(f[1], weights[-1], precision="highest")


def activations(
    weights: Weights, points: Float[Array, "n ..."], skips: Int[Array, "l"]
) -> Activations:
    """The inputs of all ReLUs, and the features f_1 … f_{L−1}."""
    before, after = zip(*hidden(weights, points, skips, "relu"), strict=True)
    once = jnp.ones(len(before), jnp.int32)
    return Activations([(once, jnp.stack(before))], [jnp.stack(after)])


def hidden(
    weights: Weights, points: Float[Array, "n ..."], skips: Int[Array, "l"], activation: str
) -> list[tuple[Float[Array, "n m"], Float[Array, "n m"]]]:
    """What each hidden layer's activation is given, and the layer's features f_1 … f_{L−1}.

    The activation is σ^(m)(z) = σ(√m z)/√m, which is σ itself for the homogeneous ones, and keeps
    the pre-activations of the others from vanishing as the width m grows.

    Args:
        weights, points, skips, activation: as for `logits`.
    """
    scale, layers = weights[0].shape[1] ** 0.5, len(weights)
    product = partial(jnp.matmul, precision="highest")

    def sigma(z: Array) -> Array:
        return ACTIVATIONS[activation](scale * z) / scale

    x = points.reshape(len(points), -1)
    squared = jnp.sum(x * x, 1, keepdims=True)
    # A black image has no direction: it stays zero, and its gradient is finite, not NaN.
    x = x / jnp.sqrt(jnp.where(squared > 0, squared, 1))
    z = product(x, weights[0])
    passed = [(z, f := sigma(z))]
    for weight, skip in zip(weights[1:-1], skips, strict=True):
        z = product(f, weight)
        passed.append((z, f := sigma(z) / layers + skip.astype(f.dtype) * f))
    return passed
