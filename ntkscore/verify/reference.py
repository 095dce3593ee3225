"""What a network's float64 reference values are: images, attacked ones, and kernels by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attacks.lazy import Array, jnp
from ntkscore.model import Model

KERNELS: dict[str, tuple[str, str]] = {
    "ntk_sum_weights": ("sum", "weights"),
    "ntk_sum_conv_linear_weights": ("sum", "conv_linear"),
    "ntk_trace_all": ("trace", "all"),
    "ntk_label_all": ("label", "all"),
    "ntk_loss_all": ("loss", "all"),
}
"""Output and parameters of each kernel at the clean images."""
ARRAYS = ("images", "labels", "input_grad", "fgsm_8", "fgsm_8_twice", "pgd7_8", "ntk_sum_all_stack")
"""Arrays of every reference, beside its `KERNELS`."""


@dataclass(frozen=True)
class Reference:
    """Independent results in float64 by name, with images in grey levels, and their network.

    Attributes:
        dtype: to compare in.
        model: the network in a normalisation mode, `calibrated` if none is named, with statistics
            of the clean images.
    """

    arrays: Mapping[str, np.ndarray]
    dtype: Any
    model: Callable[..., Model]

    @property
    def images(self) -> Array:
        """Clean images X, pixels in [0, 1]."""
        return jnp.asarray(self.arrays["images"] / 255.0, self.dtype)

    @property
    def labels(self) -> Array:
        """Classes of the clean images."""
        return jnp.asarray(self.arrays["labels"], jnp.int32)

    def points(self, name: str) -> Array:
        """The clean images (`images`), or attacked ones by their name."""
        return self.images if name == "images" else jnp.asarray(self.arrays[name], self.dtype)

    @property
    def stack(self) -> Array:
        """Stacked points (X, X_ρ, X_2ρ), for FGSM at 8/255."""
        return jnp.concatenate([self.points(name) for name in ("images", "fgsm_8", "fgsm_8_twice")])
