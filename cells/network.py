"""The NAS-Bench-201 network in flax, with the cell's six digits as data.

Every edge owns the weights of both its possible convolutions and its digit selects what runs, so
one compiled program serves every cell of a shape, and a weight depends only on the seed, its
place and its operation.
"""

from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cells import layers
from cells.initializers import INITIALIZERS, bias_init, gain
from cells.layers import Grams, Images, Norm
from cells.space import EDGES, KERNEL_SIZES, NONE, OPERATIONS, SKIP

BatchNorm = Literal["calibrated", "init", "batch"]
BN_MODES: tuple[str, ...] = get_args(BatchNorm)
STATISTICS = "batch_stats"
DTYPE = jnp.float32
"""In which variables are drawn; cast them to compute in another precision."""


class ConvNorm(nn.Module):
    """The weights of one convolution and of the normalisation behind it."""

    shape: tuple[int, int, int, int]
    init_name: str
    norm: bool = True

    @nn.compact
    def __call__(self) -> dict[str, Array]:
        draw = INITIALIZERS[self.init_name].kernel
        weights = {"kernel": self.param("kernel", draw, self.shape, DTYPE)}
        if self.norm:
            width = self.shape[-1:]
            weights["scale"] = self.param("scale", nn.initializers.ones, width, DTYPE)
            weights["shift"] = self.param("shift", nn.initializers.zeros, width, DTYPE)
        return weights


class Layer(nn.Module):
    """What the parts of the network share: the initialiser, the normalisation's mode, statistics.

    Attributes:
        features: output channels.
        init_name: a name in `INITIALIZERS`.
        bn: where the normalisation's statistics come from (`BN_MODES`).
        measuring: whether this pass measures the statistics of its own images.
    """

    features: int
    init_name: str = "torch"
    bn: BatchNorm = "calibrated"
    measuring: bool = False

    def stored(self, width: int) -> tuple[Array, Array]:
        """The mean and variance that this normalisation has in store."""
        return (
            self.variable(STATISTICS, "mean", jnp.zeros, (width,), DTYPE).value,
            self.variable(STATISTICS, "var", jnp.ones, (width,), DTYPE).value,
        )

    def store(self, mean: Array, var: Array) -> None:
        """Keep the statistics that were measured, where the caller asked for them."""
        if self.measuring and self.is_mutable_collection(STATISTICS):
            self.put_variable(STATISTICS, "mean", mean)
            self.put_variable(STATISTICS, "var", var)

    def normalize(
        self, z: Images, weights: dict[str, Array], mean: Array, var: Array
    ) -> tuple[Images, Array, Array]:
        """Normalise by the images' own statistics, or by the stored ones; returns those used."""
        if self.measuring:
            mean, var = layers.measure(z)
            if self.bn != "batch":
                mean, var = jax.lax.stop_gradient((mean, var))
        return Norm(weights["scale"], weights["shift"], mean, var)(z), mean, var

    def conv_norm(
        self,
        x: Images,
        weights: dict[str, Array],
        mean: Array,
        var: Array,
        grams: Grams | None,
        stride: int = 1,
    ) -> tuple[Images, Array, Array]:
        """Convolution and normalisation; also the statistics that were used."""
        kernel = weights["kernel"]
        factor = gain(self.init_name, kernel.shape)
        if self.measuring:
            z = layers.convolution(x, kernel, None, None, stride=stride, gain=factor)
            return self.normalize(z, weights, mean, var)
        norm = Norm(weights["scale"], weights["shift"], mean, var)
        y = layers.convolution(x, kernel, norm, grams, stride=stride, gain=factor)
        return y, mean, var

    def common(self) -> dict[str, Any]:
        """What a part hands on to its own parts."""
        return {"init_name": self.init_name, "bn": self.bn, "measuring": self.measuring}


class Stem(Layer):
    """3×3 convolution of the image and normalisation."""

    @nn.compact
    def __call__(self, x: Images, grams: Grams | None) -> Images:
        weights = ConvNorm((3, 3, x.shape[-1], self.features), self.init_name, name="conv")()
        y, *statistics = self.conv_norm(x, weights, *self.stored(self.features), grams)
        self.store(*statistics)
        return y


class Convolution(Layer):
    """ReLU, 3×3 convolution, normalisation: what the reduction block is made of."""

    stride: int = 1

    @nn.compact
    def __call__(self, x: Images, grams: Grams | None) -> Images:
        weights = ConvNorm((3, 3, x.shape[-1], self.features), self.init_name, name="conv")()
        stored = self.stored(self.features)
        y, *statistics = self.conv_norm(nn.relu(x), weights, *stored, grams, self.stride)
        self.store(*statistics)
        return y


class Edge(Layer):
    """One edge of a cell: the operation that its digit names."""

    @nn.compact
    def __call__(self, x: Images, digit: Int[Array, ""], grams: Grams | None) -> Images:
        weights = {
            operation: ConvNorm(
                (size, size, self.features, self.features),
                self.init_name,
                name=OPERATIONS[operation],
            )()
            for operation, size in KERNEL_SIZES.items()
        }

        stored = self.stored(self.features)
        if self.is_initializing():
            # Drawing the weights needs shapes alone, which no operation changes.
            return x

        def branch(operation: int):
            def run(x, weights, mean, var, grams):
                if operation in KERNEL_SIZES:
                    return self.conv_norm(nn.relu(x), weights[operation], mean, var, grams)
                if operation == NONE:
                    return jnp.zeros_like(x), mean, var
                return (x if operation == SKIP else layers.average_pool_3x3(x)), mean, var

            return run

        y, *statistics = layers.select(
            digit,
            tuple(branch(operation) for operation in range(len(OPERATIONS))),
            x,
            weights,
            *stored,
            grams,
            tapped=grams is not None,
        )
        self.store(*statistics)
        return y


