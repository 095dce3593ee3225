"""What the residual networks of the theory share: skips and activations by layer.

With m features a layer, L layers and skips α_1 … α_{L−2} ∈ {0, 1}, a point x of length 1 gives

    f_1 = σ_1(W_1 x),   f_l = σ_l(W_l f_{l−1}) / L + α_{l−1} f_{l−1}  (1 < l < L),   f = W_L f_{L−1}

There are no biases, and every layer is trained. The paper has one output; here there is one for
each class, each with weights of its own.

Source: Wu et al. (2024), "Robust NAS under adversarial training", equations 1 and 2.
"""

import itertools
import re
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from cells.residual.activations import ACTIVATIONS
from cells.space import Space, check_choices, option
from ntkscore.errors import InputError
from ntkscore.lazy import Array, jnp
from ntkscore.model import Model

SCALINGS = ("width", "literal")
OUTPUT_SCALES = ("literal", "sqrt_width")

Weights = list[Float[Array, "..."]]
"""W_1 … W_L."""


@dataclass(frozen=True, order=True)
class Skips:
    """A residual network, written as its skip indicators α_1 … α_{L−2}, such as `0110`.

    Its activations σ_1 … σ_{L−1} may follow, `10:swish,relu,tanh`; else they are the space's.

    Example:
        >>> Skips.parse("10:swish,relu,tanh")
        Skips(pattern='10', activations=('swish', 'relu', 'tanh'))
    """

    pattern: str
    activations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch("[01]+", self.pattern):
            raise InputError(
                f"expected a skip pattern of zeros and ones such as 0110, got {self.pattern!r}; "
                "write one digit for each layer between the first and the last"
            )
        if unknown := [name for name in self.activations if name not in ACTIVATIONS]:
            raise InputError(
                f"expected activations of {', '.join(ACTIVATIONS)}, got {unknown[0]!r}; choose one "
                "of them"
            )
        if self.activations and len(self.activations) != self.layers - 1:
            raise InputError(
                f"expected {self.layers - 1} activations, one for each layer but the last, got "
                f"{len(self.activations)} in {self}; name as many, or none"
            )

    @classmethod
    def parse(cls, text: str) -> "Skips":
        """A network from its name.

        Raises:
            InputError: if it is none.
        """
        pattern, colon, names = text.partition(":")
        return cls(pattern.strip(), tuple(n.strip() for n in names.split(",")) if colon else ())

    def __str__(self) -> str:
        return self.pattern + (f":{','.join(self.activations)}" if self.activations else "")

    @property
    def layers(self) -> int:
        """Number of layers L, the first and the last included."""
        return len(self.pattern) + 2

    @property
    def indicators(self) -> np.ndarray:
        """The skip indicators α_1 … α_{L−2}, int32."""
        return np.array([int(bit) for bit in self.pattern], np.int32)


