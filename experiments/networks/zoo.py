"""Networks by name, each written the way that its library's users write it."""

from collections.abc import Callable
from functools import partial

from experiments.networks import convolutional, equinox_networks, residual, shared, tokens
from experiments.networks.setting import Network, Scale

NETWORKS: dict[str, Callable[[Scale], Network]] = {
    "resnet18": residual.resnet18,
    "resnet18-batch": partial(residual.resnet18, norm="batch"),
    "nnx-resnet18": residual.nnx_resnet18,
    "nnx-resnet18-batch": partial(residual.nnx_resnet18, norm="batch"),
    "wide-resnet": residual.wide_resnet,
    "wide-resnet-batch": partial(residual.wide_resnet, norm="batch"),
    "convnext": convolutional.convnext,
    "mobilenet": convolutional.mobilenet,
    "densenet": convolutional.densenet,
    "vit": tokens.vit,
    "scanned-vit": tokens.scanned_vit,
    "mixer": tokens.mixer,
    "tied": shared.tied,
    "repeated": shared.repeated,
    "row-gru": shared.row_gru,
    "pixel-lstm": shared.pixel_lstm,
    "stacked": shared.stacked,
    "standardised": shared.standardised,
    "weight-normed": shared.weight_normed,
    "equinox-convnet": equinox_networks.convnet,
    "equinox-gru": equinox_networks.row_gru,
    "arrays": shared.arrays,
}
"""Makers of a model and of images for it, by name."""
