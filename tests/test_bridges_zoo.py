"""Well-known networks through the bridge: each is right.

timm's are skipped where it is not installed.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import ntkscore

pytestmark = pytest.mark.thorough

TORCHVISION: dict[str, dict[str, Any]] = {
    "alexnet": {"size": 64},
    "vgg11": {},
    "resnet18": {},
    "resnext50_32x4d": {},
    "densenet121": {},
    "googlenet": {"init_weights": False, "size": 64},
    "inception_v3": {"init_weights": False, "size": 75},
    "squeezenet1_1": {},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "mnasnet0_5": {},
    "shufflenet_v2_x0_5": {},
    "efficientnet_b0": {},
    "regnet_y_400mf": {},
    "convnext_tiny": {},
    "swin_t": {},
    "swin_v2_t": {},
    "vit_b_16": {"image_size": 32},
}
TIMM: dict[str, dict[str, Any]] = {
    "resnetv2_18d": {},
    "mixer_s32_224": {"img_size": 32},
    "vit_tiny_patch16_224": {"img_size": 32},
    "deit_tiny_distilled_patch16_224": {"img_size": 32},
    "convmixer_768_32": {},
    "ghostnet_050": {},
    "mobileone_s0": {},
    "repvgg_a0": {},
    "nf_resnet26": {},
    "efficientvit_b0": {},
    "fastvit_t8": {},
    "edgenext_xx_small": {"size": 64},
    "xcit_nano_12_p8_224": {},
    "poolformerv2_s12": {},
    "coatnet_nano_rw_224": {"img_size": 64, "size": 64},
}


def judge(torch: Any, build: Callable[..., Any], options: dict[str, Any]) -> None:
    """`from_torch` itself compares logits and all gradients with PyTorch's."""
    torch.manual_seed(0)
    module = build(num_classes=10, **{k: v for k, v in options.items() if k != "size"})
    size = options.get("size", 32)
    points = np.random.default_rng(3).uniform(size=(2, size, size, 3)).astype(np.float32)
    assert ntkscore.from_torch(module, points).params


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvisions_families(torch: ModuleType, zoo: Any, name: str) -> None:
    judge(torch, getattr(zoo, name), TORCHVISION[name])


def test_a_small_maxvit(torch: ModuleType, zoo: Any) -> None:
    """At the sizes of maxvit_t, partitions of 7 need images of 224²."""
    options = {"stem_channels": 8, "partition_size": 2, "head_dim": 4, "stochastic_depth_prob": 0.2}
    options |= {"input_size": (16, 16), "block_channels": [8, 16], "block_layers": [1, 1]}
    judge(torch, zoo.MaxVit, options | {"size": 16})


@pytest.mark.parametrize("name", TIMM)
@pytest.mark.filterwarnings("ignore")  # of timm and of what it imports
def test_timms_families(torch: ModuleType, zoo: Any, name: str) -> None:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    judge(torch, lambda **options: timm.create_model(name, **options), TIMM[name])
