"""The DARTS network: its shapes, its weights, and the operations of its edges.

A network of L cells has three stages; the second and the third begin with a reduction cell. A cell
reads the outputs of the two cells before it, each through a convolution, and its own output are its
four nodes side by side. Every edge owns the weights of all operations, and the genotype, which is
data, selects what runs: one compiled program serves all genotypes of a size.

Source: Liu et al. (2019), "DARTS: Differentiable architecture search", and its public code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cells import layers
from cells.cell_space import IMAGE_CHANNELS
from cells.darts.counts import DILATED, SEPARABLE, STEM
from cells.darts.genotype import (
    AVG_POOL,
    MAX_POOL,
    NONE,
    OPERATIONS,
    SKIP,
    TARGETS,
)
from cells.initializers import INITIALIZERS, bias_init
from cells.layers import unmeasured, untrained_norm
from cells.rules import Outputs, Rules, Visited, Weights, back_conv_norm, back_relu
from cells.visitors import Visitor
from ntkscore.grams import Images

INPUTS, NODES = 2, 4
"""Inputs of a cell, and its nodes, whose concatenation is its output."""
EDGES = len(TARGETS)
SIZES = SEPARABLE | DILATED
"""Sides of the operations' depthwise kernels."""
PAIR = ("first", "second")
"""The two rounds of a separable convolution, and the two convolutions of a factorised reduction."""
DTYPE = jnp.float32

Code = Mapping[str, Int[Array, "8 2"] | Int[np.ndarray, "8 2"]]
"""Operation and source of each edge of the `normal` and the `reduce` cell; of numpy, where the
genotype is known when the network is traced."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a network.

    Attributes:
        channels: width C of the first stage; the others have 2C and 4C.
        layers: L, number of cells; those at ⌊L/3⌋ and ⌊2L/3⌋ halve the image.
        num_classes: number of logits.
    """

    channels: int
    layers: int
    num_classes: int

    @property
    def normal_cells(self) -> tuple[int, int, int]:
        """Normal cells of each stage."""
        first, second = self.layers // 3, 2 * self.layers // 3
        return first, second - first - 1, self.layers - second - 1

    def width(self, stage: int) -> int:
        """Channels of a node of a stage."""
        return self.channels << stage


@dataclass(frozen=True)
class Round:
    """ReLU, depthwise convolution, pointwise convolution and normalisation."""

    size: int
    stride: int = 1
    dilation: int = 1

    def depthwise(self, rules: Rules, x: Images, weights: Weights) -> Outputs:
        """The depthwise convolution's output."""
        kernel = weights["depthwise"]["kernel"]
        x = jax.nn.relu(x)
        return layers.depthwise(x, rules.gain(kernel) * kernel, self.stride, self.dilation)

    def forward(
        self, rules: Rules, x: Images, weights: Weights, stored: Any
    ) -> tuple[Outputs, Any]:
        """The output, and the statistics to store."""
        z = self.depthwise(rules, x, weights)
        y, statistics, _ = rules.conv_norm(z, weights["pointwise"], stored)
        return y, statistics

    def back(
        self, rules: Rules, x: Images, g: Outputs, weights: Weights, stored: Any, visitor: Visitor
    ) -> tuple[Images, Visited]:
        """The cotangent of x from that of the output, and the visitor's outputs."""
        z, kernel = self.depthwise(rules, x, weights), weights["depthwise"]["kernel"]
        g, visited = back_conv_norm(rules, z, g, weights["pointwise"], stored, visitor)
        gain = rules.gain(kernel)
        of_layer = kernel, gain, self.stride, self.dilation
        visited = visited + visitor.depthwise(jax.nn.relu(x), g, *of_layer)
        dx = layers.transposed_depthwise(g, gain * kernel, self.stride, self.dilation)
        return back_relu(dx, x), visited


def rounds_of(operation: int, stride: int) -> list[Round]:
    """The rounds of a separable or dilated convolution."""
    size = SIZES[operation]
    if operation in SEPARABLE:
        return [Round(size, stride), Round(size)]
    return [Round(size, stride, dilation=2)]


def _of_half(leaves: Any, k: int, width: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[k * width : (k + 1) * width], leaves)


