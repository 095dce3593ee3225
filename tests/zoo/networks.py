"""ResNet-18 and a vision transformer, as the examples of flax write them; and their kernels' time.

From the root of a clone: `PYTHONPATH=tests python -m zoo.networks --help`.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from flax import linen as nn
from jaxtyping import Array, Float, PyTree

from experiments.page import markdown_table
from experiments.tools.clock import peak_bytes
from ntkscore import ntk
from ntkscore.errors import check_choice
from ntkscore.model import Model, Points
from ntkscore.run.targets import GIB

CLASSES, PATCH = 10, 4
SPREAD = 0.1
"""Standard deviation of scales around one, and of shifts."""
Norm = Callable[..., Any]


def images_of(points: int, side: int = 32, dtype: Any = jnp.float32) -> Float[Array, "m h w 3"]:
    """Images of random pixels in [0, 1]."""
    shape = points, side, side, 3
    return jnp.asarray(np.random.default_rng(0).uniform(size=shape), dtype)


def drawn(shapes: PyTree, dtype: Any) -> PyTree:
    """Random weights and statistics of these shapes, in which no scale is one and no shift zero.

    Weights vary with their fan-in, scales and variances about one, shifts and means about zero.
    """
    rng = np.random.default_rng(1)

    def one(path: tuple, leaf: Any) -> Array:
        name, noise = jax.tree_util.keystr(path), rng.standard_normal(leaf.shape)
        if "bias" in name or "mean" in name:
            noise *= SPREAD
        elif "scale" in name or len(leaf.shape) < 2:
            noise = 1 + SPREAD * noise
        else:
            noise /= math.prod(leaf.shape[:-1]) ** 0.5
        return jnp.asarray(noise, dtype)

    return jax.tree_util.tree_map_with_path(one, shapes)


def of_linen(module: nn.Module, images: Float[Array, "m h w c"]) -> Model:
    """A linen module in evaluation mode, for such images: its params, all other variables fixed."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), images[:1])
    variables = {name: drawn(part, images.dtype) for name, part in shapes.items()}
    params = variables.pop("params")

    def apply(params: PyTree, x: Array) -> Any:
        return module.apply({"params": params, **variables}, x)

    return Model(apply, params)


def blocks_of(stages: Iterable[int]) -> list[tuple[int, int]]:
    """The width of each block, as a multiple of the first, and its stride."""
    return [
        (2**stage, 2 if stage > 0 and block == 0 else 1)
        for stage, blocks in enumerate(stages)
        for block in range(blocks)
    ]


def norm_of(kind: str, channels: int) -> Norm:
    """`GroupNorm` of at most 32 groups, or `BatchNorm` by running averages."""
    if kind == "batch":
        return partial(nn.BatchNorm, use_running_average=True, momentum=0.9)
    return partial(nn.GroupNorm, num_groups=min(32, channels // 2))


class ResNetBlock(nn.Module):
    """Two convolutions and a skip connection."""

    filters: int
    norm: Norm
    strides: tuple[int, int] = (1, 1)

    @nn.compact
    def __call__(self, x):
        conv, residual = partial(nn.Conv, use_bias=False), x
        y = nn.relu(self.norm()(conv(self.filters, (3, 3), self.strides)(x)))
        y = conv(self.filters, (3, 3))(y)
        y = self.norm(scale_init=nn.initializers.zeros_init())(y)
        if residual.shape != y.shape:
            residual = conv(self.filters, (1, 1), self.strides, name="conv_proj")(residual)
            residual = self.norm(name="norm_proj")(residual)
        return nn.relu(residual + y)


class ResNet(nn.Module):
    """ResNet with a stem for CIFAR: no first stride, no max pooling."""

    filters: int
    norm: Norm
    stages: tuple[int, ...] = (2, 2, 2, 2)

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.filters, (3, 3), use_bias=False, name="conv_init")(x)
        x = nn.relu(self.norm(name="norm_init")(x))
        for times, stride in blocks_of(self.stages):
            x = ResNetBlock(self.filters * times, self.norm, (stride, stride))(x)
        return nn.Dense(CLASSES)(jnp.mean(x, axis=(1, 2)))


class MlpBlock(nn.Module):
    """A perceptron at each token."""

    hidden: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(self.hidden)(x)))


