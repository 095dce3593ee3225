"""Weights and forward pass of a wide residual network: pre-activation blocks in three stages.

A block is BN-ReLU-conv-BN-ReLU-conv beside a shortcut. Where the shape changes, the shortcut is a
1×1 convolution of what the first ReLU returns, else the block's input.

Source: Zagoruyko and Komodakis (2016), "Wide residual networks"; one width and one depth for each
stage as in Huang et al. (2023), "Revisiting residual networks for adversarial robustness".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cells.cell_space import STATISTICS, Variables
from cells.costs import IMAGE_CHANNELS
from cells.initializers import INITIALIZERS, bias_init
from cells.layers import unmeasured, untrained_norm
from cells.rules import Rules, Weights
from cells.wideresnet.space import WideResNet
from cells.wideresnet.stages import Block, Stages
from ntkscore.grams import Images
from ntkscore.model import have_values
from ntkscore.trace.compiled import Chain


@dataclass(frozen=True)
class Piece:
    """The stem, a block or the head of a network, compiled once for its sizes.

    Attributes:
        rules: initialiser, normalisation mode and normaliser of the images.
        compute: `stem`, `block` or `Rules.norm_relu_dense`.
        more: further arguments of it; of a block its stride, in pixels.
    """

    rules: Rules
    compute: Callable[..., tuple[Array, Weights]]
    more: tuple[int, ...] = ()

    @partial(jax.jit, static_argnums=0)
    def measured(self, x: Images, weights: Weights, stored: Weights) -> tuple[Array, Weights]:
        """The output for images, and the normalisations' statistics to store."""
        return self.compute(self.rules, x, weights, stored, *self.more)

    def __call__(self, variables: Variables, x: Images) -> Array:
        return self.measured(x, variables["params"], variables[STATISTICS])[0]


def pieces(rules: Rules, statistics: Weights, params: Weights) -> Sequence[tuple[Piece, Variables]]:
    """A network's pieces, first to last, with their weights and statistics."""
    found = [(Piece(rules, stem), params["stem"], {})]
    for stage, both in enumerate(zip(params["stages"], statistics["stages"], strict=True)):
        for place, each in enumerate(zip(*both, strict=True)):
            found.append((Piece(rules, block, (2 if stage and not place else 1,)), *each))
    found.append((Piece(rules, Rules.norm_relu_dense), params["head"], statistics["head"]))
    return [(piece, {"params": own, STATISTICS: stored}) for piece, own, stored in found]


def passes(rules: Rules, params: Weights, statistics: Weights) -> Chain | None:
    """The passes of a network at these statistics, whose pieces share their programs with others.

    None inside of a function that is compiled, and so is one program.
    """
    known = have_values(params, statistics)
    return Chain(partial(pieces, rules, statistics)) if known else None


def run(
    rules: Rules, params: Weights, statistics: Weights, images: Images
) -> tuple[Float[Array, "m o"], Weights]:
    """Logits of images (pixels in [0, 1]), and the normalisations' statistics to store."""
    x, new = images, []
    for piece, own in pieces(rules, statistics, params):
        x, stored = piece.measured(x, own["params"], own[STATISTICS])
        new.append(stored)
    _, *blocks, last = new
    rest = iter(blocks)
    stages = [[next(rest) for _ in of_stage] for of_stage in statistics["stages"]]
    return x, {"stages": stages, "head": last}


def stem(
    rules: Rules, images: Images, weights: Weights, stored: Weights
) -> tuple[Float[Array, "m h w d"], Weights]:
    """The images, normalised, and their first convolution; no statistics."""
    return rules.convolve(rules.normalized(images), weights["kernel"]), stored


def block(
    rules: Rules, x: Images, weights: Weights, stored: Weights, stride: int
) -> tuple[Float[Array, "m h2 w2 d"], Weights]:
    """A block's output, and its statistics."""
    y, first = rules.normalize(x, weights["norm1"], stored["norm1"])
    y = jax.nn.relu(y)
    if "shortcut" in weights:
        x = rules.convolve(y, weights["shortcut"]["kernel"], stride)
    y = rules.convolve(y, weights["conv1"]["kernel"], stride)
    y, second = rules.normalize(y, weights["norm2"], stored["norm2"])
    y = rules.convolve(jax.nn.relu(y), weights["conv2"]["kernel"])
    return x + y, {"norm1": first, "norm2": second}


def draw(space: WideResNet, architecture: Stages, key: Array) -> Variables:
    """Untrained weights, and statistics of mean 0 and variance 1, in float32."""
    kernel, stages = INITIALIZERS[space.init].kernel, architecture.blocks(space.channels)

    def conv(key: Array, size: int, before: int, after: int) -> dict[str, Array]:
        return {"kernel": kernel(key, (size, size, before, after), jnp.float32)}

    def of_block(key: Array, sizes: Block) -> Weights:
        first, second, third = jax.random.split(key, 3)
        before, after = sizes.before, sizes.after
        weights = {
            "norm1": untrained_norm(before),
            "conv1": conv(first, 3, before, after),
            "norm2": untrained_norm(after),
            "conv2": conv(second, 3, after, after),
        }
        return weights | ({"shortcut": conv(third, 1, before, after)} if sizes.projects else {})

    start, end, *keys = jax.random.split(key, 2 + len(stages))
    width = stages[-1][-1].after
    linear, bias = jax.random.split(end)
    params = {
        "stem": conv(start, 3, IMAGE_CHANNELS, space.channels),
        "stages": [
            [of_block(jax.random.fold_in(key, place), sizes) for place, sizes in enumerate(blocks)]
            for key, blocks in zip(keys, stages, strict=True)
        ],
        "head": untrained_norm(width)
        | {
            "kernel": kernel(linear, (width, space.task.num_classes), jnp.float32),
            "bias": bias_init(space.init, width)(bias, (space.task.num_classes,), jnp.float32),
        },
    }
    return {"params": params, STATISTICS: unmeasured(params)}