def factorized_reduce(
    rules: Rules, x: Images, weights: Weights, stored: Any
) -> tuple[Outputs, Any]:
    """Half the channels from the pixels of even places, half from those of odd ones, normalised."""
    outputs, statistics = [], []
    for k, (part, convolution) in enumerate(_factorized(weights, stored)):
        pixels = jax.nn.relu(x)[:, k::2, k::2]
        y, new, _ = rules.conv_norm(pixels, convolution, part)
        outputs.append(y)
        statistics.append(new)
    return jnp.concatenate(outputs, -1), jax.tree.map(lambda *a: jnp.concatenate(a), *statistics)


def back_factorized_reduce(
    rules: Rules, x: Images, g: Outputs, weights: Weights, stored: Any, visitor: Visitor
) -> tuple[Images, Visited]:
    """The cotangent of x from that of `factorized_reduce`, and the visitor's outputs."""
    total, everything = jnp.zeros_like(x), []
    for k, (part, convolution) in enumerate(_factorized(weights, stored)):
        width = g.shape[-1] // 2
        pixels = jax.nn.relu(x)[:, k::2, k::2]
        of_half = g[..., k * width : (k + 1) * width]
        dx, visited = back_conv_norm(rules, pixels, of_half, convolution, part, visitor)
        total = total.at[:, k::2, k::2].add(dx)
        everything += visited
    return back_relu(total, x), everything


def _factorized(weights: Weights, stored: Any) -> list[tuple[Any, dict[str, Array]]]:
    """Statistics and weights of the two convolutions of a factorised reduction."""
    width = weights["scale"].shape[-1] // 2
    norm = {name: weights[name] for name in ("scale", "shift")}
    return [
        (_of_half(stored, k, width), weights[name] | _of_half(norm, k, width))
        for k, name in enumerate(PAIR)
    ]


Operation = Callable[[Images, Weights, Any], tuple[Outputs, Any, Outputs]]


def operation(rules: Rules, index: int, stride: int) -> Operation:
    """An edge's operation as a function of (x, weights, statistics).

    It returns the output, the statistics to store, and the output of a separable convolution's
    first round, which the backward pass needs; zeros in its place elsewhere.
    """

    def operate(x: Images, weights: Weights, stored: Any) -> Any:
        y = middle = jnp.zeros_like(x[:, ::stride, ::stride])
        new = dict(stored)
        if index in SIZES:
            y = x
            of_edge = weights[OPERATIONS[index]]
            for name, each in zip(PAIR, rounds_of(index, stride), strict=False):
                middle = y if name == "second" else middle
                y, new[name] = each.forward(rules, y, of_edge[name], stored[name])
        elif index == SKIP and stride == 1:
            y = x
        elif index == SKIP:
            of_edge = weights[OPERATIONS[index]]
            y, new["first"] = factorized_reduce(rules, x, of_edge, stored["first"])
        elif index != NONE:
            y = POOLS[index](x, stride)
        return y, new, middle

    return operate


def back_operation(rules: Rules, index: int, stride: int, visitor: Visitor) -> Callable[..., Any]:
    """The pullback of an edge's operation, from (x, middle, g, weights, statistics).

    It returns the cotangent of x, and the visitor's outputs.
    """

    def pull(x: Images, middle: Outputs, g: Outputs, weights: Weights, stored: Any) -> Any:
        visited: Visited = []
        if index in SIZES:
            of_edge, rounds = weights[OPERATIONS[index]], rounds_of(index, stride)
            for name, each in reversed([*zip(PAIR, rounds, strict=False)]):
                given = middle if name == "second" else x
                layer = of_edge[name], stored[name], visitor
                g, more = each.back(rules, given, g, *layer)
                visited += more
            return g, visited
        if index == SKIP and stride == 1:
            return g, visited
        if index == SKIP:
            layer = weights[OPERATIONS[index]], stored["first"], visitor
            return back_factorized_reduce(rules, x, g, *layer)
        if index == MAX_POOL:
            return layers.pull_max_pool_3x3(x, g, stride), visited
        if index == AVG_POOL:
            return layers.pull_average_pool_3x3(g, stride), visited
        return jnp.zeros_like(x), visited

    return pull


POOLS = {MAX_POOL: layers.max_pool_3x3, AVG_POOL: layers.average_pool_3x3}


