"""The residual networks of the theory, fully connected and convolutional, as search spaces.

With m features a layer, L layers and skips α_1 … α_{L−2} ∈ {0, 1}, a point x of length 1 gives

    f_1 = σ_1(W_1 x),   f_l = σ_l(W_l f_{l−1}) / L + α_{l−1} f_{l−1}  (1 < l < L),   f = W_L f_{L−1}

There are no biases, and every layer is trained. The paper has one output; here each class has one,
with its own output weights.

Source: Wu et al. (2024), "Robust NAS under adversarial training", equations 1 and 2.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from attacks.lazy import Array, jax, jnp
from cells.residual.activations import ACTIVATIONS
from ntkscore.errors import InputError, check_choice
from ntkscore.model import Model
from ntkscore.options import check_choices, check_least, option
from ntkscore.space import Space

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
                "a skip pattern of zeros and ones such as 0110",
                repr(self.pattern),
                "write one digit for each layer between the first and the last",
            )
        for name in self.activations:
            check_choice(name, ACTIVATIONS, "each activation")
        if self.activations and len(self.activations) != self.layers - 1:
            raise InputError(
                f"{self.layers - 1} activations, one for each layer but the last",
                f"{len(self.activations)} in {self}",
                "name as many, or none",
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


@dataclass(frozen=True, kw_only=True)
class Residual(Space):
    """Residual fully connected networks of a width, with any pattern of skips.

    A point is flattened and divided by its length. All entries of all weights are N(0, 1/m).

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
        InputError: if a value is not one that its description allows.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", equation 1.

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
    activation_scaling: str = option(
        "width",
        "Whether activations are scaled by the width.",
        choices=lambda: ("width", "literal"),
    )
    output_scale: str = option(
        "literal",
        "Whether outputs are multiplied by √width.",
        choices=lambda: ("literal", "sqrt_width"),
    )

    def __post_init__(self) -> None:
        check_choices(self)
        check_least(self, depth=3, width=1)

    def sizes(self, layers: int) -> list[tuple[int, ...]]:
        """Shapes of W_1 … W_L, each (in, out)."""
        inputs, m = int(np.prod(self.task.image_shape)), self.width
        return [(inputs, m), *[(m, m)] * (layers - 2), (m, self.task.num_classes)]

    def scaled(self, weights: Weights) -> Weights:
        """Weights of variance 1/m."""
        return [weight / self.width**0.5 for weight in weights]

    def flattened(self, points: Float[Array, "n ..."]) -> Float[Array, "n d"]:
        """Points as vectors."""
        return points.reshape(len(points), -1)

    def product(self, x: Float[Array, "n d"], weight: Float[Array, "d m"]) -> Float[Array, "n m"]:
        """x · W."""
        return jnp.matmul(x, weight, precision="highest")

    @property
    def pixels(self) -> int:
        """Number of positions at which a hidden layer's weights are applied."""
        return 1

    def parse(self, text: object) -> Skips:
        """A network from its skip pattern, such as `0110` or `10:swish,relu,tanh`."""
        read = text if isinstance(text, Skips) else Skips.parse(str(text).strip())
        return self.canonical(read)

    def written(self, names: Sequence[Any], heading: str = "") -> list[Any]:
        """The names in a column; refuses numbers in which patterns have lost leading zeros."""
        texts = super().written(names, heading)
        pairs = zip(texts, names, strict=True)
        numbers = [t for t, n in pairs if isinstance(n, Real) and re.fullmatch("[01]+", t)]
        short = [text for text in numbers if len(text) < self.depth - 2]
        if short and any(len(text) == self.depth - 2 for text in numbers):
            raise InputError(
                "skip patterns as texts",
                f"numbers, of which {short[0]} may be {short[0].zfill(self.depth - 2)} "
                "without its leading zeros",
                "write all of them with their zeros",
            )
        return texts

    def canonical(self, architecture: Skips) -> Skips:
        """The same network; it names no activations where all are the space's own."""
        own = (self.activation,) * (architecture.layers - 1)
        return Skips(architecture.pattern) if architecture.activations == own else architecture

    def identity(self, architecture: Skips) -> dict[str, str | int]:
        """The skip pattern, with the activations of a network that names its own."""
        return {"skips": str(architecture)}

    def costs(self, architecture: Skips) -> dict[str, float]:
        """Trainable parameters; multiply-adds for one image; and the number of skips."""
        *hidden, last = (int(np.prod(size)) for size in self.sizes(architecture.layers))
        return {
            "params": sum(hidden) + last,
            "flops": sum(hidden) * self.pixels + last,
            "shortcuts": architecture.pattern.count("1"),
        }

    def architectures(self, which: str) -> Sequence[Skips]:
        """Every skip pattern of networks of this depth, for `all` and `distinct` alike."""
        if which not in ("all", "distinct"):
            return super().architectures(which)
        return [Skips("".join(bits)) for bits in itertools.product("01", repeat=self.depth - 2)]

    def neighbours(self, architecture: Skips) -> Sequence[Skips]:
        """The networks with one skip more or less."""
        bits, names = architecture.pattern, architecture.activations
        flipped = [f"{bits[:i]}{1 - int(bit)}{bits[i + 1 :]}" for i, bit in enumerate(bits)]
        return [Skips(pattern, names) for pattern in flipped]

    def activations_of(self, architecture: Skips) -> tuple[str, ...]:
        """Names of σ_1 … σ_{L−1}."""
        return architecture.activations or (self.activation,) * (architecture.layers - 1)

    def shape(self, architecture: Skips) -> tuple[str, ...]:
        """The activations: networks with equal ones have equal depths, and share a program."""
        return self.activations_of(architecture)

    def encode(self, architecture: Skips) -> np.ndarray:
        """The skip indicators α_1 … α_{L−2}, int32."""
        return np.array([int(bit) for bit in architecture.pattern], np.int32)

    def draw(self, shape: tuple[str, ...], seed: int, dtype: Any) -> Weights:
        """Weights W_1 … W_L, as `sizes` has them; drawn in float32 whatever the dtype."""
        sizes = self.sizes(len(shape) + 1)
        keys = jax.random.split(jax.random.key(seed), len(sizes))
        pairs = zip(keys, sizes, strict=True)
        drawn = [jax.random.normal(key, size, jnp.float32) for key, size in pairs]
        return [weight.astype(dtype) for weight in self.scaled(drawn)]

    def model(
        self, shape: tuple[str, ...], variables: Weights, code: Array, images: Array
    ) -> Model:
        """The network with these skips."""

        def apply(weights: Weights, points: Array) -> Array:
            *_, (_, f) = self.hidden(weights, points, code, shape)
            logits = jnp.matmul(f.reshape(len(f), -1), weights[-1], precision="highest")
            return logits * self.width**0.5 if self.output_scale == "sqrt_width" else logits

        return Model(apply, variables)

    def hidden(
        self,
        weights: Weights,
        points: Float[Array, "n ..."],
        skips: Int[Array, " l"] | np.ndarray,
        activations: Sequence[str],
    ) -> list[tuple[Float[Array, "n ... m"], Float[Array, "n ... m"]]]:
        """Pre-activations and features f_1 … f_{L−1} of the hidden layers.

        Args:
            weights: W_1 … W_L.
            points: of any shape; a convolutional network takes channels last.
            skips: α_1 … α_{L−2}.
            activations: names of σ_1 … σ_{L−1}.
        """
        z = self.product(on_the_sphere(self.flattened(points)), weights[0])
        layers = [(z, f := self.activate(activations[0], z))]
        for weight, skip, name in zip(weights[1:-1], skips, activations[1:], strict=True):
            z = self.product(f, weight)
            f = self.activate(name, z) / len(weights) + skip.astype(f.dtype) * f
            layers.append((z, f))
        return layers

    def activate(self, name: str, z: Array) -> Array:
        """σ of pre-activations, scaled as the space says."""
        scale = self.width**0.5 if self.activation_scaling == "width" else 1.0
        sigma = ACTIVATIONS[name]
        return sigma(z) if sigma.homogeneous else sigma(scale * z) / scale