class CellBlock(Layer):
    """One cell: four nodes, each the sum of the edges that end in it."""

    @nn.compact
    def __call__(
        self, x: Images, digits: Int[Array, "6"], grams: Grams | None
    ) -> tuple[Images, None]:
        nodes = [x]
        edges = [Edge(self.features, **self.common(), name=f"edge_{e}") for e in range(len(EDGES))]
        for target in range(1, 4):
            first, *others = (
                edges[e](nodes[source], digits[e], grams)
                for e, (source, end) in enumerate(EDGES)
                if end == target
            )
            nodes.append(sum(others, first))
        return nodes[-1], None


class Reduction(Layer):
    """The residual block between two stages: halves the image and doubles the channels."""

    @nn.compact
    def __call__(self, x: Images, grams: Grams | None) -> Images:
        y = Convolution(self.features, **self.common(), stride=2, name="conv_a")(x, grams)
        y = Convolution(self.features, **self.common(), name="conv_b")(y, grams)
        shape = (1, 1, x.shape[-1], self.features)
        kernel = ConvNorm(shape, self.init_name, norm=False, name="downsample")()["kernel"]
        shortcut = layers.convolution(
            layers.average_pool_2x2(x), kernel, None, grams, gain=gain(self.init_name, shape)
        )
        return y + shortcut


class Head(Layer):
    """Normalisation, ReLU, mean over the pixels, linear layer; `features` is the class count."""

    @nn.compact
    def __call__(self, x: Images, grams: Grams | None) -> Float[Array, "m o"]:
        width = x.shape[-1]
        weights = {
            "scale": self.param("scale", nn.initializers.ones, (width,), DTYPE),
            "shift": self.param("shift", nn.initializers.zeros, (width,), DTYPE),
        }
        mean, var = self.stored(width)
        if self.measuring:
            y, *statistics = self.normalize(x, weights, mean, var)
            self.store(*statistics)
        else:
            y = layers.normalization(x, Norm(**weights, mean=mean, var=var), grams)
        y = jnp.mean(nn.relu(y), (1, 2))
        shape = (width, self.features)
        kernel = self.param("kernel", INITIALIZERS[self.init_name].kernel, shape, DTYPE)
        bias = self.param("bias", bias_init(self.init_name, width), (self.features,), DTYPE)
        return layers.dense(y, kernel, bias, grams, gain=gain(self.init_name, shape))


class Network(nn.Module):
    """Stem, three stages of cells with a reduction block between them, and the linear head.

    Attributes:
        channels: width C of the first stage; the others have 2C and 4C.
        cells_per_stage: N, cells in each stage.
        num_classes: O, number of logits.
        mean, std: the images' normaliser, in pixel units [0, 1]; it is the network's first layer.
        init_name: how weights are drawn, a name in `INITIALIZERS`.
        bn: the normalisation's mode: `calibrated` and `init` use the stored statistics, `batch`
            those of the images at hand, differentiated through (definitions: `BN_MODES`).

    Source: Dong and Yang (2020), "NAS-Bench-201", figure 1.
    """

    channels: int = 16
    cells_per_stage: int = 5
    num_classes: int = 10
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    init_name: str = "torch"
    bn: BatchNorm = "calibrated"

    @nn.compact
    def __call__(
        self,
        images: Images,
        digits: Int[Array, "6"],
        grams: Grams | None = None,
        *,
        calibrate: bool = False,
    ) -> Float[Array, "m o"]:
        """Logits of a batch of images.

        Args:
            images: pixels in [0, 1].
            digits: the cell, one operation per edge.
            grams: see `cells.layers`; None for an ordinary forward pass.
            calibrate: measure every normalisation's statistics on these images and store them
                in the collection `batch_stats`, which must be mutable.
        """
        measuring = self.bn == "batch" or (calibrate and self.bn == "calibrated")
        if measuring and grams is not None:
            raise ValueError(
                "expected grams=None where batch normalisation measures its own images, because "
                "one image's gradient then depends on all; use the ntvp implementation"
            )
        common: dict[str, Any] = {
            "init_name": self.init_name,
            "bn": self.bn,
            "measuring": measuring,
        }
        mean, std = (jnp.asarray(value, images.dtype) for value in (self.mean, self.std))
        x = Stem(self.channels, **common, name="stem")((images - mean) / std, grams)
        for stage in range(3):
            width = self.channels << stage
            if stage:
                x = Reduction(width, **common, name=f"reduction_{stage}")(x, grams)
            cells = nn.scan(
                CellBlock,
                variable_axes={"params": 0, STATISTICS: 0},
                split_rngs={"params": True},
                in_axes=(nn.broadcast, nn.broadcast),  # type: ignore[arg-type]
                length=self.cells_per_stage,
            )
            x, _ = cells(width, **common, name=f"stage_{stage}")(x, digits, grams)
        return Head(self.num_classes, **common, name="head")(x, grams)