class EncoderBlock(nn.Module):
    """Attention and a perceptron, each after a normalisation and beside a skip connection."""

    heads: int

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads, deterministic=True)(y, y)
        return x + MlpBlock(4 * x.shape[-1])(nn.LayerNorm()(x))


class VisionTransformer(nn.Module):
    """Patches, a class token, positions and layers."""

    width: int
    heads: int
    depth: int

    def encode(self, x):
        """Apply blocks, one after the other."""
        for layer in range(self.depth):
            x = EncoderBlock(self.heads, name=f"encoderblock_{layer}")(x)
        return x

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.width, (PATCH, PATCH), (PATCH, PATCH), padding="VALID", name="embed")(x)
        n, h, w, c = x.shape
        token = self.param("cls", nn.initializers.zeros, (1, 1, c))
        x = jnp.concatenate([jnp.tile(token, [n, 1, 1]), x.reshape(n, h * w, c)], axis=1)
        x = x + self.param("pos_embedding", nn.initializers.normal(0.02), (1, h * w + 1, c))
        x = nn.LayerNorm(name="encoder_norm")(self.encode(x))
        return nn.Dense(CLASSES, name="head")(x[:, 0])


NETWORKS: dict[str, nn.Module] = {
    "resnet18": ResNet(64, norm_of("group", 64)),
    "vit": VisionTransformer(192, 3, 6),
}


def plain_kernel(model: Model, points: Points) -> Float[Array, "m m"]:
    """The kernel of the logits' sum as its definition reads: the Jacobian, leaf by leaf."""
    return _plain(model.apply, model.params, points)


@partial(jax.jit, static_argnums=0)
def _plain(apply: Any, params: Any, points: Points) -> Array:
    def read(params: Any, point: Array) -> Array:
        return jnp.sum(apply(params, point[None]))

    jacobian = jax.vmap(jax.grad(read), (None, 0))(params, points)
    rows = [leaf.reshape(len(points), -1) for leaf in jax.tree.leaves(jacobian)]
    grams = [jnp.matmul(each, each.T, precision="highest") for each in rows]
    return sum(grams[1:], grams[0])


METHODS: dict[str, Callable[..., Any]] = {"ntk": ntk, "vmap(grad)": plain_kernel}


def measure(name: str, method: str, points: int) -> tuple[float, float]:
    """Seconds of a kernel's second computation, and the peak memory of its process in GiB."""
    images = images_of(points)
    model = of_linen(NETWORKS[name], images)
    for _ in range(2):
        start = time.perf_counter()
        jax.block_until_ready(METHODS[method](model, images))
        elapsed = time.perf_counter() - start
    return elapsed, peak_bytes() / GIB


def networks(
    names: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(NETWORKS)}.")] = None,
    points: Annotated[list[int] | None, typer.Option(help="Numbers of images.")] = None,
) -> None:
    """Time the kernels of networks of one's own, beside the plain Jacobian."""
    for name in names or ():
        check_choice(name, tuple(NETWORKS), "the network")
    rows = []
    for name, count in itertools.product(names or NETWORKS, points or (16, 50, 150)):
        rows.append([name, count])
        for method in METHODS:  # each in a process of its own, which has a peak of its own
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                rows[-1] += alone.submit(measure, name, method, count).result()
    head = "network", "points", *(f"{m}, {unit}" for m in METHODS for unit in ("s", "GiB"))
    typer.echo(markdown_table(head, rows))


if __name__ == "__main__":
    typer.run(networks)
