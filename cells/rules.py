"""Computations of layers, by initialiser and normalisation mode."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from cells import layers
from cells.backward import Layer, Tape
from cells.initializers import gain
from cells.layers import AnyNorm, InstanceNorm, Norm
from cells.normalization import NORMALIZATIONS, measure, measure_each
from ntkscore.convolutions import Window
from ntkscore.grams import PRECISION, Images

Outputs = Float[Array, "m h2 w2 d"]
"""Outputs of a convolution, which may change the images' size."""
Weights = Mapping[str, Any]
Statistics = Mapping[str, Array]
"""The stored `mean` and `var` of a normalisation."""
MOMENTUM = 0.1
"""Weight of a batch's statistics in the running ones after it, PyTorch's default."""


@dataclass(frozen=True)
class Rules:
    """Computations of a network's layers, by initialiser and normalisation mode.

    Attributes:
        init_name: a name in `INITIALIZERS`.
        bn: where the normalisation's statistics come from, a name in `NORMALIZATIONS`.
        measure: whether every normalisation's statistics are measured on the images at hand.
        training: whether normalisations are those of training, whatever `bn` says. Where `measure`
            is true, the batch's mean and biased variance normalise, and gradients pass through
            them; the running mean and variance move a tenth of the way towards the batch's mean and
            unbiased variance. Else the running ones normalise.
        with_residuals: whether a backward pass of ours follows; else JAX may differentiate, for
            which nothing is gathered.
        tape: of a backward pass, which notes the layers with weights (`cells.backward.Backward`).
        mean, std: the images' normaliser, in pixel units [0, 1].
    """

    init_name: str = "torch"
    bn: str = "calibrated"
    measure: bool = False
    training: bool = False
    with_residuals: bool = True
    tape: Tape | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def normalized(self, images: Images) -> Images:
        """Images after the normaliser."""
        mean, std = (jnp.asarray(each, images.dtype) for each in (self.mean, self.std))
        return (images - mean) / std

    @property
    def instance(self) -> bool:
        """Whether each image is normalised by its own statistics."""
        return not self.training and NORMALIZATIONS[self.bn].live is measure_each

    def gain(self, kernel: Array) -> float:
        """The factor on a kernel in the forward pass."""
        return gain(self.init_name, kernel.shape)

    def norm(self, weights: Weights, statistics: Any) -> AnyNorm:
        """A normalisation by each image's own statistics or by stored ones, as the mode says."""
        if self.instance:
            return InstanceNorm(weights["scale"], weights["shift"])
        return Norm(weights["scale"], weights["shift"], statistics["mean"], statistics["var"])

    def normalize(self, z: Images, weights: Weights, statistics: Any) -> tuple[Images, Any]:
        """The normalised images, and the statistics to store."""
        if self.training:
            return self._trained(z, weights, statistics)
        live = NORMALIZATIONS[self.bn].live
        if live is not None and not self.instance:
            return Norm(weights["scale"], weights["shift"], *live(z))(z), statistics
        if self.measure:
            # Calibrated statistics are constants: no gradient passes through the measurement.
            mean, var = lax.stop_gradient(measure(z))
            statistics = {"mean": mean, "var": var}
        norm = self.norm(weights, statistics)
        if self.tape is None:
            return norm(z), statistics
        standard = norm.standardize(z)
        return self.tape.note(standard * norm.scale + norm.shift, Layer(standard)), statistics

    def _trained(self, z: Images, weights: Weights, statistics: Any) -> tuple[Images, Any]:
        if not self.measure:
            return self.norm(weights, statistics)(z), statistics
        mean = jnp.mean(z, (0, 1, 2))
        var = jnp.mean(jnp.square(z - mean), (0, 1, 2))
        count = z.size // z.shape[-1]
        measured = {"mean": mean, "var": var * (count / max(count - 1, 1))}
        follow = lambda old, now: old + MOMENTUM * (lax.stop_gradient(now) - old)  # noqa: E731
        new = jax.tree.map(follow, statistics, measured)
        return self.norm(weights, {"mean": mean, "var": var})(z), new

    def convolve(
        self, x: Images, kernel: Array, stride: int = 1, norm: Norm | None = None
    ) -> Outputs:
        """A convolution by a stored kernel times its gain; on a tape, a normalisation behind it."""
        if self.tape is None:
            convolve = layers.trained_convolve if self.training else layers.convolve
            return convolve(x, self.gain(kernel) * kernel, stride)
        window = Window.square(len(kernel), stride)
        y: Any = layers.pulled_convolve(x, self.gain(kernel) * kernel, window)
        return self.tape.note(
            y if norm is None else norm(y), Layer(x, kernel, norm, self.gain(kernel), stride)
        )

    def depthwise(self, x: Images, kernel: Array, stride: int, dilation: int) -> Outputs:
        """A convolution of each channel by its own kernel times its gain."""
        gain = self.gain(kernel)
        if self.tape is None:
            return layers.depthwise(x, gain * kernel, stride, dilation)
        window = Window.square(len(kernel), stride, dilation, kernel.shape[-1])
        layer = Layer(x, kernel, None, gain, stride, dilation, depthwise=True)
        return self.tape.note(layers.pulled_convolve(x, gain * kernel, window), layer)

    def conv_norm(
        self, x: Images, weights: Weights, statistics: Any, stride: int = 1
    ) -> tuple[Outputs, Any, Outputs]:
        """Convolution and normalisation; the statistics to store, and the convolution's output."""
        if self.training and not self.measure:
            # The known factor multiplies the kernel, which is smaller than the images.
            norm: Any = self.norm(weights, statistics)
            shift = norm.shift - norm.mean * norm.factor
            y = self.convolve(x, weights["kernel"] * norm.factor, stride) + shift
            return y, statistics, y  # JAX differentiates, so nothing reads the third output.
        if self.tape and not self.instance:  # A visitor sees the two as one layer.
            norm = self.norm(weights, statistics)
            y = self.convolve(x, weights["kernel"], stride, norm)
            return y, statistics, y
        z = self.convolve(x, weights["kernel"], stride)
        return *self.normalize(z, weights, statistics), z

    def relu_convolve(self, x: Images, kernel: Array) -> Outputs:
        """`convolve` of a ReLU."""
        return self.convolve(jax.nn.relu(x), kernel)

    def relu_conv_norm(self, x: Images, *layer: Any) -> tuple[Outputs, Any, Outputs]:
        """`conv_norm` of a ReLU."""
        return self.conv_norm(jax.nn.relu(x), *layer)

    def dense(self, x: Float[Array, "m c"], weights: Weights) -> Float[Array, "m o"]:
        """A linear layer by a stored kernel times its gain, and its bias."""
        kernel, gain = weights["kernel"], self.gain(weights["kernel"])
        y = jnp.matmul(x, gain * kernel, precision=PRECISION) + weights["bias"]
        if self.tape is None:
            return y
        layer = Layer(x[:, None, None], kernel[None, None], gain=gain, biased=True)
        return self.tape.note(y[:, None, None], layer)[:, 0, 0]
