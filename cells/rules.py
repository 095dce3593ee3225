"""Computations of layers, by initialiser and normalisation mode, and their backward passes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from cells import layers
from cells.initializers import gain
from cells.layers import AnyNorm, InstanceNorm, Norm
from cells.normalization import NORMALIZATIONS, measure_each
from cells.visitors import Visitor
from ntkscore.grams import Images

Outputs = Float[Array, "m h2 w2 d"]
"""Outputs of a convolution, which may change the images' size."""
Weights = Mapping[str, Any]
Statistics = Mapping[str, Array]
"""The stored `mean` and `var` of a normalisation."""
Visited = list[PyTree]
"""A visitor's outputs at one layer, or at several layers along a new first axis."""
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
    """

    init_name: str = "torch"
    bn: str = "calibrated"
    measure: bool = False
    training: bool = False
    with_residuals: bool = True

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
            mean, var = lax.stop_gradient(layers.measure(z))
            statistics = {"mean": mean, "var": var}
        return self.norm(weights, statistics)(z), statistics

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

    def convolve(self, x: Images, kernel: Array, stride: int = 1) -> Outputs:
        """A convolution by a stored kernel times its gain."""
        convolve = layers.trained_convolve if self.training else layers.convolve
        return convolve(x, self.gain(kernel) * kernel, stride)

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
        z = self.convolve(x, weights["kernel"], stride)
        return *self.normalize(z, weights, statistics), z

    def dense(self, x: Float[Array, "m c"], weights: Weights) -> Float[Array, "m o"]:
        """A linear layer by a stored kernel times its gain, and its bias."""
        kernel = weights["kernel"]
        return layers.dense(x, self.gain(kernel) * kernel, weights["bias"])


@dataclass(frozen=True, kw_only=True)
class NetworkRules(Rules):
    """Computations of the layers of a network whose first layer normalises the images.

    Attributes:
        mean, std: the images' normaliser, in pixel units [0, 1].
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalizer(self, dtype: Any) -> tuple[Float[Array, " c"], Float[Array, " c"]]:
        """Mean and deviation of the images' normaliser, as arrays."""
        return jnp.asarray(self.mean, dtype), jnp.asarray(self.std, dtype)


def trained_logits(
    run: Callable[..., tuple[Any, ...]],
    rules: NetworkRules,
    params: Weights,
    statistics: Weights,
    images: Images,
    train: bool,
) -> tuple[Float[Array, "m o"], Weights]:
    """Logits of a batch of images in training, and the running statistics after it.

    Args:
        run: the forward pass, of (rules, params, statistics, images); its first output are the
            logits, its last one the statistics.
        rules: of a known architecture's network.
        params, statistics: as in the network's variables.
        images: pixels in [0, 1].
        train: normalise by the batch's own mean and biased variance, differentiated through, and
            move the running mean and variance, unbiased, by a tenth towards them; else normalise
            by the running ones, and leave them.
    """
    own = replace(rules, training=True, measure=train, with_residuals=False)
    logits, *_, new = run(own, params, statistics, images)
    return logits, new


def back_conv_norm(
    rules: Rules,
    x: Images,
    g: Outputs,
    weights: Weights,
    statistics: Any,
    visitor: Visitor,
    stride: int = 1,
    z: Outputs | None = None,
) -> tuple[Images, Visited]:
    """The cotangent of x from that of a convolution and normalisation, and the visitor's outputs.

    Only the pullback of an `InstanceNorm` needs the convolution's output z, and computes it if it
    is not given.
    """
    kernel, visited = weights["kernel"], []
    norm = rules.norm(weights, statistics) if "scale" in weights else None
    if isinstance(norm, InstanceNorm):
        z = rules.convolve(x, kernel, stride) if z is None else z
        g, visited = back_norm(z, g, norm, visitor)
        norm = None
    gain = rules.gain(kernel)
    visited = visited + visitor.convolution(x, g, kernel, norm, stride, gain)
    if norm is not None:
        g = g * norm.factor
    return layers.transposed_convolve(g, gain * kernel, x, stride), visited


def back_norm(x: Images, g: Images, norm: AnyNorm, visitor: Visitor) -> tuple[Images, Visited]:
    """The cotangent of x from that of its normalisation, and the visitor's outputs."""
    standard, pull = jax.vjp(norm.standardize, x)
    (dx,) = pull(g * norm.scale)
    return dx, visitor.normalization(standard, g)


def back_relu_conv_norm(
    rules: Rules, x: Images, *layer: Any, **options: Any
) -> tuple[Images, Visited]:
    """`back_conv_norm` with its arguments, of a layer that begins with a ReLU."""
    dx, visited = back_conv_norm(rules, jax.nn.relu(x), *layer, **options)
    return back_relu(dx, x), visited


def back_relu(g: Array, x: Array) -> Array:
    """The cotangent of x from that of its ReLU."""
    return jnp.where(x > 0, g, 0)
