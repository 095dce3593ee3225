"""The NAS-Bench-201 network: its weights, and its forward pass.

Every edge owns the weights of both its possible convolutions and its digit selects what runs, so
one compiled program serves every cell of a shape, and a weight depends only on the seed, its
place and its operation. In each cell a loop over the edges adds the output of each edge to the node
in which it ends; it is unrolled for a cell that is known when traced, and nothing else computed.
"""

import hashlib
from functools import lru_cache, partial
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cells.cell_space import STATISTICS, Variables
from cells.choice import reading, run_edges
from cells.costs import IMAGE_CHANNELS
from cells.initializers import INITIALIZERS, bias_init
from cells.layers import average_pool_2x2, average_pool_3x3, unmeasured
from cells.nasbench201.cell import EDGES, KERNEL_SIZES, NONE, OPERATIONS, SKIP, SOURCES, TARGETS
from cells.nasbench201.space import NASBench201
from cells.rules import Outputs, Rules, Weights
from ntkscore.grams import Images

DTYPE = jnp.float32
"""Dtype in which variables are drawn. Cast them to compute in another precision."""
NODES = int(TARGETS.max())
"""Nodes of a cell beside its input."""
NAMES = tuple(f"edge_{e}" for e in range(len(EDGES)))
"""The edges in the weights and statistics."""


def layers_of(space: NASBench201) -> dict[str, PyTree]:
    """Shapes of the weights: stem, three stages with a reduction block between them, and head.

    Source: Dong and Yang (2020), "NAS-Bench-201", figure 1.
    """

    def convolution(size: int, before: int, after: int) -> dict[str, tuple[int, ...]]:
        return {"kernel": (size, size, before, after)} | norm(after)

    def norm(width: int) -> dict[str, tuple[int, ...]]:
        return {"scale": (width,), "shift": (width,)}

    width = space.channels
    layers: dict[str, PyTree] = {"stem": {"conv": convolution(3, IMAGE_CHANNELS, width)}}
    for stage in range(3):
        if stage:
            before, width = width, 2 * width
            layers[f"reduction_{stage}"] = {
                "conv_a": {"conv": convolution(3, before, width)},
                "conv_b": {"conv": convolution(3, width, width)},
                "downsample": {"kernel": (1, 1, before, width)},
            }
        edge = {
            OPERATIONS[operation]: convolution(size, width, width)
            for operation, size in KERNEL_SIZES.items()
        }
        layers[f"stage_{stage}"] = {name: edge for name in NAMES}
    classes = space.task.num_classes
    return layers | {"head": norm(width) | {"kernel": (width, classes), "bias": (classes,)}}


def draw(space: NASBench201, key: PRNGKeyArray) -> Variables:
    """Untrained weights of all cells, and statistics that nothing has measured.

    They are those that flax has drawn, from keys of a weight's path and turn in its layer. The
    turns go on in a stage, whose three weights of a layer flax has declared twice.
    """

    def drawn(layers: Weights, path: str, key: PRNGKeyArray, first: int) -> Weights:
        def weight(name: str, size: PyTree, turn: int) -> PyTree:
            if isinstance(size, dict):
                return drawn(size, path + name, key, first)
            if name in ("scale", "shift"):
                return jnp.full(size, float(name == "scale"), DTYPE)
            kernel = INITIALIZERS[space.init].kernel
            initializer = bias_init(space.init, layers["kernel"][0]) if name == "bias" else kernel
            digest = hashlib.sha1(path.encode() + bytes([turn])).digest()
            number = np.uint32(int.from_bytes(digest[:4], "big"))
            return initializer(jax.random.fold_in(key, number), size, DTYPE)

        turns = enumerate(layers.items(), first)
        return {name: weight(name, size, turn) for turn, (name, size) in turns}

    params = {}
    for name, layers in layers_of(space).items():
        if name.startswith("stage"):
            of_cell = lambda key, name=name, layers=layers: drawn(layers, name, key, 4)  # noqa: E731
            params[name] = jax.vmap(of_cell)(jax.random.split(key, space.cells_per_stage))
        else:
            params[name] = drawn(layers, name, key, 1)
    return fresh_variables(params)


def fresh_variables(params: Weights) -> Variables:
    """A network's variables: these parameters, and statistics that nothing has measured yet."""
    statistics = unmeasured(params, ("conv", *OPERATIONS))
    return {"params": params, STATISTICS: statistics}


@lru_cache
def abstract_variables(space: NASBench201) -> Variables:
    """A network's parameters and statistics as shapes only."""
    return jax.eval_shape(lambda key: draw(space, key), jax.random.key(0))


