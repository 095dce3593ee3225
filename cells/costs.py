"""Parameters and multiply-adds of a network, from a list of its convolutions."""

from collections.abc import Iterable
from typing import NamedTuple

IMAGE_CHANNELS = 3
"""Colours of the images that networks of cells take."""


class ConvGroup(NamedTuple):
    """Convolutions of one output size; or, last in a network, the linear layer for one class.

    Attributes:
        halvings: how often the image was halved before their output.
        weights: number of their weights, each of which multiplies once for every output pixel.
        normalised: channels with a scale and a shift, beside these convolutions.
        layers: their number.
    """

    halvings: int
    weights: int
    normalised: int = 0
    layers: int = 1


def costs_of(
    groups: Iterable[ConvGroup], num_classes: int, image_shape: tuple[int, ...]
) -> dict[str, float]:
    """Trainable parameters, and multiply-adds for one image, of the convolutions and linear layer.

    Args:
        groups: all convolutions, and at last the linear layer.
        num_classes: O, size of the linear layer.
        image_shape: (height, width, colours), the sides multiples of 4.
    """
    *convolutions, linear = groups
    height, width, _ = image_shape
    pixels = [(height >> halvings) * (width >> halvings) for halvings in range(3)]
    weights = sum(each.weights for each in convolutions)
    normalised = sum(each.normalised for each in (*convolutions, linear))
    return {
        "params": weights + 2 * normalised + (linear.weights + 1) * num_classes,
        "flops": sum(pixels[each.halvings] * each.weights for each in convolutions)
        + linear.weights * num_classes,
    }
