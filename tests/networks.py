"""Networks, images and measures of error that several tests share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cells import layers
from cells.layers import Norm
from ntkscore.convolutions import Window
from ntkscore.convolutions import convolve as convolve_by
from ntkscore.grams import PRECISION
from ntkscore.model import Model

Array = jax.Array
M, CLASSES, SIZE = 4, 3, 8
EXACT = 1e-10
"""The relative error that float64 leaves in a kernel."""

WIDTHS = {"stem": (3, 3, 3, 4), "strided": (3, 3, 4, 5), "shortcut": (1, 1, 4, 5)}


def error(got: Any, expected: Any) -> float:
    """Relative Frobenius error; absolute where nothing is expected."""
    expected = np.asarray(expected, np.float64)
    return float(np.linalg.norm(np.asarray(got) - expected) / (np.linalg.norm(expected) or 1))


def points(count: int = M, size: int = SIZE) -> tuple[Array, Array]:
    """Images and their classes."""
    rng = np.random.default_rng(3)
    images = rng.uniform(size=(count, size, size, 3))
    return jnp.asarray(images), jnp.asarray(rng.integers(0, CLASSES, count), jnp.int32)


def digits(cell: Any) -> Array:
    """A cell as data, from its six digits or from a `Cell`."""
    return jnp.asarray([int(digit) for digit in getattr(cell, "digits", cell)], jnp.int32)


def small_params() -> dict[str, dict[str, Array]]:
    """Weights of `small`, none of them zero or one."""
    rng = np.random.default_rng(5)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape))  # noqa: E731
    params = {name: {"kernel": draw(*shape)} for name, shape in WIDTHS.items()}
    params["head"] = {"kernel": draw(5, CLASSES), "bias": draw(CLASSES)}
    for name, width in (("stem", 4), ("strided", 5), ("head", 5)):
        params[name] |= {"scale": draw(width), "shift": draw(width)}
    return params


def small(params: Any, images: Array, index: Array, gain: float = 0.7) -> Array:
    """A small network with every layer, cheap enough to compile for every kernel.

    Args:
        params: from `small_params`.
        images: of sides that 2 divides.
        index: which of two branches runs, 0 for pooling or 1 for a strided convolution.
        gain: of every kernel.
    """

    def norm(name: str) -> Norm:
        width = params[name]["scale"].shape[0]
        given = np.random.default_rng(width).uniform(0.2, 2, (2, width))
        mean, var = jnp.asarray(given, images.dtype)
        return Norm(params[name]["scale"], params[name]["shift"], mean, var)

    def convolve(x: Array, name: str, stride: int = 1) -> Array:
        kernel = params[name]["kernel"]
        return convolve_by(x, gain * kernel, Window.square(len(kernel), stride))

    def pooled(x: Array) -> Array:
        return jnp.concatenate([layers.average_pool_2x2(x), layers.average_pool_2x2(x)[..., :1]], 3)

    def strided(x: Array) -> Array:
        return norm("strided")(convolve(jax.nn.relu(x), "strided", 2))

    x = norm("stem")(convolve(images, "stem"))
    y = jax.lax.switch(index, (pooled, strided), layers.average_pool_3x3(x))
    y += convolve(layers.average_pool_2x2(x), "shortcut")
    y = jnp.mean(jax.nn.relu(norm("head")(y)), (1, 2))
    head = params["head"]
    return jnp.matmul(y, gain * head["kernel"], precision=PRECISION) + head["bias"]


def small_model(params: Any, index: Array) -> Model:
    """`small` with one of its branches."""
    return Model(lambda params, images: small(params, images, index), params)


def perceptron(params: Any, images: Array) -> Array:
    """Two layers with biases, by nobody's library."""
    x = images.reshape(len(images), -1)
    for layer in ("hidden", "out"):
        x = jnp.tanh(x) @ params[layer]["kernel"] + params[layer]["bias"]
    return x


def perceptron_params(inputs: int = 48) -> dict[str, dict[str, Array]]:
    """Weights of `perceptron`."""
    rng = np.random.default_rng(0)
    widths = {"hidden": (inputs, 7), "out": (7, CLASSES)}
    return {
        name: {
            "kernel": jnp.asarray(rng.normal(size=shape)),
            "bias": jnp.asarray(rng.normal(size=shape[1])),
        }
        for name, shape in widths.items()
    }
