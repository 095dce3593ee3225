"""The NAS-Bench-201 network in flax, with the cell's six digits as data.

Every edge owns the weights of both its possible convolutions and its digit selects what runs, so
one compiled program serves every cell of a shape, and a weight depends only on the seed, its
place and its operation.
"""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cells import layers
from cells.initializers import INITIALIZERS, bias_init, gain
from cells.layers import Norm
from cells.nasbench201.cell import EDGES, IMAGE_CHANNELS, KERNEL_SIZES, NONE, OPERATIONS, SKIP
from cells.nasbench201.normalization import NORMALIZATIONS
from ntkscore.grams import Images

STATISTICS = "batch_stats"
DTYPE = jnp.float32
"""Dtype in which variables are drawn. Cast them to compute in another precision."""


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


class Convention(NamedTuple):
    """What all layers of a network have in common.

    Attributes:
        init_name: a name in `INITIALIZERS`.
        bn: where the normalisation's statistics come from, a name in `NORMALIZATIONS`.
        measuring: whether this pass measures the statistics of its own images.
    """

    init_name: str = "torch"
    bn: str = "calibrated"
    measuring: bool = False

    def normalize(
        self, z: Images, weights: dict[str, Array], mean: Array, var: Array
    ) -> tuple[Images, Array, Array]:
        """Normalise by the images' own statistics or the stored ones; returns those to store."""
        live = NORMALIZATIONS[self.bn].live
        if live is not None:
            # They may be each image's own, which the places of the stored ones do not hold.
            return Norm(weights["scale"], weights["shift"], *live(z))(z), mean, var
        if self.measuring:
            # What is calibrated is frozen: no gradient knows how it came about.
            mean, var = jax.lax.stop_gradient(layers.measure(z))
        return Norm(weights["scale"], weights["shift"], mean, var)(z), mean, var

    def conv_norm(
        self, x: Images, weights: dict[str, Array], mean: Array, var: Array, stride: int = 1
    ) -> tuple[Float[Array, "m h2 w2 d"], Array, Array]:
        """Convolution and normalisation; also the statistics to store."""
        kernel = weights["kernel"]
        z = layers.convolve(x, gain(self.init_name, kernel.shape) * kernel, stride)
        return self.normalize(z, weights, mean, var)


class Layer(nn.Module):
    """Base of the network's parts.

    Attributes:
        features: output channels.
        convention: initialiser and normalisation.
    """

    features: int
    convention: Convention = Convention()

    def stored(self, width: int) -> tuple[Array, Array]:
        """Stored mean and variance of this layer's normalisation."""
        return (
            self.variable(STATISTICS, "mean", jnp.zeros, (width,), DTYPE).value,
            self.variable(STATISTICS, "var", jnp.ones, (width,), DTYPE).value,
        )

    def store(self, mean: Array, var: Array) -> None:
        """Keep the statistics that were measured, where the caller asked for them."""
        if self.convention.measuring and self.is_mutable_collection(STATISTICS):
            self.put_variable(STATISTICS, "mean", mean)
            self.put_variable(STATISTICS, "var", var)

    def weights(
        self, shape: tuple[int, int, int, int], norm: bool = True, name: str = "conv"
    ) -> dict[str, Array]:
        """The weights of a convolution and of the normalisation behind it."""
        return ConvNorm(shape, self.convention.init_name, norm, name=name)()


class Stem(Layer):
    """3×3 convolution of the image and normalisation."""

    @nn.compact
    def __call__(self, x: Images) -> Float[Array, "m h w d"]:
        weights = self.weights((3, 3, x.shape[-1], self.features))
        y, *statistics = self.convention.conv_norm(x, weights, *self.stored(self.features))
        self.store(*statistics)
        return y


class Convolution(Layer):
    """ReLU, 3×3 convolution, normalisation: a half of the reduction block."""

    stride: int = 1

    @nn.compact
    def __call__(self, x: Images) -> Float[Array, "m h2 w2 d"]:
        weights = self.weights((3, 3, x.shape[-1], self.features))
        stored = self.stored(self.features)
        y, *statistics = self.convention.conv_norm(nn.relu(x), weights, *stored, self.stride)
        self.store(*statistics)
        return y


@partial(jax.jit, static_argnums=0)
def operate(
    convention: Convention,
    digit: Int[Array, ""],
    x: Images,
    weights: dict[int, dict[str, Array]],
    mean: Array,
    var: Array,
) -> tuple[Images, Array, Array]:
    """An edge's operation; also the statistics to store.

    Jitted by itself, so that a network's edges are traced and differentiated once for each shape.
    """

    def branch(operation: int):
        def run(x, weights, mean, var):
            if operation in KERNEL_SIZES:
                return convention.conv_norm(nn.relu(x), weights[operation], mean, var)
            if operation == NONE:
                return jnp.zeros_like(x), mean, var
            return (x if operation == SKIP else layers.average_pool_3x3(x)), mean, var

        return run

    branches = [branch(operation) for operation in range(len(OPERATIONS))]
    return jax.lax.switch(digit, branches, x, weights, mean, var)


class Edge(Layer):
    """One edge of a cell: the operation that its digit names."""

    @nn.compact
    def __call__(self, x: Images, digit: Int[Array, ""]) -> Images:
        width = self.features
        weights = {
            operation: self.weights((size, size, width, width), name=OPERATIONS[operation])
            for operation, size in KERNEL_SIZES.items()
        }
        stored = self.stored(width)
        if self.is_initializing():
            # Drawing the weights needs shapes alone, which no operation changes.
            return x
        y, *statistics = operate(self.convention, digit, x, weights, *stored)
        self.store(*statistics)
        return y


