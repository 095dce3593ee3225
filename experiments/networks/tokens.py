"""Networks over tokens, in linen: vision transformer, MLP-Mixer, and layers stacked by a scan."""

import jax.numpy as jnp
from flax import linen as nn

from experiments.networks.setting import CLASSES, Network, Scale, of_linen

PATCH = 4


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


class ScannedBlock(nn.Module):
    """An encoder's block as `nn.scan` takes it: a carry, and nothing beside it."""

    heads: int

    @nn.compact
    def __call__(self, x, _):
        return EncoderBlock(self.heads)(x), None


class VisionTransformer(nn.Module):
    """Patches, a class token, positions and encoder blocks."""

    width: int
    depth: int
    heads: int
    scanned: bool = False

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.width, (PATCH, PATCH), (PATCH, PATCH), padding="VALID", name="embed")(x)
        n, h, w, c = x.shape
        token = self.param("cls", nn.initializers.zeros, (1, 1, c))
        x = jnp.concatenate([jnp.tile(token, [n, 1, 1]), x.reshape(n, h * w, c)], axis=1)
        x = x + self.param("pos_embedding", nn.initializers.normal(0.02), (1, h * w + 1, c))
        if self.scanned:
            layers = nn.scan(
                nn.remat(ScannedBlock, prevent_cse=False),
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=self.depth,
            )
            x, _ = layers(self.heads, name="layers")(x, None)
        else:
            for layer in range(self.depth):
                x = EncoderBlock(self.heads, name=f"encoderblock_{layer}")(x)
        return nn.Dense(CLASSES, name="head")(nn.LayerNorm(name="encoder_norm")(x)[:, 0])


class MixerBlock(nn.Module):
    """A perceptron across tokens, then one across channels."""

    tokens: int
    channels: int

    @nn.compact
    def __call__(self, x):
        y = jnp.swapaxes(nn.LayerNorm()(x), 1, 2)
        y = MlpBlock(self.tokens, name="token_mixing")(y)
        x = x + jnp.swapaxes(y, 1, 2)
        return x + MlpBlock(self.channels, name="channel_mixing")(nn.LayerNorm()(x))


class MlpMixer(nn.Module):
    """Patches and mixer blocks."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.width, (PATCH, PATCH), (PATCH, PATCH), name="stem")(x)
        n, h, w, c = x.shape
        x = x.reshape(n, h * w, c)
        for _ in range(self.depth):
            x = MixerBlock(self.width // 2, 4 * self.width)(x)
        x = nn.LayerNorm(name="pre_head_layer_norm")(x)
        return nn.Dense(CLASSES, name="head")(jnp.mean(x, axis=1))


def transformer(scale: Scale, scanned: bool = False) -> Network:
    """Vision transformer, 192 wide and 6 deep."""
    width = scale.channels(192)
    heads = next(heads for heads in (3, 2) if width % heads == 0)
    return of_linen(VisionTransformer(width, scale.layers(6), heads, scanned), scale)
