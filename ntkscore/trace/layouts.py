"""A network's convolutions, brought into the form that CPUs compute fast.

PyTorch's modules have the channels before the sides, and JAX's rule for the gradient swaps a
kernel's channels. Both are slow in a loop (`ntkscore.convolutions`), and attacks and search spaces
are loops.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array

from ntkscore import convolutions
from ntkscore.convolutions import Window
from ntkscore.platforms import platform

ONE_DTYPE = ({np.dtype("float32")}, {np.dtype("float64")})
"""Those of all arrays of a convolution that has a fast form."""


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

    def _fast(self, x: Array, kernel: Array) -> Array:
        axes = self.layout
        x, kernel = x.transpose(axes.image), kernel.transpose(axes.kernel)
        few = convolutions.has_few_channels(kernel.shape, axes.window)
        convolve = convolutions.product_of_patches if few else convolutions.convolve
        y = convolve(x, kernel, axes.window, self.precision)
        return y.transpose(np.argsort(axes.output))

    def __call__(self, x: Array, kernel: Array) -> list[Array]:
        """The output, computed in the fast form on a CPU."""
        return [self._fast(x, kernel)] if platform() == "cpu" else self.bind(x, kernel)

    def with_gradient(self, shape: Sequence[int]) -> Callable[..., list[Array]]:
        """The convolution whose gradient in images of this shape is in the fast form too."""
        axes = self.layout
        sides = [shape[axis] for axis in axes.image[1:-1]]
        convolve = jax.custom_vjp(self._fast)

        def onward(x: Any, kernel: Any) -> tuple[Array, tuple[Array, Array | None]]:
            # The images are kept for the kernel's gradient alone, where it is asked for.
            images = x.value if kernel.perturbed else None
            return self._fast(x.value, kernel.value), (kernel.value, images)

        def back(residuals: tuple[Array, Array | None], g: Any) -> tuple[Any, Any]:
            kernel, x = residuals
            if isinstance(g, SymbolicZero):
                return None, None
            turned, weights = g.transpose(axes.output), kernel.transpose(axes.kernel)
            small = convolutions.has_small_products(weights.shape, axes.window)
            pull = convolutions.sum_of_products if small else convolutions.pull
            dx = pull(turned, weights, axes.window, sides, self.precision)
            dx = dx.transpose(np.argsort(axes.image))
            return dx, None if x is None else jax.vjp(partial(self._fast, x), kernel)[1](g)[0]

        convolve.defvjp(onward, back, symbolic_zeros=True)
        return lambda *both: [convolve(*both)] if platform() == "cpu" else self.bind(*both)


def fast_form(
    bind: Callable[..., list[Array]], name: str, options: Mapping[str, Any], dtypes: Set[Any]
) -> Callable[..., list[Array]]:
    """An operation on arrays of these dtypes in its fast form; as it is where there is none."""
    if is_plain(name, options) and dtypes in ONE_DTYPE:
        return FastConvolution(bind, Layout.of(options), options["precision"])
    return bind


def is_plain(name: str, options: Mapping[str, Any]) -> bool:
    """Tell whether an operation is a convolution of each image by itself."""
    return name == "conv_general_dilated" and options["batch_group_count"] == 1


def fast_gradients(program: Any) -> dict[int, Callable[..., list[Array]]]:
    """Convolutions of the points whose gradients CPUs compute fast, by place."""
    return {
        place: each.function.with_gradient(each.points[0].shape)
        for place, each in program.point_equations.items()
        if isinstance(each.function, FastConvolution) and each.points == [each.inputs[0]]
    }
