"""A network's convolutions, brought into the form that CPUs compute fast.

PyTorch's modules have the channels before the sides, and JAX's rule for the gradient swaps a
kernel's channels. Both are slow in a loop (`ntkscore.convolutions`), and attacks and search spaces
are loops.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from ntkscore import convolutions
from ntkscore.convolutions import Window
from ntkscore.platforms import platform


class Layout(NamedTuple):
    """How a convolution's arrays are laid out, and how its kernel moves.

    Attributes:
        image, kernel, output: axes in the order of `ntkscore.convolutions`.
        window: how the kernel moves.
    """

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    output: tuple[int, ...]
    window: Window

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Layout":
        """That of an equation's options."""
        image, kernel, output = options["dimension_numbers"]
        return cls(
            (image[0], *image[2:], image[1]),
            (*kernel[2:], kernel[1], kernel[0]),
            (output[0], *output[2:], output[1]),
            Window(
                tuple(options["window_strides"]),
                tuple(map(tuple, options["padding"])),
                tuple(options["lhs_dilation"]),
                tuple(options["rhs_dilation"]),
                options["feature_group_count"],
            ),
        )


@dataclass(frozen=True)
class FastConvolution:
    """A convolution of a network, as a function of images and kernel.

    Attributes:
        bind: the operation as it stands in the network.
        layout: of its arrays.
        precision: of the products.
    """

    bind: Callable[..., list[Array]]
    layout: Layout
    precision: Any

    def __call__(self, x: Array, kernel: Array) -> list[Array]:
        """The output, computed in the fast form on a CPU."""
        if platform() != "cpu":
            return self.bind(x, kernel)
        axes = self.layout
        x, kernel = x.transpose(axes.image), kernel.transpose(axes.kernel)
        y = convolutions.convolve(x, kernel, axes.window, self.precision)
        return [y.transpose(np.argsort(axes.output))]

    def with_gradient(self, shape: Sequence[int]) -> Callable[..., list[Array]]:
        """The same, with the gradient in the images in the fast form; the kernel is a constant.

        Args:
            shape: of the images.
        """
        axes = self.layout
        sides = [shape[axis] for axis in axes.image[1:-1]]

        @jax.custom_vjp
        def convolve(x: Array, kernel: Array) -> Array:
            return self(x, kernel)[0]

        def back(kernel: Array, g: Array) -> tuple[Array, None]:
            g, kernel = g.transpose(axes.output), kernel.transpose(axes.kernel)
            dx = convolutions.pull(g, kernel, axes.window, sides, self.precision)
            return dx.transpose(np.argsort(axes.image)), None

        convolve.defvjp(lambda x, kernel: (convolve(x, kernel), kernel), back)
        return lambda *both: [convolve(*both)] if platform() == "cpu" else self.bind(*both)


def is_plain(name: str, options: Mapping[str, Any]) -> bool:
    """Tell whether an operation is a convolution of each image by itself."""
    return name == "conv_general_dilated" and options["batch_group_count"] == 1