class CellBlock(Layer):
    """One cell: four nodes, each the sum of the edges that end in it."""

    @nn.compact
    def __call__(self, x: Images, digits: Int[Array, "6"]) -> tuple[Images, None]:
        nodes = [x]
        edges = [Edge(self.features, self.convention, name=f"edge_{e}") for e in range(len(EDGES))]
        for target in range(1, 4):
            first, *others = (
                edges[e](nodes[source], digits[e])
                for e, (source, end) in enumerate(EDGES)
                if end == target
            )
            nodes.append(sum(others, first))
        return nodes[-1], None


class Reduction(Layer):
    """The residual block between two stages: halves the image and doubles the channels."""

    @nn.compact
    def __call__(self, x: Images) -> Float[Array, "m h2 w2 d"]:
        y = Convolution(self.features, self.convention, stride=2, name="conv_a")(x)
        y = Convolution(self.features, self.convention, name="conv_b")(y)
        shape = (1, 1, x.shape[-1], self.features)
        kernel = self.weights(shape, norm=False, name="downsample")["kernel"]
        factor = gain(self.convention.init_name, shape)
        return y + layers.convolve(layers.average_pool_2x2(x), factor * kernel)


class Head(Layer):
    """Normalisation, ReLU, mean over the pixels, linear layer; `features` is the class count."""

    @nn.compact
    def __call__(self, x: Images) -> Float[Array, "m o"]:
        width = x.shape[-1]
        weights = {
            "scale": self.param("scale", nn.initializers.ones, (width,), DTYPE),
            "shift": self.param("shift", nn.initializers.zeros, (width,), DTYPE),
        }
        mean, var = self.stored(width)
        y, *statistics = self.convention.normalize(x, weights, mean, var)
        self.store(*statistics)
        y = jnp.mean(nn.relu(y), (1, 2))
        shape, init_name = (width, self.features), self.convention.init_name
        kernel = self.param("kernel", INITIALIZERS[init_name].kernel, shape, DTYPE)
        bias = self.param("bias", bias_init(init_name, width), (self.features,), DTYPE)
        return layers.dense(y, gain(init_name, shape) * kernel, bias)


class Network(nn.Module):
    """Stem, three stages of cells with a reduction block between them, and the linear head.

    Attributes:
        channels: width C of the first stage; the others have 2C and 4C.
        cells_per_stage: N, cells in each stage.
        num_classes: O, number of logits.
        mean, std: the images' normaliser, in pixel units [0, 1]; it is the network's first layer.
        init_name: how weights are drawn, a name in `INITIALIZERS`.
        bn: the normalisation's mode, a name in `NORMALIZATIONS`.

    Source: Dong and Yang (2020), "NAS-Bench-201", figure 1.
    """

    channels: int = 16
    cells_per_stage: int = 5
    num_classes: int = 10
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    init_name: str = "torch"
    bn: str = "calibrated"

    @nn.compact
    def __call__(
        self,
        images: Images,
        digits: Int[Array, "6"],
        *,
        calibrate: bool = False,
    ) -> Float[Array, "m o"]:
        """Logits of a batch of images.

        Args:
            images: pixels in [0, 1].
            digits: the cell, one operation per edge.
            calibrate: measure every normalisation's statistics on these images and store them
                in the collection `batch_stats`, which must be mutable.
        """
        mode = NORMALIZATIONS[self.bn]
        measuring = mode.live is not None or (calibrate and mode.calibrates)
        convention = Convention(self.init_name, self.bn, measuring)
        mean, std = (jnp.asarray(value, images.dtype) for value in (self.mean, self.std))
        x = Stem(self.channels, convention, name="stem")((images - mean) / std)
        for stage in range(3):
            width = self.channels << stage
            if stage:
                x = Reduction(width, convention, name=f"reduction_{stage}")(x)
            cells = nn.scan(
                CellBlock,
                variable_axes={"params": 0, STATISTICS: 0},
                split_rngs={"params": True},
                in_axes=nn.broadcast,  # type: ignore[arg-type]
                length=self.cells_per_stage,
            )
            x, _ = cells(width, convention, name=f"stage_{stage}")(x, digits)
        return Head(self.num_classes, convention, name="head")(x)


def blank_inputs() -> tuple[Array, Array]:
    """The smallest images and digits that the network can be initialised with."""
    images = jnp.zeros((1, 4, 4, IMAGE_CHANNELS), DTYPE)
    return images, jnp.zeros((len(EDGES),), jnp.int32)


@lru_cache
def abstract_variables(network: Network) -> dict[str, Any]:
    """The network's parameters and statistics as shapes only."""
    return jax.eval_shape(network.init, jax.random.key(0), *blank_inputs())


def fresh_variables(params: Any, network: Network) -> dict[str, Any]:
    """The network's variables: these parameters, and statistics that nothing has measured yet."""
    dtype = jax.tree.leaves(params)[0].dtype
    statistics = jax.tree_util.tree_map_with_path(
        lambda path, leaf: (jnp.ones if path[-1].key == "var" else jnp.zeros)(leaf.shape, dtype),
        abstract_variables(network)[STATISTICS],  # type: ignore[arg-type]
    )
    return {"params": params, STATISTICS: statistics}
