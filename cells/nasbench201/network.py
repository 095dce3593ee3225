"""The NAS-Bench-201 network in flax, with the cell's six digits as data.

Every edge owns the weights of both its possible convolutions and its digit selects what runs, so
one compiled program serves every cell of a shape, and a weight depends only on the seed, its
place and its operation.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from cells import layers
from cells.cell_space import IMAGE_CHANNELS, STATISTICS
from cells.initializers import INITIALIZERS, bias_init
from cells.nasbench201.cell import EDGES, KERNEL_SIZES, NONE, OPERATIONS, SKIP
from cells.normalization import NORMALIZATIONS
from cells.rules import Outputs, Rules, Statistics, Weights
from ntkscore.grams import Images

DTYPE = jnp.float32
"""Dtype in which variables are drawn. Cast them to compute in another precision."""


def operation(rules: Rules, index: int) -> Callable[..., tuple[Images, Any, Images | None]]:
    """An edge's operation as a function of (x, weights, statistics).

    It returns the output, the statistics to store, and a convolution's output before
    normalisation, where the backward pass needs it (else None).
    """

    def operate(x: Images, weights: Weights, statistics: Any) -> Any:
        unused = jnp.zeros_like(x) if rules.instance else None
        if index in KERNEL_SIZES:
            of_conv = weights[OPERATIONS[index]]
            y, statistics, z = rules.conv_norm(jax.nn.relu(x), of_conv, statistics)
            return y, statistics, z if rules.instance else None
        if index == NONE:
            return jnp.zeros_like(x), statistics, unused
        return (x if index == SKIP else layers.average_pool_3x3(x)), statistics, unused

    return operate


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
    """Base of the network's parts.

    Attributes:
        features: output channels.
        rules: initialiser and normalisation.
    """

    features: int
    rules: Rules = Rules()

    def stored(self, width: int) -> Statistics:
        """Stored mean and variance of this layer's normalisation."""
        return {
            "mean": self.variable(STATISTICS, "mean", jnp.zeros, (width,), DTYPE).value,
            "var": self.variable(STATISTICS, "var", jnp.ones, (width,), DTYPE).value,
        }

    def store(self, statistics: Statistics) -> None:
        """Store measured statistics, where the caller asked for them."""
        if self.rules.measure and self.is_mutable_collection(STATISTICS):
            for name, value in statistics.items():
                self.put_variable(STATISTICS, name, value)

    def weights(
        self, shape: tuple[int, int, int, int], norm: bool = True, name: str = "conv"
    ) -> dict[str, Array]:
        """The weights of a convolution and of the normalisation behind it."""
        return ConvNorm(shape, self.rules.init_name, norm, name=name)()


class Convolution(Layer):
    """ReLU, 3×3 convolution, normalisation: a half of the reduction block."""

    stride: int = 1
    rectify: bool = True

    @nn.compact
    def __call__(self, x: Images) -> Outputs:
        weights = self.weights((3, 3, x.shape[-1], self.features))
        x = nn.relu(x) if self.rectify else x
        stored = self.stored(self.features)
        y, statistics, _ = self.rules.conv_norm(x, weights, stored, self.stride)
        self.store(statistics)
        return y


class Stem(Convolution):
    """3×3 convolution of the image and normalisation."""

    rectify: bool = False


@partial(jax.jit, static_argnums=0)
def operate(
    rules: Rules, digit: Int[Array, ""], x: Images, weights: Weights, statistics: Statistics
) -> tuple[Images, Statistics]:
    """An edge's operation; also the statistics to store.

    Jitted by itself, so that a network's edges are traced and differentiated once for each shape.
    """
    branches = [
        lambda *given, index=index: operation(rules, index)(*given)[:2]
        for index in range(len(OPERATIONS))
    ]
    return lax.switch(digit, branches, x, weights, statistics)


class Edge(Layer):
    """One edge of a cell: the operation that its digit names."""

    @nn.compact
    def __call__(self, x: Images, digit: Int[Array, ""]) -> Images:
        width = self.features
        weights = {
            (name := OPERATIONS[operation]): self.weights((size, size, width, width), name=name)
            for operation, size in KERNEL_SIZES.items()
        }
        stored = self.stored(width)
        if self.is_initializing():
            # Drawing the weights needs shapes alone, which no operation changes.
            return x
        y, statistics = operate(self.rules, digit, x, weights, stored)
        self.store(statistics)
        return y


class CellBlock(Layer):
    """One cell: four nodes, each the sum of the edges that end in it."""

    @nn.compact
    def __call__(self, x: Images, digits: Int[Array, "6"]) -> tuple[Images, None]:
        nodes = [x]
        edges = [Edge(self.features, self.rules, name=f"edge_{e}") for e in range(len(EDGES))]
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
        y = Convolution(self.features, self.rules, stride=2, name="conv_a")(x)
        y = Convolution(self.features, self.rules, name="conv_b")(y)
        shape = (1, 1, x.shape[-1], self.features)
        kernel = self.weights(shape, norm=False, name="downsample")["kernel"]
        return y + self.rules.convolve(layers.average_pool_2x2(x), kernel)


class Head(Layer):
    """Normalisation, ReLU, mean over the pixels, linear layer; `features` is the class count."""

    @nn.compact
    def __call__(self, x: Images) -> Float[Array, "m o"]:
        width = x.shape[-1]
        weights = {
            "scale": self.param("scale", nn.initializers.ones, (width,), DTYPE),
            "shift": self.param("shift", nn.initializers.zeros, (width,), DTYPE),
        }
        y, statistics = self.rules.normalize(x, weights, self.stored(width))
        self.store(statistics)
        y = jnp.mean(nn.relu(y), (1, 2))
        shape, init_name = (width, self.features), self.rules.init_name
        kernel = self.param("kernel", INITIALIZERS[init_name].kernel, shape, DTYPE)
        bias = self.param("bias", bias_init(init_name, width), (self.features,), DTYPE)
        return layers.dense(y, self.rules.gain(kernel) * kernel, bias)


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
        measure = calibrate and NORMALIZATIONS[self.bn].calibrates
        rules = Rules(self.init_name, self.bn, measure)
        mean, std = (jnp.asarray(value, images.dtype) for value in (self.mean, self.std))
        x = Stem(self.channels, rules, name="stem")((images - mean) / std)
        for stage in range(3):
            width = self.channels << stage
            if stage:
                x = Reduction(width, rules, name=f"reduction_{stage}")(x)
            cells = nn.scan(
                CellBlock,
                variable_axes={"params": 0, STATISTICS: 0},
                split_rngs={"params": True},
                in_axes=nn.broadcast,  # type: ignore[arg-type]
                length=self.cells_per_stage,
            )
            x, _ = cells(width, rules, name=f"stage_{stage}")(x, digits)
        return Head(self.num_classes, rules, name="head")(x)


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
