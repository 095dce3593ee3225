"""The NAS-Bench-201 network's weights: their shapes, and how they are drawn.

Every edge owns the weights of both its possible convolutions and its digit selects what runs, so
one compiled program serves every cell of a shape, and a weight depends only on the seed, its
place and its operation.
"""

import hashlib
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from cells.cell_space import STATISTICS, Variables
from cells.costs import IMAGE_CHANNELS
from cells.initializers import INITIALIZERS, bias_init
from cells.layers import unmeasured
from cells.nasbench201.cell import CONV_1X1, EDGES, KERNEL_SIZES, OPERATIONS
from cells.nasbench201.space import NASBench201
from cells.rules import Weights

DTYPE = jnp.float32
"""Dtype in which variables are drawn. Cast them to compute in another precision."""


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
        layers[f"stage_{stage}"] = {f"edge_{e}": edge for e in range(len(EDGES))}
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

    def of_norm(layer: Weights) -> dict[str, Array]:
        return unmeasured(*layer["scale"].shape)

    statistics: dict[str, PyTree] = {
        "stem": of_norm(params["stem"]["conv"]),
        "head": of_norm(params["head"]),
    }
    for name, layers in params.items():
        if name.startswith("stage"):
            one = OPERATIONS[CONV_1X1]
            statistics[name] = {edge: of_norm(layers[edge][one]) for edge in layers}
        elif name.startswith("reduction"):
            blocks = ("conv_a", "conv_b")
            statistics[name] = {block: of_norm(layers[block]["conv"]) for block in blocks}
    return {"params": params, STATISTICS: statistics}


@lru_cache
def abstract_variables(space: NASBench201) -> Variables:
    """A network's parameters and statistics as shapes only."""
    return jax.eval_shape(lambda key: draw(space, key), jax.random.key(0))
