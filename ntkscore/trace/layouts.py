"""A network's convolutions, brought into the form that CPUs compute fast.

PyTorch's modules have the channels before the sides, and JAX's rule for the gradient swaps a
kernel's channels. Both are slow in a loop (`ntkscore.convolutions`), and attacks and search spaces
are loops.
"""

from collections.abc import Callable, Mapping, Sequence, Set
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


def is_plain(name: str, options: Mapping[str, Any]) -> bool:
    """Tell whether an operation is a convolution of each image by itself."""
    return name == "conv_general_dilated" and options["batch_group_count"] == 1


def fast_form(
    bind: Callable[..., list[Array]], name: str, options: Mapping[str, Any], dtypes: Set[Any]
) -> Callable[..., list[Array]]:
    """An operation on arrays of these dtypes in its fast form; as it is where there is none."""
    if not is_plain(name, options) or dtypes not in ONE_DTYPE:
        return bind
    convolve = _fast_convolution(options)
    return lambda *both: [convolve(*both)] if platform() == "cpu" else bind(*both)


def _fast_convolution(options: Mapping[str, Any]) -> Callable[[Array, Array], Array]:
    """The convolution of an equation's options, as a function of images and kernel."""
    axes, precision = Layout.of(options), options["precision"]

    def convolve(x: Array, kernel: Array) -> Array:
        x, kernel = x.transpose(axes.image), kernel.transpose(axes.kernel)
        few = convolutions.has_few_channels(kernel.shape, axes.window)
        compute = convolutions.product_of_patches if few else convolutions.convolve
        return compute(x, kernel, axes.window, precision).transpose(np.argsort(axes.output))

    return convolve


def fast_gradients(program: Any) -> dict[int, Callable[..., list[Array]]]:
    """Convolutions of the points whose gradients CPUs compute fast, by place."""
    return {
        place: _with_fast_gradient(each.function, each.options, each.points[0].shape)
        for place, each in program.point_equations.items()
        if is_plain(each.name, each.options)
        and each.points == [each.inputs[0]]
        and {each.points[0].dtype, each.outputs[0].dtype} in ONE_DTYPE
    }


def _with_fast_gradient(
    function: Callable[..., list[Array]], options: Mapping[str, Any], shape: Sequence[int]
) -> Callable[..., list[Array]]:
    """A convolution whose gradient in images of this shape is in the fast form too."""
    axes, precision = Layout.of(options), options["precision"]
    sides, forward = [shape[axis] for axis in axes.image[1:-1]], _fast_convolution(options)
    convolve = jax.custom_vjp(forward)

    def onward(x: Any, kernel: Any) -> tuple[Array, tuple[Array, Array | None]]:
        # The images are kept for the kernel's gradient alone, where it is asked for.
        images = x.value if kernel.perturbed else None
        return forward(x.value, kernel.value), (kernel.value, images)

    def back(residuals: tuple[Array, Array | None], g: Any) -> tuple[Any, Any]:
        kernel, x = residuals
        if isinstance(g, SymbolicZero):
            return None, None
        turned, weights = g.transpose(axes.output), kernel.transpose(axes.kernel)
        small = convolutions.has_small_products(weights.shape, axes.window)
        pull = convolutions.sum_of_products if small else convolutions.pull
        dx = pull(turned, weights, axes.window, sides, precision).transpose(np.argsort(axes.image))
        return dx, None if x is None else jax.vjp(partial(forward, x), kernel)[1](g)[0]

    convolve.defvjp(onward, back, symbolic_zeros=True)
    return lambda *both: [convolve(*both)] if platform() == "cpu" else function(*both)
