"""The networks of timm as a space, against timm itself."""

from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import refused

import ntkscore
from cells.timm import Timm
from ntkscore.task import Task

TASK = Task((32, 32, 3), 10, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
NAME = "test_resnet"


@pytest.fixture(scope="module")
def timm(zoo: Any) -> Any:
    return pytest.importorskip("timm", reason="timm is not installed: see the extra `timm`")


def test_a_network_is_that_of_timm(torch: ModuleType, timm: Any) -> None:
    space = Timm().on(TASK)
    state = torch.random.get_rng_state()
    model = space.models[NAME]
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(0)
    module = timm.create_model(NAME, num_classes=10).train()
    points = (space.points - np.float32(TASK.mean)) / np.float32(TASK.std)
    with torch.no_grad():
        expected = module(torch.from_numpy(points).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(
        model.apply(model.params, jnp.asarray(space.points)), expected, 1e-3, 1e-4
    )
    params = sum(each.numel() for each in module.parameters())
    assert space.costs(NAME)["params"] == params
    assert Timm().on(TASK).identity(NAME) == space.identity(NAME)


def test_networks_are_scored_by_name(timm: Any) -> None:
    run = ntkscore.score(NAME, ntkscore.load_images("synthetic", samples=4), space=Timm())
    ranked = run.rank("clean.trace")
    assert ranked["network"].tolist() == [NAME] and ranked["clean.trace"].notna().all()


def test_a_name_that_timm_does_not_know_is_refused(timm: Any) -> None:
    message = "expected a network of timm, one of timm.list_models() such as resnet"
    refused(message, "score", "resnet1", "--space", "timm")
