"""The DARTS network: its shapes, its weights, and the operations of its edges.

A network of L cells has three stages; the second and the third begin with a reduction cell. A cell
reads the outputs of the two cells before it, each through a convolution, and its own output are its
four nodes side by side. Every edge owns the weights of all operations, and the genotype, which is
data, selects what runs: one compiled program serves all genotypes of a size.

Source: Liu et al. (2019), "DARTS: Differentiable architecture search", and its public code.
"""

from functools import reduce
from math import prod
from operator import itemgetter

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from cells import layers
from cells.cell_space import STATISTICS, Variables
from cells.costs import IMAGE_CHANNELS
from cells.darts.counts import SEPARABLE, SIZES, STEM
from cells.darts.genotype import AVG_POOL, MAX_POOL, OPERATIONS, SEP_3, SKIP
from cells.darts.space import EDGES, Darts
from cells.initializers import INITIALIZERS, bias_init
from cells.rules import Outputs, Rules, Weights
from ntkscore.grams import Images

INPUTS, NODES = 2, 4
"""Inputs of a cell, and its nodes, whose concatenation is its output."""
PAIR = ("first", "second")
"""The two rounds of a separable convolution, and the two convolutions of a factorised reduction."""
DTYPE = jnp.float32


def run_round(
    rules: Rules, x: Images, weights: Weights, stored: Weights, stride: int = 1, dilation: int = 1
) -> tuple[Outputs, Weights]:
    """ReLU, depthwise convolution, pointwise one and normalisation; the statistics to store."""
    kernel = weights["depthwise"]["kernel"]
    z = rules.convolve(jax.nn.relu(x), kernel, stride, dilation, depthwise=True)
    return rules.conv_norm(z, weights["pointwise"], stored)[:2]


def rounds_of(operation: int, stride: int) -> list[tuple[int, int]]:
    """Stride and dilation of the rounds of a separable or dilated convolution."""
    return [(stride, 1), (1, 1)] if operation in SEPARABLE else [(stride, 2)]


def factorized_reduce(
    rules: Rules, x: Images, weights: Weights, stored: Weights
) -> tuple[Outputs, Weights]:
    """Half the channels from the pixels of even places, half from those of odd ones, normalised."""
    x, width = jax.nn.relu(x), weights["scale"].shape[-1] // 2
    norm = {name: weights[name] for name in ("scale", "shift")}

    def half(k: int) -> tuple[Outputs, Weights]:
        of_half = lambda leaf: leaf[k * width : (k + 1) * width]  # noqa: E731
        own, part = jax.tree.map(of_half, (norm, stored))
        return rules.conv_norm(x[:, k::2, k::2], weights[PAIR[k]] | own, part)[:2]

    odd, even = half(1), half(0)
    return jax.tree.map(lambda *halves: jnp.concatenate(halves, -1), even, odd)


def operate(
    index: int, stride: int, rules: Rules, x: Images, weights: Weights, stored: Weights
) -> tuple[Outputs, Weights, Outputs]:
    """The output of an edge's operation, and the statistics to store.

    The third output is that of a separable convolution's first round, which the backward pass
    needs; zeros in its place elsewhere.
    """
    y: PyTree = jnp.zeros_like(x[:, ::stride, ::stride])
    middle, new = y, dict(stored)
    if index in SIZES:
        y, of_edge = x, weights[OPERATIONS[index]]
        for name, steps in zip(PAIR, rounds_of(index, stride), strict=False):
            middle = y if name == "second" else middle
            y, new[name] = run_round(rules, y, of_edge[name], stored[name], *steps)
    elif index == SKIP and stride == 1:
        y = x
    elif index == SKIP:
        of_edge = weights[OPERATIONS[index]]
        y, new["first"] = factorized_reduce(rules, x, of_edge, stored["first"])
    elif index == MAX_POOL:
        pool = layers.pulled_max_pool_3x3 if rules.note else layers.max_pool_3x3
        y = pool(x, stride)
    elif index == AVG_POOL:
        y = layers.average_pool_3x3(x, stride)
    return y, new, middle