class Residuals(NamedTuple):
    """Values of a forward pass over M images that the backward pass needs.

    Attributes:
        images: normalised, (m, h, w, 3).
        nodes: of each stage, (node, m, h, w, c); cell t has the nodes 3t … 3t + 3, its last is the
            next cell's first.
        middles: of each reduction block, between its two convolutions.
        convolved: of each stage, the outputs of its edges' convolutions before normalisation,
            (edge, m, h, w, c); or None where the backward pass does not need them.
    """

    images: Images
    nodes: list[Float[Array, "k m h w c"]]
    middles: list[Images]
    convolved: list[Float[Array, "e m h w c"] | None]


def operate(
    index: int, rules: Rules, x: Images, weights: Weights, statistics: Weights
) -> tuple[Images, Weights, Images | None]:
    """The output of an edge's operation, and the statistics to store.

    The third output is a convolution's before normalisation, where the backward pass needs it.
    """
    unused = jnp.zeros_like(x) if rules.instance else None
    if index in KERNEL_SIZES:
        y, statistics, z = rules.relu_conv_norm(x, weights[OPERATIONS[index]], statistics)
        return y, statistics, z if rules.instance else None
    if index == NONE:
        return jnp.zeros_like(x), statistics, unused
    return (x if index == SKIP else average_pool_3x3(x)), statistics, unused


def run_reduction(
    rules: Rules, x: Images, weights: Weights, stored: Weights
) -> tuple[Outputs, Outputs, Weights]:
    """A reduction block's output, the one between its convolutions, and its statistics."""
    a, b = (weights[name]["conv"] for name in ("conv_a", "conv_b"))
    middle, first, _ = rules.relu_conv_norm(x, a, stored["conv_a"], 2)
    y, second, _ = rules.relu_conv_norm(middle, b, stored["conv_b"])
    return y + shortcut(rules, x, weights), middle, {"conv_a": first, "conv_b": second}


def shortcut(rules: Rules, x: Images, weights: Weights) -> Outputs:
    """What a reduction block adds to its second convolution's output."""
    return rules.convolve(average_pool_2x2(x), weights["downsample"]["kernel"])


def run_stage(
    rules: Rules, x: Images, weights: Weights, stored: Weights
) -> tuple[Float[Array, "k m h w c"], Weights, Float[Array, "e m h w c"] | None]:
    """All nodes of a stage, its statistics, and its convolutions' outputs if needed.

    Without residuals the last node alone.
    """
    branches = [reading(partial(operate, index, rules)) for index in range(len(OPERATIONS))]

    def through(nodes: PyTree, first: PyTree, layers: PyTree) -> tuple[PyTree, PyTree]:
        """A cell's edges, whose input is the first of its nodes."""
        of_edges = ([layer[name] for name in NAMES] for layer in layers)
        edges = rules.code, SOURCES, TARGETS, *of_edges
        nodes, (new, convolved) = run_edges(branches, nodes, first, edges)
        new = {name: jax.tree.map(itemgetter(e), new) for e, name in enumerate(NAMES)}
        return nodes, (new, convolved)

    def cell(x: Images, layers: PyTree) -> tuple[Images, Weights]:
        nodes, (new, _) = through([x] + [jnp.zeros_like(x)] * NODES, 0, layers)
        return nodes[-1], new

    if not rules.with_residuals:
        x, new = lax.scan(cell, x, (weights, stored))
        return x[None], new, None
    # All nodes are one array, which the loops fill where it stands.
    firsts = NODES * np.arange(len(jax.tree.leaves(weights)[0]), dtype=np.int32)
    nodes = jnp.zeros((NODES * len(firsts) + 1, *x.shape), x.dtype).at[0].set(x)
    nodes, (new, convolved) = lax.scan(
        lambda nodes, given: through(nodes, *given), nodes, (firsts, (weights, stored))
    )
    return nodes, new, jax.tree.map(lambda leaf: leaf.reshape(-1, *x.shape), convolved)


def run(
    rules: Rules, params: Weights, stored: Weights, images: Images
) -> tuple[Float[Array, "m o"], Residuals, Weights]:
    """Logits of images (pixels in [0, 1]), residuals, and the statistics to store."""
    new = {}
    normalised = rules.normalized(images)
    x, new["stem"], _ = rules.conv_norm(normalised, params["stem"]["conv"], stored["stem"])
    nodes, middles, convolved = [], [], []
    for stage in range(3):
        if stage:
            name = f"reduction_{stage}"
            x, middle, new[name] = run_reduction(rules, x, params[name], stored[name])
            middles.append(middle)
        name = f"stage_{stage}"
        filled, new[name], outputs = run_stage(rules, x, params[name], stored[name])
        nodes.append(filled)
        convolved.append(outputs)
        x = filled[-1]
    logits, new["head"] = rules.norm_relu_dense(x, params["head"], stored["head"])
    return logits, Residuals(normalised, nodes, middles, convolved), new
