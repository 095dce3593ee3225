"""Modes of batch normalisation, by name: where its statistics come from."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float

from ntkscore.grams import Images
from ntkscore.lazy import Array

Statistic = Float[Array, "*m c"]


@dataclass(frozen=True)
class Normalization:
    """A mode of batch normalisation at scoring time.

    Attributes:
        calibrates: whether the stored mean and variance are measured, layer by layer, in a forward
            pass over the clean scoring images, and then frozen; else they are 0 and 1.
        live: a function of the images at hand that returns the mean and variance to use instead of
            stored ones, and is differentiated through; or None.
        coupled: whether `live` makes an image's logits depend on the other images.
        note: a half-sentence for the command line's help.
    """

    note: str
    calibrates: bool = False
    live: Callable[[Images], tuple[Statistic, Statistic]] | None = None
    coupled: bool = False


def measure(z: Images) -> tuple[Statistic, Statistic]:
    """Mean and variance of each channel over all the images."""
    from cells import layers  # which imports JAX

    return layers.measure(z)


def measure_each(z: Images) -> tuple[Statistic, Statistic]:
    """Mean and biased variance of each channel over the pixels of each image."""
    from cells import layers  # which imports JAX

    return layers.measure_each(z)


NORMALIZATIONS = {
    "calibrated": Normalization("statistics of the clean scoring images", calibrates=True),
    "instance": Normalization("each image's own, as in a batch of one", live=measure_each),
    "init": Normalization("mean 0 and variance 1"),
    "batch": Normalization("whatever batch is fed", live=measure, coupled=True),
}