@dataclass(frozen=True, kw_only=True)
class ResidualSpace(Space):
    """Residual networks of a width, with any pattern of skips.

    Attributes:
        depth: L, layers of the networks that `architectures` lists; a pattern of another length
            is a network of another depth.
        width: m, features of each hidden layer.
        activation: σ of every hidden layer of a network that names none, of `ACTIVATIONS`.
        activation_scaling: `width` for σ(√m z)/√m, which is σ itself where σ is homogeneous and
            keeps the others' pre-activations from vanishing as m grows; `literal` for σ as printed.
        output_scale: `literal` for f as printed, `sqrt_width` for √m f, the scaling in which
            training is lazy.

    Raises:
        InputError: if a value is outside what its line says.
    """

    depth: int = option(6, "Layers of the residual networks that are listed.")
    width: int = option(64, "Features of each hidden layer.")
    activation: str = option(
        "relu", "Activation of the hidden layers.", choices=lambda: tuple(ACTIVATIONS)
    )
    activation_scaling: str = option(
        "width", "Whether activations are scaled by the width.", choices=lambda: SCALINGS
    )
    output_scale: str = option(
        "literal", "Whether outputs are multiplied by √width.", choices=lambda: OUTPUT_SCALES
    )

    def __post_init__(self) -> None:
        check_choices(self)
        for name, least in (("depth", 3), ("width", 1)):
            if getattr(self, name) < least:
                raise InputError(
                    f"expected {name} to be at least {least}, got {getattr(self, name)}; raise it"
                )

    @abstractmethod
    def hidden(
        self, weights: Weights, points: Array, skips: Array, activations: Sequence[str]
    ) -> list[tuple[Array, Array]]:
        """What each hidden layer's activation is given, and the layer's features f_1 … f_{L−1}."""

    @abstractmethod
    def sizes(self, layers: int) -> list[tuple[int, ...]]:
        """Shapes of the weights W_1 … W_L."""

    def parse(self, text: Any) -> Skips:
        """A network from its skip pattern, such as `0110` or `10:swish,relu,tanh`."""
        return text if isinstance(text, Skips) else Skips.parse(str(text).strip())

    def identity(self, architecture: Skips) -> dict[str, str | int]:
        """The skip pattern, with the activations of a network that names its own."""
        return {"skips": str(architecture)}

    def architectures(self, which: str) -> Sequence[Skips]:
        """Every skip pattern of networks of this depth, for `all` and `distinct` alike."""
        if which not in ("all", "distinct"):
            return super().architectures(which)
        return [Skips("".join(bits)) for bits in itertools.product("01", repeat=self.depth - 2)]

    def neighbours(self, architecture: Skips) -> Sequence[Skips]:
        """The networks with one skip more or less."""
        bits, own = architecture.pattern, architecture.activations
        flipped = {"0": "1", "1": "0"}
        return [Skips(bits[:i] + flipped[bit] + bits[i + 1 :], own) for i, bit in enumerate(bits)]

    def activations_of(self, architecture: Skips) -> tuple[str, ...]:
        """Names of σ_1 … σ_{L−1}."""
        return architecture.activations or (self.activation,) * (architecture.layers - 1)

    def shape(self, architecture: Skips) -> Hashable:
        """The activations: networks with equal ones have equal depths, and share a program."""
        return self.activations_of(architecture)

    def encode(self, architecture: Skips) -> np.ndarray:
        """The skip indicators α_1 … α_{L−2}, int32."""
        return architecture.indicators

    def model(self, shape: Hashable, variables: Weights, code: Any, images: Array) -> Model:
        """The network with these skips."""
        assert isinstance(shape, tuple)

        def apply(weights: Weights, points: Array) -> Array:
            *_, (_, f) = self.hidden(weights, points, code, shape)
            logits = jnp.matmul(f.reshape(len(f), -1), weights[-1], precision="highest")
            return logits * self.width**0.5 if self.output_scale == "sqrt_width" else logits

        return Model(apply, variables)

    def activate(self, name: str, z: Array) -> Array:
        """σ of pre-activations, scaled as the space says."""
        scale = self.width**0.5 if self.activation_scaling == "width" else 1.0
        sigma = ACTIVATIONS[name]
        return sigma(z) if sigma.homogeneous else sigma(scale * z) / scale

    def residual(
        self,
        points: Array,
        weights: Weights,
        skips: Array,
        activations: Sequence[str],
        product: Callable[[Array, Array], Array],
    ) -> list[tuple[Array, Array]]:
        """The hidden layers, each from the product of its weights with what came before."""
        z, layers = product(points, weights[0]), len(weights)
        passed = [(z, f := self.activate(activations[0], z))]
        for weight, skip, name in zip(weights[1:-1], skips, activations[1:], strict=True):
            z = product(f, weight)
            f = self.activate(name, z) / layers + skip.astype(f.dtype) * f
            passed.append((z, f))
        return passed


def on_the_sphere(points: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """Each point divided by its length; a black image has no direction, and stays zero."""
    squared = jnp.sum(points * points, tuple(range(1, points.ndim)), keepdims=True)
    # So that the gradient at zero is finite, not NaN.
    return points / jnp.sqrt(jnp.where(squared > 0, squared, 1))
