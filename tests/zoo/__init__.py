"""Networks that nothing here was written for, by name, as the users of their library write them."""

from functools import partial

from experiments.tools.networks import of_linen
from zoo.in_linen import (
    MlpMixer,
    MobileNet,
    PixelLSTM,
    Repeated,
    RowGRU,
    ScannedTransformer,
    Standardised,
    Tied,
    WeightNormed,
    convnext,
    densenet,
    resnet18,
    transformer,
    wide_resnet,
)
from zoo.others import ConvNet, arrays, nnx_resnet18, of_equinox, stacked
from zoo.others import RowGRU as EquinoxGRU
from zoo.setting import TINY as TINY
from zoo.setting import Maker, images_of, linen

NETWORKS: dict[str, Maker] = {
    "resnet18": resnet18,
    "resnet18-batch": partial(resnet18, norm="batch"),
    "nnx-resnet18": nnx_resnet18,
    "nnx-resnet18-batch": partial(nnx_resnet18, norm="batch"),
    "wide-resnet": wide_resnet,
    "wide-resnet-batch": partial(wide_resnet, norm="batch"),
    "convnext": convnext,
    "mobilenet": lambda s: of_linen(MobileNet(s), images_of(s)),
    "densenet": densenet,
    "vit": transformer,
    "scanned-vit": partial(transformer, make=ScannedTransformer),
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
