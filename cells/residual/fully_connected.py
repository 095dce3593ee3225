"""Residual fully connected networks as a `Space`: skip patterns as data."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from cells.residual.networks import ResidualSpace, Skips, Weights, on_the_sphere
from ntkscore.lazy import Array, jax, jnp


@dataclass(frozen=True, kw_only=True)
class Residual(ResidualSpace):
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
        InputError: if a value is outside what its line says.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", equation 1.

    Example:
        >>> space = Residual(depth=5, width=32)
        >>> [skips.pattern for skips in space.architectures("all")][:3]
        ['000', '001', '010']
        >>> space.costs(space.parse("010"))["params"]
        101696
    """

    name: ClassVar[str] = "residual"

    def sizes(self, layers: int) -> list[tuple[int, ...]]:
        """Shapes of W_1 … W_L, each (in, out)."""
        inputs, m = int(np.prod(self.task.image_shape)), self.width
        return [(inputs, m), *[(m, m)] * (layers - 2), (m, self.task.num_classes)]

    def costs(self, architecture: Skips) -> dict[str, float]:
        """Trainable parameters; multiply-adds for one image, which are as many; and the skips."""
        params = sum(np.prod(size) for size in self.sizes(architecture.layers))
        skips = architecture.pattern.count("1")
        return {"params": int(params), "flops": int(params), "shortcuts": skips}

    def draw(self, shape: Hashable, seed: int, dtype: Any) -> Weights:
        """Weights W_1 … W_L, each (in, out); drawn in float32 whatever the dtype."""
        assert isinstance(shape, tuple)
        sizes = self.sizes(len(shape) + 1)
        keys = jax.random.split(jax.random.key(seed), len(sizes))
        return [
            (jax.random.normal(key, size, jnp.float32) / self.width**0.5).astype(dtype)
            for key, size in zip(keys, sizes, strict=True)
        ]

    def hidden(
        self,
        weights: Weights,
        points: Float[Array, "n ..."],
        skips: Int[Array, " l"],
        activations: Sequence[str],
    ) -> list[tuple[Float[Array, "n m"], Float[Array, "n m"]]]:
        """What each hidden layer's activation is given, and the layer's features f_1 … f_{L−1}.

        Args:
            weights: W_1 … W_L, each (in, out).
            points: of any shape.
            skips: α_1 … α_{L−2}.
            activations: names of σ_1 … σ_{L−1}.
        """
        x = on_the_sphere(points.reshape(len(points), -1))
        product = partial(jnp.matmul, precision="highest")
        return self.residual(x, weights, skips, activations, product)