@dataclass(frozen=True, kw_only=True)
class ResidualConvolutional(Residual):
    """Residual convolutional networks of a width, with any pattern of skips.

    The last axis of a point is its channels, the others are flattened to one axis of p pixels, and
    the whole is divided by its Euclidean length. Convolutions have stride 1 and padding by zeros.
    Each pixel has output weights of its own.

    Attributes:
        filter_size: κ, pixels of a filter, an odd number.
        hidden_variance: of the weights W_2 … W_{L−1}: `1/m`, as the text has it, or `1/(κm)`, with
            which their spectral norms are at most 3 for every κ, as a lemma there asks. The others'
            is 1/m.

    Raises:
        InputError: if a value is not one that its description allows.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", equation 2 and lemma 9.

    Example:
        >>> space = ResidualConvolutional(depth=5, width=32, filter_size=3)
        >>> space.costs(space.parse("010"))["params"]
        337184
    """

    name: ClassVar[str] = "residual_convolutional"

    filter_size: int = option(3, "Pixels of a filter, an odd number.")
    hidden_variance: str = option(
        "1/m", "Variance of the hidden weights.", choices=lambda: ("1/m", "1/(κm)")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.filter_size < 1 or self.filter_size % 2 == 0:
            raise InputError(
                "filter_size to be 1, 3, 5 or another odd number",
                self.filter_size,
                "a filter has a pixel in its middle",
            )

    @property
    def pixels(self) -> int:
        """p, the product of all axes of a point but the last."""
        return int(np.prod(self.task.image_shape[:-1]))

    def sizes(self, layers: int) -> list[tuple[int, ...]]:
        """Shapes of W_1 … W_{L−1}, each (κ, in, out), and of W_L, (p · m, out)."""
        channels, m, size = self.task.image_shape[-1], self.width, self.filter_size
        hidden = [(size, m, m)] * (layers - 2)
        return [(size, channels, m), *hidden, (self.pixels * m, self.task.num_classes)]

    def scaled(self, weights: Weights) -> Weights:
        """Weights of variance 1/m, hidden ones of `hidden_variance`."""
        fan = self.width * (self.filter_size if self.hidden_variance == "1/(κm)" else 1)
        first, *hidden, last = weights
        outer = (1 / self.width) ** 0.5
        return [first * outer, *(weight * (1 / fan) ** 0.5 for weight in hidden), last * outer]

    def flattened(self, points: Float[Array, "n ... c"]) -> Float[Array, "n p c"]:
        """Points with one axis of pixels."""
        return points.reshape(len(points), -1, points.shape[-1])

    def product(self, x: Float[Array, "n p c"], weight: Float[Array, "k c m"]) -> Array:
        """The convolution of x by W along the pixels."""
        return convolve(x, weight)


def convolve(x: Float[Array, "n p c"], kernel: Float[Array, "k c m"]) -> Float[Array, "n p m"]:
    """Convolution along the pixels, of stride 1, padded by zeros to as many pixels.

    Example:
        >>> convolve(jnp.ones((1, 4, 1)), jnp.ones((3, 1, 1)))[0, :, 0]
        Array([2., 3., 3., 2.], dtype=float32)
    """
    (size, pixels), beyond = (len(kernel), x.shape[1]), len(kernel) // 2
    padded = jnp.pad(x, ((0, 0), (beyond, beyond), (0, 0)))
    # As products, whose gradients are products: XLA's convolutions of one axis are slow on CPUs.
    shifted = (padded[:, u : u + pixels] for u in range(size))
    products = (jnp.matmul(z, w, precision="highest") for z, w in zip(shifted, kernel, strict=True))
    return sum(products, jnp.zeros((), x.dtype))


def on_the_sphere(points: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """Each point divided by its Euclidean length; zero stays zero."""
    squared = jnp.sum(points * points, tuple(range(1, points.ndim)), keepdims=True)
    # So that the gradient at zero is finite, not NaN.
    return points / jnp.sqrt(jnp.where(squared > 0, squared, 1))
