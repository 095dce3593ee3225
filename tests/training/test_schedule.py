"""The recipe's settings, the schedule, and the optimiser against PyTorch's."""

import math
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import refuses

from ntkscore.training.optimizer import one_cycle, optimizer
from ntkscore.training.recipe import RECIPES, Recipe


def test_the_schedule_has_the_published_values() -> None:
    code = RECIPES["code"]
    rates, momenta = one_cycle(9800, code.start, 0.1, code.end, code.momentum)
    assert rates[0] == pytest.approx(0.004) and momenta[0] == pytest.approx(0.95)
    assert rates[1000] == pytest.approx(0.0289091, abs=5e-8)
    assert momenta[1000] == pytest.approx(0.924053, abs=5e-7)
    assert rates[5000] == pytest.approx(0.0793337, abs=5e-8)
    assert momenta[5000] == pytest.approx(0.870666, abs=5e-7)
    assert rates.max() == pytest.approx(0.1) and momenta.min() == pytest.approx(0.85)
    assert rates[-1] == pytest.approx(4e-7) and momenta[-1] == pytest.approx(0.95)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 100])
def test_few_steps_have_a_schedule_too(steps: int) -> None:
    rates, momenta = one_cycle(steps, 0.004, 0.1, 4e-7, (0.95, 0.85))
    assert np.isfinite(rates).all() and np.isfinite(momenta).all()
    assert (rates > 0).all() and (rates <= 0.1 + 1e-12).all()


@pytest.mark.parametrize("steps", [10, 100])
def test_a_hundred_steps_are_pytorchs(steps: int, torch: ModuleType) -> None:
    rng = np.random.default_rng(0)
    start, slopes = rng.standard_normal(5), rng.standard_normal((steps, 5))
    recipe = Recipe(epochs=steps, batch=1)
    weight = torch.nn.Parameter(torch.tensor(start))
    theirs = torch.optim.SGD([weight], 0.05, 0.9, weight_decay=recipe.decay)
    cycle = torch.optim.lr_scheduler.OneCycleLR(theirs, 0.1, total_steps=steps)
    with jax.enable_x64(True):
        ours, params = optimizer(recipe, steps), jnp.asarray(start)
        moments = ours.init(params)
        for slope in slopes:
            weight.grad = torch.tensor(slope)
            theirs.step()
            cycle.step() if cycle.last_epoch < steps - 1 else None
            with jax.numpy_dtype_promotion("standard"):
                updates, moments = ours.update(jnp.asarray(slope), moments, params)
            params = optax.apply_updates(params, updates)
            np.testing.assert_allclose(params, weight.detach().numpy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        ({"beta": 1.1}, 1.1),
        ({"beta": math.nan}, "nan"),
        ({"rho": 8.0}, 8),
        ({"epochs": 0}, 0),
        ({"batch": -1}, -1),
        ({"peak": 0.0}, 0),
        ({"weight_decay": 1.0}, 1),
        ({"held_out": -1}, -1),
        ({"recipe": "mine"}, "mine"),
        ({"bn_train": "both"}, "both"),
    ],
)
def test_a_setting_outside_its_range_is_refused(wrong: dict, got: object) -> None:
    with refuses(got, expected=next(iter(wrong))):
        Recipe(**wrong)


def test_recipes_differ_in_decay_start_and_momentum() -> None:
    assert Recipe().decay == 5e-4 and Recipe(recipe="paper").decay == 1e-4
    assert Recipe(recipe="paper", weight_decay=0.0).decay == 0
    assert Recipe(epochs=50).steps(50_000) == 9800
