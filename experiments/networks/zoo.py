"""Networks by name, each written the way that its library's users write it."""

from collections.abc import Callable
from functools import partial

from flax import linen as nn

from experiments.networks.convolutional import DenseNet, MobileNet, convnext
from experiments.networks.equinox_networks import ConvNet, of_equinox
from experiments.networks.equinox_networks import RowGRU as EquinoxGRU
from experiments.networks.residual import nnx_resnet18, resnet18, wide_resnet
from experiments.networks.setting import Network, Scale, of_linen
from experiments.networks.shared import (
    PixelLSTM,
    Repeated,
    RowGRU,
    Standardised,
    Tied,
    WeightNormed,
    arrays,
    stacked,
)
from experiments.networks.tokens import MlpMixer, transformer

Maker = Callable[[Scale], Network]


def linen(make: Callable[..., nn.Module], width: int, layers: int | None = None) -> Maker:
    """A maker of a linen module, given its published width and, where it has them, layers."""

    def at(scale: Scale) -> Network:
        sizes = [scale.channels(width)] + ([scale.layers(layers)] if layers else [])
        return of_linen(make(*sizes), scale)

    return at


NETWORKS: dict[str, Maker] = {
    "resnet18": resnet18,
    "resnet18-batch": partial(resnet18, norm="batch"),
    "nnx-resnet18": nnx_resnet18,
    "nnx-resnet18-batch": partial(nnx_resnet18, norm="batch"),
    "wide-resnet": wide_resnet,
    "wide-resnet-batch": partial(wide_resnet, norm="batch"),
    "convnext": convnext,
    "mobilenet": lambda s: of_linen(MobileNet(s), s),
    "densenet": lambda s: of_linen(DenseNet(s.channels(12), s.stages(3), s.layers(6)), s),
    "vit": transformer,
    "scanned-vit": partial(transformer, scanned=True),
    "mixer": linen(MlpMixer, 192, 6),
    "tied": linen(Tied, 256),
    "repeated": linen(Repeated, 64, 6),
    "row-gru": linen(RowGRU, 128),
    "pixel-lstm": linen(PixelLSTM, 64),
    "stacked": stacked,
    "standardised": linen(Standardised, 64, 4),
    "weight-normed": linen(WeightNormed, 64, 4),
    "equinox-convnet": lambda s: of_equinox(ConvNet, s.channels(64), s.layers(4), scale=s),
    "equinox-gru": lambda s: of_equinox(EquinoxGRU, 3 * s.side, s.channels(128), scale=s),
    "arrays": arrays,
}
"""Makers of a model and of images for it, by name."""
