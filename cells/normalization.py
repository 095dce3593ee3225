"""Modes of batch normalisation, by name: where its statistics come from."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float

from attacks.lazy import Array, jnp
from ntkscore.grams import Images


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
    live: Callable[[Images], tuple[Array, Array]] | None = None
    coupled: bool = False


def measure_each(z: Images) -> tuple[Float[Array, "m 1 1 c"], Float[Array, "m 1 1 c"]]:
    """Mean and biased variance of each channel over the pixels of each image."""
    mean = jnp.mean(z, (1, 2), keepdims=True)
    return mean, jnp.mean(jnp.square(z - mean), (1, 2), keepdims=True)


def measure(z: Images) -> tuple[Float[Array, " c"], Float[Array, " c"]]:
    """Mean and biased variance of each channel over the images and pixels.

    Each mean is computed twice, the second time of the deviations from the first. An error in a
    statistic moves all activations of its channel, and may change the sign of those near zero.
    """

    def mean(a: Images) -> Float[Array, " c"]:
        # Means of means: a float32 sum over 50 images in one go loses two digits on a CPU.
        return jnp.mean(jnp.mean(jnp.mean(a, 2), 1), 0)

    def corrected(a: Images) -> Float[Array, " c"]:
        first = mean(a)
        return first + mean(a - first)

    centre = corrected(z)
    return centre, corrected(jnp.square(z - centre))


NORMALIZATIONS = {
    "calibrated": Normalization("statistics of the clean scoring images", calibrates=True),
    "instance": Normalization("each image's own, as in a batch of one", live=measure_each),
    "init": Normalization("mean 0 and variance 1"),
    "batch": Normalization("whatever batch is fed", live=measure, coupled=True),
}
