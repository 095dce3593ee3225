"""Computations of layers, by initialiser and normalisation mode."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from cells.initializers import gain
from cells.layers import Layer, Norm, pulled_convolve, trained_convolve
from cells.normalization import NORMALIZATIONS, measure, measure_each
from ntkscore import convolutions
from ntkscore.convolutions import Window
from ntkscore.grams import PRECISION, Images

Outputs = Float[Array, "m h2 w2 d"]
"""Outputs of a convolution, which may change the images' size."""
Weights = Mapping[str, PyTree]
"""Weights by name, or the stored `mean` and `var` of normalisations."""
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
        note: of a backward pass, which is given each layer with weights, and returns its output
            (`cells.backward.Backward`).
        mean, std: the images' normaliser, in pixel units [0, 1].
        code: the architecture, where it is data.
    """

    init_name: str = "torch"
    bn: str = "calibrated"
    measure: bool = False
    training: bool = False
    with_residuals: bool = True
    note: Callable[[Layer], Array] | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    code: PyTree = None

    def normalized(self, images: Images) -> Images:
        """Images after the normaliser."""
        mean, std = (jnp.asarray(each, images.dtype) for each in (self.mean, self.std))
        return (images - mean) / std

    @property
    def instance(self) -> bool:
        """Whether each image is normalised by its own statistics."""
        return not self.training and NORMALIZATIONS[self.bn].live is measure_each

    def norm(self, weights: Weights, statistics: Weights) -> Norm:
        """A normalisation by stored statistics."""
        return Norm(weights["scale"], weights["shift"], statistics["mean"], statistics["var"])

    def normalize(self, z: Images, weights: Weights, statistics: Weights) -> tuple[Images, Weights]:
        """The normalised images, and the statistics to store."""
        live = None if self.training else NORMALIZATIONS[self.bn].live
        if self.training and self.measure:
            return self._trained(z, weights, statistics)
        if self.measure:
            # Calibrated statistics are constants: no gradient passes through the measurement.
            mean, var = lax.stop_gradient(measure(z))
            statistics = {"mean": mean, "var": var}
        norm = self.norm(weights, statistics)
        if live is not None:
            norm = Norm(norm.scale, norm.shift, *live(z))
        if self.note is None and not self.instance:
            return norm(z), statistics
        standard = norm.standardize(z)
        y = standard * norm.scale + norm.shift
        return self.note(Layer(standard, y, norm.scale)) if self.note else y, statistics

    def _trained(self, z: Images, weights: Weights, statistics: Weights) -> tuple[Images, Weights]:
        mean = jnp.mean(z, (0, 1, 2))
        var = jnp.mean(jnp.square(z - mean), (0, 1, 2))
        count = z.size // z.shape[-1]
        measured = {"mean": mean, "var": var * (count / max(count - 1, 1))}
        follow = lambda old, now: old + MOMENTUM * (lax.stop_gradient(now) - old)  # noqa: E731
        new = jax.tree.map(follow, statistics, measured)
        return self.norm(weights, {"mean": mean, "var": var})(z), new

    def convolve(
        self,
        x: Images,
        kernel: Array,
        stride: int = 1,
        dilation: int = 1,
        depthwise: bool = False,
        norm: Norm | None = None,
    ) -> Outputs:
        """A convolution by a stored kernel times its gain.

        Args:
            x: images.
            kernel: (k, k, c, d); (k, k, 1, c) where each channel has a kernel of its own.
            stride, dilation: in pixels.
            depthwise: whether each channel has a kernel of its own.
            norm: a normalisation behind it, of a backward pass, which sees the two as one layer.
        """
        factor = gain(self.init_name, kernel.shape)
        window = Window.square(len(kernel), stride, dilation, kernel.shape[-1] if depthwise else 1)
        if self.note:
            y: PyTree = pulled_convolve(x, factor * kernel, window)
            y = norm(y) if norm else y
            return self.note(Layer(x, y, kernel, norm, factor, window, depthwise))
        if self.training and not depthwise:
            return trained_convolve(x, factor * kernel, window)
        return convolutions.convolve(x, factor * kernel, window)

    def conv_norm(
        self, x: Images, weights: Weights, statistics: Weights, stride: int = 1
    ) -> tuple[Outputs, Weights, Outputs]:
        """Convolution and normalisation; the statistics to store, and the convolution's output."""
        if self.training and not self.measure:
            # The known factor multiplies the kernel, which is smaller than the images.
            norm = self.norm(weights, statistics)
            shift = norm.shift - norm.mean * norm.factor
            y = self.convolve(x, weights["kernel"] * norm.factor, stride) + shift
            return y, statistics, y  # JAX differentiates, so nothing reads the third output.
        if self.note and not self.instance:
            norm = self.norm(weights, statistics)
            y = self.convolve(x, weights["kernel"], stride, norm=norm)
            return y, statistics, y
        z = self.convolve(x, weights["kernel"], stride)
        return *self.normalize(z, weights, statistics), z

    def relu_conv_norm(self, x: Images, *layer: PyTree) -> tuple[Outputs, Weights, Outputs]:
        """`conv_norm` of a ReLU."""
        return self.conv_norm(jax.nn.relu(x), *layer)

    def dense(self, x: Images, weights: Weights) -> Float[Array, "m o"]:
        """A linear layer of the means over pixels, by a stored kernel times its gain; its bias."""
        kernel = weights["kernel"]
        factor = gain(self.init_name, kernel.shape)
        pooled = jnp.mean(x, (1, 2))
        y = jnp.matmul(pooled, factor * kernel, precision=PRECISION) + weights["bias"]
        if self.note is None:
            return y
        at_a_pixel = pooled[:, None, None], y[:, None, None], kernel[None, None]
        return self.note(Layer(*at_a_pixel, gain=factor, biased=True))[:, 0, 0]

    def norm_relu_dense(
        self, x: Images, weights: Weights, statistics: Weights
    ) -> tuple[Float[Array, "m o"], Weights]:
        """`dense` of a ReLU of what is normalised; and the statistics to store."""
        y, statistics = self.normalize(x, weights, statistics)
        return self.dense(jax.nn.relu(y), weights), statistics


# The architecture is data of a program; all else decides which program it is.
jax.tree_util.register_dataclass(
    Rules, ["code"], [each.name for each in fields(Rules) if each.name != "code"]
)


@partial(jax.tree_util.register_dataclass, data_fields=["rules", "statistics"], meta_fields=["run"])
@dataclass(frozen=True, eq=False)
class Apply:
    """A network's logits, as a tree of its architecture and its statistics.

    Attributes:
        run: logits first, of (rules, params, statistics, images).
        rules: of its layers.
        statistics: of its normalisations.
    """

    run: Callable[..., tuple]
    rules: Rules
    statistics: Weights

    def __call__(self, params: Weights, images: Images) -> Float[Array, "m o"]:
        """Logits of images, pixels in [0, 1]."""
        return self.run(self.rules, params, self.statistics, images)[0]
