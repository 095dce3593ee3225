"""A network's convolutions, brought into the form that CPUs compute fast.

PyTorch's modules have the channels before the sides, and JAX's rule for the gradient swaps a
kernel's channels. Both are slow in a loop (`ntkscore.convolutions`), and attacks and search spaces
are loops.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ntkscore import convolutions
from ntkscore.convolutions import Window
from ntkscore.platforms import platform


@dataclass(frozen=True)
class Convolution:
    """A convolution of a network, as a function of images and kernel.

    Attributes:
        bind: the operation as it stands in the network.
        image, kernel, output: axes of its arrays in the order of `ntkscore.convolutions`.
        window: how the kernel moves.
        precision: of the products.
    """

    bind: Callable[..., list[Array]]
    image: Sequence[int]
    kernel: Sequence[int]
    output: Sequence[int]
    window: Window
    precision: Any

    @classmethod
    def of(
        cls, bind: Callable[..., list[Array]], name: str, options: Mapping[str, Any], dtypes: set
    ) -> "Convolution | None":
        """An operation, if it is a convolution that is computed in one dtype.

        Args:
            bind, name, options: the operation, its name and how it is set.
            dtypes: of what it takes and returns.
        """
        if name != "conv_general_dilated" or options["batch_group_count"] > 1 or len(dtypes) > 1:
            return None
        image, kernel, output = options["dimension_numbers"]
        names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count")
        return cls(
            bind,
            (image[0], *image[2:], image[1]),
            (*kernel[2:], kernel[1], kernel[0]),
            (output[0], *output[2:], output[1]),
            Window(*(options[name] for name in names)),
            options["precision"],
        )

    def __call__(self, x: Array, kernel: Array) -> list[Array]:
        """The output, computed in the fast form on a CPU."""
        if platform() != "cpu":
            return self.bind(x, kernel)
        x, kernel = x.transpose(self.image), kernel.transpose(self.kernel)
        y = convolutions.convolve(x, kernel, self.window, self.precision)
        return [y.transpose(np.argsort(self.output))]

    def with_gradient(self, shape: Sequence[int]) -> Callable[..., list[Array]]:
        """The same, with the gradient in the images in the fast form; the kernel is a constant.

        Args:
            shape: of the images.
        """
        sides = [shape[axis] for axis in self.image[1:-1]]

        @jax.custom_vjp
        def convolve(x: Array, kernel: Array) -> Array:
            return self(x, kernel)[0]

        def back(kernel: Array, g: Array) -> tuple[Array, None]:
            g, kernel = g.transpose(self.output), kernel.transpose(self.kernel)
            dx = convolutions.pull(g, kernel, self.window, sides, self.precision)
            return dx.transpose(np.argsort(self.image)), None

        convolve.defvjp(lambda x, kernel: (convolve(x, kernel), kernel), back)
        return lambda *both: [convolve(*both)] if platform() == "cpu" else self.bind(*both)