def draw(shape: Shape, init_name: str, key: PRNGKeyArray) -> tuple[dict, dict]:
    """Untrained weights of all genotypes of a shape, and statistics that nothing has measured.

    A preprocessing convolution takes 4 times the width of the nodes before it. Where these are the
    stem, which has 3 times the width, its last rows are zeros that see zeros.

    Returns:
        Parameters and statistics: of the stem, each reduction and each stage, and the linear head.
    """
    kernel_of = INITIALIZERS[init_name].kernel

    def drawn(
        place: tuple[int, ...], count: tuple[int, ...], shape: tuple[int, ...]
    ) -> Float[Array, "..."]:
        """Kernels of a shape, as many as `count` says, each from the key at its place."""
        own = reduce(jax.random.fold_in, place, key)
        keys = jax.random.split(own, prod(count))
        return jax.vmap(lambda k: kernel_of(k, shape, DTYPE))(keys).reshape(*count, *shape)

    stem = STEM * shape.channels
    params: dict[str, Any] = {
        "stem": {"kernel": drawn((0,), (), (3, 3, IMAGE_CHANNELS, stem))} | untrained_norm(stem)
    }
    statistics: dict[str, Any] = {"stem": unmeasured(stem)}

    def edges(place: int, count: tuple[int, ...], width: int, reduction: bool) -> tuple[dict, dict]:
        count = (*count, EDGES)
        weights: dict[str, Any] = {}
        for index in SIZES:
            weights[OPERATIONS[index]] = {
                name: {
                    "depthwise": {
                        "kernel": drawn(
                            (place, index, k, 0), count, (SIZES[index], SIZES[index], 1, width)
                        )
                    },
                    "pointwise": {
                        "kernel": drawn((place, index, k, 1), count, (1, 1, width, width))
                    }
                    | untrained_norm(*count, width),
                }
                for k, name in enumerate(PAIR[: len(rounds_of(index, 1))])
            }
        if reduction:
            weights[OPERATIONS[SKIP]] = factorized((place, SKIP), count, width, width)
        return weights, {name: unmeasured(*count, width) for name in PAIR}

    def factorized(place: tuple, count: tuple[int, ...], before: int, width: int) -> dict:
        return untrained_norm(*count, width) | {
            name: {"kernel": drawn((*place, k), count, (1, 1, before, width // 2))}
            for k, name in enumerate(PAIR)
        }

    def preprocess(place: tuple, count: int, before: int, width: int, stems: int) -> dict:
        rows = [STEM * before // 4] * stems + [before] * (count - stems)
        kernels = [
            jnp.pad(kernel, ((0, 0), (0, 0), (0, before - size), (0, 0)))
            for k, size in enumerate(rows)
            for kernel in [drawn((*place, k), (), (1, 1, size, width))]
        ]
        return {"kernel": jnp.stack(kernels)} | untrained_norm(count, width)

    for stage, cells in enumerate(shape.normal_cells):
        width = shape.width(stage)
        if stage:
            before, place = NODES * width // 2, 10 * stage
            from_the_stem = int(stage == 1 and shape.normal_cells[0] == 1)
            of_cell, of_edges = edges(place, (), width, True)
            inputs = [
                preprocess((place, 20), 1, before, width, from_the_stem),
                preprocess((place, 21), 1, before, width, 0),
            ]
            params[f"reduction_{stage}"] = {
                f"input_{k}": jax.tree.map(lambda leaf: leaf[0], each)
                for k, each in enumerate(inputs)
            } | {"edges": of_cell}
            statistics[f"reduction_{stage}"] = {
                f"input_{k}": unmeasured(width) for k in range(INPUTS)
            } | {"edges": of_edges}
        place, before = 10 * stage + 1, NODES * width
        of_cell, of_edges = edges(place, (cells,), width, False)
        of_stage: dict[str, Any] = {"edges": of_cell}
        of_norms: dict[str, Any] = {"edges": of_edges}
        # The first cell after a reduction halves the image of its first input.
        for k, count in enumerate((cells - (stage > 0), cells)):
            # The stem is both inputs of the first cell, and the first of the second cell.
            stems = 0 if stage else min(count, INPUTS - k)
            if count:
                of_stage[f"input_{k}"] = preprocess((place, 20 + k), count, before, width, stems)
                of_norms[f"input_{k}"] = unmeasured(count, width)
        if stage:
            of_stage["halving"] = factorized((place, 22), (), NODES * width // 2, width)
            of_norms["halving"] = unmeasured(width)
        params[f"stage_{stage}"], statistics[f"stage_{stage}"] = of_stage, of_norms
    features = NODES * shape.width(2)
    head = drawn((30,), (), (features, shape.num_classes))
    bias = bias_init(init_name, features)
    key = jax.random.fold_in(key, 31)
    params["head"] = {"kernel": head, "bias": bias(key, (shape.num_classes,), DTYPE)}
    return params, statistics