def draw(space: Darts, key: PRNGKeyArray) -> Variables:
    """Untrained weights of all genotypes, and statistics that nothing has measured.

    A preprocessing convolution takes 4 times the width of the nodes before it. Where these are the
    stem, which has 3 times the width, its last rows are zeros that see zeros.

    Returns:
        Parameters and statistics: of the stem, each reduction and each stage, and the linear head.
    """
    kernel_of = INITIALIZERS[space.init].kernel

    def drawn(place: tuple[int, ...], count: tuple[int, ...], shape: tuple[int, ...]) -> Array:
        """Kernels of a shape, as many as `count` says, each from the key at its place."""
        own = reduce(jax.random.fold_in, place, key)
        keys = jax.random.split(own, prod(count))
        return jax.vmap(lambda k: kernel_of(k, shape, DTYPE))(keys).reshape(*count, *shape)

    def edges(place: int, cells: tuple[int, ...], width: int) -> dict[str, Weights]:
        count = (*cells, EDGES)

        def of_round(index: int, k: int) -> dict[str, Weights]:
            size = SIZES[index]
            depthwise = drawn((place, index, k, 0), count, (size, size, 1, width))
            pointwise = drawn((place, index, k, 1), count, (1, 1, width, width))
            norm = layers.untrained_norm(*count, width)
            return {"depthwise": {"kernel": depthwise}, "pointwise": {"kernel": pointwise} | norm}

        names = {index: PAIR[: len(rounds_of(index, 1))] for index in SIZES}
        return {
            OPERATIONS[index]: {name: of_round(index, k) for k, name in enumerate(of_operation)}
            for index, of_operation in names.items()
        }

    def factorized(place: tuple, count: tuple[int, ...], before: int, width: int) -> dict:
        return layers.untrained_norm(*count, width) | {
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
        return {"kernel": jnp.stack(kernels)} | layers.untrained_norm(count, width)

    stem, features = STEM * space.channels, NODES * (space.channels << 2)
    blocks: dict[str, Weights] = {}
    for stage, cells in enumerate(space.normal_cells):
        width = space.channels << stage
        place, before = 10 * stage, NODES * width // 2
        if stage:
            from_the_stem = int(stage == 1 and space.normal_cells[0] == 1)
            block = {
                f"input_{k}": jax.tree.map(
                    itemgetter(0), preprocess((place, 20 + k), 1, before, width, stems)
                )
                for k, stems in enumerate((from_the_stem, 0))
            }
            skips = {OPERATIONS[SKIP]: factorized((place, SKIP), (EDGES,), width, width)}
            blocks[f"reduction_{stage}"] = block | {"edges": edges(place, (), width) | skips}
        block = {"edges": edges(place + 1, (cells,), width)}
        # The first cell after a reduction halves the image of its first input.
        for k, count in enumerate((cells - (stage > 0), cells)):
            # The stem is both inputs of the first cell, and the first of the second cell.
            stems = 0 if stage else min(count, INPUTS - k)
            if count:
                of_input = (place + 1, 20 + k), count, NODES * width, width, stems
                block[f"input_{k}"] = preprocess(*of_input)
        if stage:
            block["halving"] = factorized((place + 1, 22), (), before, width)
        blocks[f"stage_{stage}"] = block

    first = drawn((0,), (), (3, 3, IMAGE_CHANNELS, stem))
    classes = space.task.num_classes
    head = drawn((30,), (), (features, classes))
    bias = bias_init(space.init, features)(jax.random.fold_in(key, 31), (classes,), DTYPE)
    params: dict[str, Weights] = {"stem": {"kernel": first} | layers.untrained_norm(stem), **blocks}
    params["head"] = {"kernel": head, "bias": bias}
    statistics = layers.unmeasured(params, ("pointwise", OPERATIONS[SEP_3]))
    return {"params": params, STATISTICS: statistics}
