"""Networks that nothing here was written for, by name, as the users of their library write them."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ntkscore.model import Model
from zoo.in_linen import MODULES
from zoo.networks import of_linen
from zoo.others import ConvNet, RowGRU, arrays, nnx_resnet18, of_equinox, stacked

NETWORKS: dict[str, Callable[[Any], Model]] = {
    **{name: partial(of_linen, module) for name, module in MODULES.items()},
    "nnx-resnet18": partial(nnx_resnet18, norm="group"),
    "nnx-resnet18-batch": partial(nnx_resnet18, norm="batch"),
    "stacked": stacked,
    "equinox-convnet": lambda x: of_equinox(ConvNet, 8, 1, images=x),
    "equinox-gru": lambda x: of_equinox(RowGRU, 3 * x.shape[1], 8, images=x),
    "arrays": arrays,
}
"""Makers of a model for some images, by name."""
