"""Residual convolutional networks as a `Space`: one axis of pixels, and no pooling."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from cells.residual.networks import ResidualSpace, Skips, Weights, on_the_sphere
from cells.space import option
from ntkscore.errors import InputError
from ntkscore.lazy import Array, jax, jnp

VARIANCES = ("1/m", "1/(κm)")


@dataclass(frozen=True, kw_only=True)
class ResidualConvolutional(ResidualSpace):
    """Residual convolutional networks of a width, with any pattern of skips.

    The last axis of a point is its channels, the others are flattened to one axis of p pixels, and
    the whole is divided by its Euclidean length. Convolutions have stride 1 and padding by zeros.
    Each pixel has output weights of its own.

    Attributes:
        depth, width, activation, activation_scaling, output_scale: as for `Residual`.
        filter_size: κ, pixels of a filter, an odd number.
        hidden_variance: of the weights W_2 … W_{L−1}: `1/m`, as the text has it, or `1/(κm)`, with
            which their spectral norms are at most 3 for every κ, as a lemma there asks. The others'
            is 1/m.

    Raises:
        InputError: if a value is outside what its line says.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", equation 2 and lemma 9.

    Example:
        >>> space = ResidualConvolutional(depth=5, width=32, filter_size=3)
        >>> space.costs(space.parse("010"))["params"]
        337184
    """

    name: ClassVar[str] = "residual_convolutional"

    filter_size: int = option(3, "Pixels of a filter, an odd number.")
    hidden_variance: str = option(
        "1/m", "Variance of the hidden weights.", choices=lambda: VARIANCES
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.filter_size < 1 or self.filter_size % 2 == 0:
            raise InputError(
                f"expected filter_size to be 1, 3, 5 or another odd number, got "
                f"{self.filter_size}; a filter has a pixel in its middle"
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

    def costs(self, architecture: Skips) -> dict[str, float]:
        """Trainable parameters; multiply-adds for one image; and the skips."""
        *filters, last = (int(np.prod(size)) for size in self.sizes(architecture.layers))
        return {
            "params": sum(filters) + last,
            "flops": sum(filters) * self.pixels + last,
            "shortcuts": architecture.pattern.count("1"),
        }

    def draw(self, shape: Hashable, seed: int, dtype: Any) -> Weights:
        """Weights W_1 … W_L, as `sizes` has them; drawn in float32 whatever the dtype."""
        assert isinstance(shape, tuple)
        sizes = self.sizes(len(shape) + 1)
        fan = self.width * (self.filter_size if self.hidden_variance == "1/(κm)" else 1)
        variances = [1 / self.width, *[1 / fan] * (len(sizes) - 2), 1 / self.width]
        keys = jax.random.split(jax.random.key(seed), len(sizes))
        return [
            (jax.random.normal(key, size, jnp.float32) * variance**0.5).astype(dtype)
            for key, size, variance in zip(keys, sizes, variances, strict=True)
        ]

    def hidden(
        self,
        weights: Weights,
        points: Float[Array, "n ... d"],
        skips: Int[Array, " l"],
        activations: Sequence[str],
    ) -> list[tuple[Float[Array, "n p m"], Float[Array, "n p m"]]]:
        """What each hidden layer's activation is given, and the layer's features F_1 … F_{L−1}.

        Args:
            weights: W_1 … W_L.
            points: with channels last.
            skips: α_1 … α_{L−2}.
            activations: names of σ_1 … σ_{L−1}.
        """
        x = on_the_sphere(points.reshape(len(points), -1, points.shape[-1]))
        return self.residual(x, weights, skips, activations, convolve)


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
