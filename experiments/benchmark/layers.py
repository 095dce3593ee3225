"""Milliseconds of single layers, for the choices that `ntkscore.grams` and `cells.layers` make.

Run as `python -m experiments.benchmark.layers`. On a CPU: how many images have their patches at
once, how many columns of the per-image gradients are multiplied at once, and how the convolution
of stride 2 is transposed. The stages are those of C = 16 at 32×32 pixels.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import pandas as pd
import typer

from cells import layers
from experiments.benchmark.work import seconds
from ntkscore import grams

STAGES = ((32, 16), (16, 32), (8, 64))
"""Side and channels of each stage."""
IMAGES = (1, 5, 10, 25, 50, 150)
COLUMNS = (256, 1024, 2304, 9216, 36864)


def milliseconds(function: Callable[..., Any], *arrays: jax.Array) -> float:
    """The shortest of several warm runs of a function, compiled anew."""
    # A new function, since the choices are no part of what jit remembers a program by.
    compiled = jax.jit(lambda *arrays: function(*arrays))
    jax.block_until_ready(compiled(*arrays))
    return 1e3 * seconds(lambda: compiled(*arrays), 10)


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


def measure(count: int) -> Iterator[tuple[str, str, str, float]]:
    """Layer, stage, choice and milliseconds."""
    for side, channels in STAGES:
        stage = f"{side}×{side}×{channels}"
        x, g = (normal(seed, count, side, side, channels) for seed in (0, 1))
        kernel = normal(2, 3, 3, channels, channels)
        yield "convolution", stage, "", milliseconds(layers.convolve, x, kernel)
        gradients = lambda x, g: grams.kernel_gradients(x, g, (3, 3))  # noqa: E731
        for images in IMAGES:
            with patch.object(grams, "CPU_IMAGES", images):
                taken = milliseconds(gradients, x, g)
            yield "gradients", stage, f"{images} images at once", taken
        rows = normal(3, count, 9 * channels**2)
        plain = lambda rows: jnp.matmul(rows, rows.T, precision=grams.PRECISION)  # noqa: E731
        yield "Gram", stage, "one product", milliseconds(plain, rows)
        for columns in (each for each in COLUMNS if each <= rows.shape[1]):
            with patch.multiple(grams, CPU_COLUMNS=columns, CPU_BYTES=0):
                taken = milliseconds(grams.square, rows)
            yield "Gram", stage, f"{columns} columns at once", taken
    ways = {"one convolution": layers.transposed_convolve, "transposition rule": by_rule}
    for side, channels in STAGES[:-1]:
        x = normal(0, count, side, side, channels)
        g = normal(1, count, side // 2, side // 2, 2 * channels)
        kernel = normal(2, 3, 3, channels, 2 * channels)
        for choice, way in ways.items():
            taken = milliseconds(lambda g, k, x=x, way=way: way(g, k, x, 2), g, kernel)
            yield "transposed, stride 2", f"{side}×{side}×{channels}", choice, taken


def by_rule(g: jax.Array, kernel: jax.Array, x: jax.Array, stride: int) -> jax.Array:
    """The transposed convolution that JAX makes of the convolution."""
    (dx,) = jax.linear_transpose(lambda x: layers.convolve(x, kernel, stride), x)(g)
    return dx


def main(
    count: Annotated[int, typer.Option(help="Images, three times those of a stack.")] = 150,
) -> None:
    """Time single layers with each choice."""
    frame = pd.DataFrame(measure(count), columns=["layer", "stage", "choice", "milliseconds"])
    typer.echo(frame.to_string(index=False, float_format="{:.2f}".format))


if __name__ == "__main__":
    typer.run(main)
