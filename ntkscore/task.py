"""The images that networks take, and their classes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ntkscore.errors import InputError


class _Task(NamedTuple):
    image_shape: tuple[int, ...]
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Task(_Task):
    """Shape and normaliser of a network's images, and its number of classes.

    Attributes:
        image_shape: (height, width, colours) in pixels.
        num_classes: number of logits, O.
        mean, std: the normaliser by colour, in pixels of [0, 1]; it is the network's first layer.

    Raises:
        InputError: if mean or std is not on the scale of pixels in [0, 1], or std is zero.

    Example:
        >>> Task((16, 16, 3), num_classes=120).mean
        (0.0, 0.0, 0.0)
    """

    __slots__ = ()

    def __new__(
        cls,
        image_shape: tuple[int, ...] = (32, 32, 3),
        num_classes: int = 10,
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        std: Sequence[float] = (1.0, 1.0, 1.0),
    ) -> "Task":
        mean, std = _by_colour("mean", mean), _by_colour("std", std)
        if len(mean) != len(std):
            raise InputError(
                "a mean and a std for each colour", f"{len(mean)} and {len(std)}", "give as many"
            )
        return super().__new__(cls, tuple(image_shape), num_classes, mean, std)


def _by_colour(name: str, values: Any) -> tuple[float, ...]:
    """Mean or std of a normaliser, one number for each colour, on the scale of pixels in [0, 1]."""
    try:
        numbers = tuple(map(float, np.asarray(values).tolist()))
    except (TypeError, ValueError):
        raise InputError(
            f"{name} with one number for each colour", repr(values), "write (0.5, 0.5, 0.5), say"
        ) from None
    least = "above 0" if name == "std" else "from 0"
    if not numbers or not all(0 <= x <= 1 and (name == "mean" or x > 0) for x in numbers):
        raise InputError(
            f"{name} in pixels, {least} to 1",
            f"{', '.join(f'{x:g}' for x in numbers)}",
            "divide what is in grey levels by 255",
        )
    return numbers


def check_labels(labels: np.ndarray, count: int, classes: int) -> None:
    """Refuse labels that are not `count` whole numbers from 0 to `classes` − 1."""
    if labels.shape != (count,) or labels.dtype.kind not in "iu":
        raise InputError(
            f"{count} labels, whole numbers",
            f"{labels.dtype} of shape {labels.shape}",
            "give one class per image",
        )
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(
            f"{count} labels from 0 to {classes - 1}",
            f"{labels.min()} to {labels.max()}",
            "correct them, or give the network an output for each class",
        )


def check_classes(classes: int) -> None:
    """Refuse a network of one class."""
    if classes < 2:
        raise InputError(
            "logits of at least two classes, since attacks raise the cross-entropy",
            classes,
            "give the network an output for each class",
        )
