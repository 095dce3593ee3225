"""The NAS-Bench-201 network's weights: their shapes, and how they are drawn.

Every edge owns the weights of both its possible convolutions and its digit selects what runs, so
one compiled program serves every cell of a shape, and a weight depends only on the seed, its
place and its operation.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from cells.cell_space import STATISTICS, Variables
from cells.costs import IMAGE_CHANNELS
from cells.initializers import INITIALIZERS, bias_init
from cells.nasbench201.cell import CONV_1X1, EDGES, KERNEL_SIZES, OPERATIONS
from cells.rules import Weights

DTYPE = jnp.float32
"""Dtype in which variables are drawn. Cast them to compute in another precision."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a network.

    Attributes:
        channels: width C of the first stage; the others have 2C and 4C.
        cells_per_stage: N, cells in each stage.
        num_classes: O, number of logits.
    """

    channels: int = 16
    cells_per_stage: int = 5
    num_classes: int = 10


def layers_of(shape: Shape) -> dict[str, Any]:
    """Shapes of the weights: stem, three stages with a reduction block between them, and head.

    Source: Dong and Yang (2020), "NAS-Bench-201", figure 1.
    """

    def convolution(size: int, before: int, after: int) -> dict[str, tuple[int, ...]]:
        return {"kernel": (size, size, before, after)} | norm(after)

    def norm(width: int) -> dict[str, tuple[int, ...]]:
        return {"scale": (width,), "shift": (width,)}

    width = shape.channels
    layers: dict[str, Any] = {"stem": {"conv": convolution(3, IMAGE_CHANNELS, width)}}
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
    classes = shape.num_classes
    return layers | {"head": norm(width) | {"kernel": (width, classes), "bias": (classes,)}}


def draw(shape: Shape, init_name: str, key: PRNGKeyArray) -> Variables:
    """Untrained weights of all cells of a shape, and statistics that nothing has measured.

    They are those that flax has drawn, from keys of a weight's path and turn in its layer. The
    turns go on in a stage, whose three weights of a layer flax has declared twice.
    """

    def drawn(layers: Weights, path: str, key: PRNGKeyArray, first: int) -> dict[str, Any]:
        def weight(name: str, size: Any, turn: int) -> Any:
            if isinstance(size, dict):
                return drawn(size, path + name, key, first)
            if name in ("scale", "shift"):
                return jnp.full(size, float(name == "scale"), DTYPE)
            kernel = INITIALIZERS[init_name].kernel
            initializer = bias_init(init_name, layers["kernel"][0]) if name == "bias" else kernel
            digest = hashlib.sha1(path.encode() + bytes([turn])).digest()
            number = np.uint32(int.from_bytes(digest[:4], "big"))
            return initializer(jax.random.fold_in(key, number), size, DTYPE)

        turns = enumerate(layers.items(), first)
        return {name: weight(name, size, turn) for turn, (name, size) in turns}

    params: dict[str, Any] = {}
    for name, layers in layers_of(shape).items():
        if name.startswith("stage"):
            of_cell = lambda key, name=name, layers=layers: drawn(layers, name, key, 4)  # noqa: E731
            params[name] = jax.vmap(of_cell)(jax.random.split(key, shape.cells_per_stage))
        else:
            params[name] = drawn(layers, name, key, 1)
    return fresh_variables(params)


def fresh_variables(params: Weights) -> Variables:
    """A network's variables: these parameters, and statistics that nothing has measured yet."""

    def unmeasured(layer: Weights) -> dict[str, Array]:
        scale = layer["scale"]
        return {"mean": jnp.zeros_like(scale), "var": jnp.ones_like(scale)}

    statistics: dict[str, Any] = {
        "stem": unmeasured(params["stem"]["conv"]),
        "head": unmeasured(params["head"]),
    }
    for name, layers in params.items():
        if name.startswith("stage"):
            statistics[name] = {
                edge: unmeasured(of[OPERATIONS[CONV_1X1]]) for edge, of in layers.items()
            }
        elif name.startswith("reduction"):
            blocks = ("conv_a", "conv_b")
            statistics[name] = {block: unmeasured(layers[block]["conv"]) for block in blocks}
    return {"params": params, STATISTICS: statistics}


@lru_cache
def abstract_variables(shape: Shape) -> Variables:
    """A network's parameters and statistics as shapes only."""
    return jax.eval_shape(lambda key: draw(shape, "torch", key), jax.random.key(0))
