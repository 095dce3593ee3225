"""PyTorch's own per-image gradients as an oracle: same weights, another library."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cells.nasbench201.space import NASBench201
from experiments.tools.benchmark import clean_kernel, torch_kernel, torch_network
from ntkscore.config import Config
from ntkscore.data.images import load_images
from ntkscore.run.scorer import Scorer


@pytest.mark.slow
def test_the_clean_kernel_is_that_of_pytorch(torch: ModuleType) -> None:
    data = load_images("synthetic", samples=4)
    space = NASBench201(channels=4, cells_per_stage=1).on(data.task)
    batch = Scorer(space, Config()).batch(*data.draw(0), 0)
    ours = clean_kernel(space, "layerwise")
    for digits in ("323133", "421211", "012340"):
        cell = space.parse(digits)
        reference = torch_kernel(space, cell, batch)().numpy()
        error = np.linalg.norm(ours(cell, batch) - reference) / np.linalg.norm(reference)
        # In float32 a rounded activation may lie on the other side of a kink (docs/running.md).
        assert error < 1e-2


@pytest.mark.slow
def test_instance_normalisation_is_training_mode_one_image_at_a_time(torch: ModuleType) -> None:
    data = load_images("synthetic", samples=4)
    space = NASBench201(channels=4, cells_per_stage=1, bn="instance").on(data.task)
    batch = Scorer(space, Config()).batch(*data.draw(0), 0)
    ours = clean_kernel(space, "layerwise")
    for digits in ("323133", "012340"):
        cell = space.parse(digits)
        network, images = torch_network(space, cell, batch)
        reference = one_image_at_a_time(torch, network.train(), images)
        error = np.linalg.norm(ours(cell, batch) - reference) / np.linalg.norm(reference)
        assert error < 1e-2
        frozen = one_image_at_a_time(torch, network.eval(), images)
        assert np.linalg.norm(frozen - reference) > 0.1 * np.linalg.norm(reference)


def one_image_at_a_time(torch: Any, network: Any, images: Any) -> np.ndarray:
    """The kernel of the summed logits of batches of one."""
    rows = []
    for image in images:
        network.zero_grad()
        network(image[None]).sum().backward()
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        rows.append(torch.cat([gradient.reshape(-1) for gradient in gradients]))
    jacobian = torch.stack(rows)
    return (jacobian @ jacobian.T).numpy()
