"""The NAS-Bench-201 network in flax, written to be read: an oracle for `cells.nasbench201`."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from cells import layers
from cells.cell_space import STATISTICS
from cells.initializers import INITIALIZERS, bias_init
from cells.nasbench201.cell import CONV_1X1, CONV_3X3, EDGES, NONE, OPERATIONS, SKIP
from cells.nasbench201.space import NASBench201
from cells.normalization import NORMALIZATIONS
from cells.rules import Rules

Array = jax.Array
DTYPE = jnp.float32


@partial(jax.jit, static_argnums=0)
def operate(rules: Rules, digit: Array, x: Array, weights: Any, stored: Any) -> tuple[Array, Any]:
    """An edge's operation, and the statistics to store."""

    def convolution(name: str) -> tuple[Array, Any]:
        return rules.conv_norm(nn.relu(x), weights[name], stored)[:2]

    operations = {
        NONE: lambda: (jnp.zeros_like(x), stored),
        SKIP: lambda: (x, stored),
        CONV_1X1: lambda: convolution(OPERATIONS[CONV_1X1]),
        CONV_3X3: lambda: convolution(OPERATIONS[CONV_3X3]),
    }
    pooling = lambda: (layers.average_pool_3x3(x), stored)  # noqa: E731
    return lax.switch(digit, [operations.get(o, pooling) for o in range(len(OPERATIONS))])


class ConvNorm(nn.Module):
    """The weights of one convolution and of the normalisation behind it."""

    shape: tuple[int, int, int, int]
    init_name: str
    norm: bool = True

    @nn.compact
    def __call__(self) -> dict[str, Array]:
        kernel = self.param("kernel", INITIALIZERS[self.init_name].kernel, self.shape, DTYPE)
        if not self.norm:
            return {"kernel": kernel}
        return {
            "kernel": kernel,
            "scale": self.param("scale", nn.initializers.ones, self.shape[-1:], DTYPE),
            "shift": self.param("shift", nn.initializers.zeros, self.shape[-1:], DTYPE),
        }


class Layer(nn.Module):
    """Base of the network's parts: output channels, and computations of its layers."""

    features: int
    rules: Rules = Rules()

    def stored(self, width: int) -> dict[str, Array]:
        return {
            "mean": self.variable(STATISTICS, "mean", jnp.zeros, (width,), DTYPE).value,
            "var": self.variable(STATISTICS, "var", jnp.ones, (width,), DTYPE).value,
        }

    def store(self, statistics: dict[str, Array]) -> None:
        if self.rules.measure and self.is_mutable_collection(STATISTICS):
            for name, value in statistics.items():
                self.put_variable(STATISTICS, name, value)

    def weights(self, size: int, before: int, name: str = "conv", norm: bool = True) -> Any:
        shape = (size, size, before, self.features)
        return ConvNorm(shape, self.rules.init_name, norm, name=name)()


class Convolution(Layer):
    """ReLU, 3×3 convolution, normalisation: a half of the reduction block."""

    stride: int = 1
    rectify: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        weights = self.weights(3, x.shape[-1])
        x = nn.relu(x) if self.rectify else x
        y, new, _ = self.rules.conv_norm(x, weights, self.stored(self.features), self.stride)
        self.store(new)
        return y


class Stem(Convolution):
    """3×3 convolution of the image and normalisation."""

    rectify: bool = False


class Edge(Layer):
    """One edge of a cell: the operation that its digit names."""

    @nn.compact
    def __call__(self, x: Array, digit: Array) -> Array:
        sizes = {OPERATIONS[CONV_1X1]: 1, OPERATIONS[CONV_3X3]: 3}
        weights = {name: self.weights(size, self.features, name) for name, size in sizes.items()}
        stored = self.stored(self.features)
        y, new = operate(self.rules, digit, x, weights, stored)
        self.store(new)
        return y


class CellBlock(Layer):
    """One cell: four nodes, each the sum of the edges that end in it."""

    @nn.compact
    def __call__(self, x: Array, digits: Array) -> tuple[Array, None]:
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
    def __call__(self, x: Array) -> Array:
        y = Convolution(self.features, self.rules, stride=2, name="conv_a")(x)
        y = Convolution(self.features, self.rules, name="conv_b")(y)
        kernel = self.weights(1, x.shape[-1], "downsample", norm=False)["kernel"]
        return y + self.rules.convolve(layers.average_pool_2x2(x), kernel)


class Head(Layer):
    """Normalisation, ReLU, mean over the pixels, linear layer; `features` is the class count."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        width, init = x.shape[-1], self.rules.init_name
        weights = {
            "scale": self.param("scale", nn.initializers.ones, (width,), DTYPE),
            "shift": self.param("shift", nn.initializers.zeros, (width,), DTYPE),
        }
        y, new = self.rules.normalize(x, weights, self.stored(width))
        self.store(new)
        linear = {
            "kernel": self.param(
                "kernel", INITIALIZERS[init].kernel, (width, self.features), DTYPE
            ),
            "bias": self.param("bias", bias_init(init, width), (self.features,), DTYPE),
        }
        return self.rules.dense(nn.relu(y), linear)


class Network(nn.Module):
    """Stem, three stages of cells with a reduction block between them, and the linear head.

    Attributes:
        space: sizes, initialiser, normalisation's mode and normaliser of the images.

    Source: Dong and Yang (2020), "NAS-Bench-201", figure 1.
    """

    space: NASBench201

    @nn.compact
    def __call__(self, images: Array, digits: Array, *, calibrate: bool = False) -> Array:
        """Logits of images; `calibrate` stores statistics in `batch_stats`, a mutable one."""
        space, task = self.space, self.space.task
        rules = Rules(space.init, space.bn, calibrate and NORMALIZATIONS[space.bn].calibrates)
        mean, std = (jnp.asarray(value, images.dtype) for value in (task.mean, task.std))
        x = Stem(space.channels, rules, name="stem")((images - mean) / std)
        cells = nn.scan(
            CellBlock,
            variable_axes={"params": 0, STATISTICS: 0},
            split_rngs={"params": True},
            in_axes=nn.broadcast,  # type: ignore[arg-type]
            length=space.cells_per_stage,
        )
        for stage in range(3):
            width = space.channels << stage
            if stage:
                x = Reduction(width, rules, name=f"reduction_{stage}")(x)
            x, _ = cells(width, rules, name=f"stage_{stage}")(x, digits)
        return Head(task.num_classes, rules, name="head")(x)
