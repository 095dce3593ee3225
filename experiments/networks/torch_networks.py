"""The same networks in PyTorch, for a comparison of speed: ResNet, WideResNet, vision transformer.

Modules bear the names of the linen ones, so that weights are loaded by their paths.
"""

from collections import OrderedDict
from typing import Any

import torch  # type: ignore[import-not-found]
from torch import nn  # type: ignore[import-not-found]
from torch.nn import functional as F  # type: ignore[import-not-found]

from experiments.networks.residual import blocks_of
from experiments.networks.setting import CLASSES
from experiments.networks.tokens import PATCH

EPSILON = 1e-6
"""Flax's, beside a variance."""


def convolution(before: int, after: int, size: int, stride: int = 1) -> nn.Module:
    """A convolution without bias that pads as XLA's SAME does: by one more pixel at the end."""
    padding = max(size - stride, 0)
    low = padding // 2
    pad = nn.ZeroPad2d((low, padding - low, low, padding - low))
    kernel = nn.Conv2d(before, after, size, stride, bias=False)
    return nn.Sequential(pad, kernel) if padding else kernel


def norm(channels: int, groups: int) -> nn.Module:
    """Group normalisation."""
    return nn.GroupNorm(groups, channels, EPSILON)


class ResNetBlock(nn.Module):
    """Two convolutions and a skip connection."""

    def __init__(self, before: int, after: int, stride: int, groups: int) -> None:
        super().__init__()
        self.Conv_0, self.GroupNorm_0 = convolution(before, after, 3, stride), norm(after, groups)
        self.Conv_1, self.GroupNorm_1 = convolution(after, after, 3), norm(after, groups)
        self.projects = (before, stride) != (after, 1)
        if self.projects:
            self.conv_proj, self.norm_proj = (
                convolution(before, after, 1, stride),
                norm(after, groups),
            )

    def forward(self, x: Any) -> Any:
        y = F.relu(self.GroupNorm_0(self.Conv_0(x)))
        y = self.GroupNorm_1(self.Conv_1(y))
        return F.relu(y + (self.norm_proj(self.conv_proj(x)) if self.projects else x))


def staged(
    make: type[nn.Module], filters: int, stages: tuple[int, ...], before: int, groups: int
) -> nn.Sequential:
    """Blocks under linen's names, in stages, each twice as wide and half as large as the last.

    Args:
        make: the class of the blocks.
        filters: channels of the first stage's blocks.
        stages: blocks in each stage.
        before, groups: channels of the input, and groups of the normalisations.
    """
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    for block, (times, stride) in enumerate(blocks_of(stages)):
        blocks[f"{make.__name__}_{block}"] = make(before, filters * times, stride, groups)
        before = filters * times
    return nn.Sequential(blocks)


class ResNet(nn.Module):
    """ResNet with a stem for CIFAR."""

    def __init__(self, filters: int, stages: tuple[int, ...]) -> None:
        super().__init__()
        groups = min(32, filters // 2)
        self.conv_init, self.norm_init = convolution(3, filters, 3), norm(filters, groups)
        self.blocks = staged(ResNetBlock, filters, stages, filters, groups)
        self.Dense_0 = nn.Linear(filters * 2 ** (len(stages) - 1), CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.blocks(F.relu(self.norm_init(self.conv_init(x))))
        return self.Dense_0(x.mean((2, 3)))


class WideBlock(nn.Module):
    """Normalisation and ReLU before each of two convolutions."""

    def __init__(self, before: int, after: int, stride: int, groups: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = norm(before, groups), convolution(before, after, 3, stride)
        self.norm2, self.conv2 = norm(after, groups), convolution(after, after, 3)
        self.projects = (before, stride) != (after, 1)
        if self.projects:
            self.shortcut = convolution(before, after, 1, stride)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm1(x))
        shortcut = self.shortcut(y) if self.projects else x
        return shortcut + self.conv2(F.relu(self.norm2(self.conv1(y))))


class WideResNet(nn.Module):
    """WideResNet."""

    def __init__(self, filters: int, stages: tuple[int, ...]) -> None:
        super().__init__()
        first = filters // 2
        groups = min(32, first // 2)
        self.conv_init = convolution(3, first, 3)
        self.blocks = staged(WideBlock, filters, stages, first, groups)
        last = filters * 2 ** (len(stages) - 1)
        self.norm_final, self.Dense_0 = norm(last, groups), nn.Linear(last, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.blocks(self.conv_init(x))
        return self.Dense_0(F.relu(self.norm_final(x)).mean((2, 3)))


class Attention(nn.Module):
    """Self-attention by several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Any) -> Any:
        q, k, v = (
            each(x).unflatten(-1, (self.heads, -1)).transpose(-3, -2)
            for each in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(-3, -2).flatten(-2))


class MlpBlock(nn.Module):
    """A perceptron at each token; linen names its layers from the outside in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.Dense_1, self.Dense_0 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        return self.Dense_0(F.gelu(self.Dense_1(x), approximate="tanh"))


class EncoderBlock(nn.Module):
    """Attention and a perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.LayerNorm_0, self.LayerNorm_1 = (nn.LayerNorm(width, EPSILON) for _ in range(2))
        self.MultiHeadDotProductAttention_0 = Attention(width, heads)
        self.MlpBlock_0 = MlpBlock(width)

    def forward(self, x: Any) -> Any:
        x = x + self.MultiHeadDotProductAttention_0(self.LayerNorm_0(x))
        return x + self.MlpBlock_0(self.LayerNorm_1(x))


class VisionTransformer(nn.Module):
    """Patches, a class token, positions and encoder blocks."""

    def __init__(self, width: int, depth: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, PATCH, PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embedding = nn.Parameter(torch.zeros(1, tokens + 1, width))
        layers = {f"encoderblock_{i}": EncoderBlock(width, heads) for i in range(depth)}
        self.blocks = nn.Sequential(OrderedDict(layers))
        self.encoder_norm, self.head = nn.LayerNorm(width, EPSILON), nn.Linear(width, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos_embedding
        return self.head(self.encoder_norm(self.blocks(x))[:, 0])


def load(network: nn.Module, weights: dict[str, Any]) -> None:
    """Give a network the weights of the same one in linen, arrays by path, names joined by dots."""
    state = {}
    for name, like in network.state_dict().items():
        # Within a padded convolution the kernel is the second module.
        path = name.removeprefix("blocks.").replace(".1.weight", ".weight")
        layer = path.removesuffix(".weight")
        if f"{layer}.kernel" in weights:
            kernel = torch.tensor(weights[f"{layer}.kernel"])
            # PyTorch has a kernel's outputs first.
            array = (
                kernel.permute(3, 2, 0, 1) if like.ndim == 4 else kernel.reshape(-1, len(like)).T
            )
        else:
            array = torch.tensor(weights[path if path in weights else f"{layer}.scale"])
        state[name] = array.reshape(like.shape)
    network.load_state_dict(state)
