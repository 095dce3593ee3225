"""Runs of Algorithm 1 beside the bounds: settings, rules, the command."""

from pathlib import Path

import numpy as np
import pytest

from cells.residual import Residual
from experiments.theory.energies import label_energy_binary, margin_energy
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.tasks import draw
from experiments.theory.trials import bound_terms, run_trial, step_size
from ntkscore import Task
from ntkscore.errors import InputError
from ntkscore.kernels.joint import joint_kernel

SPACE = Residual(width=16, output_scale="sqrt_width")
SMALL = draw("margin", 30, dimension=5)


def trial(**choices) -> dict[str, object]:
    return run_trial(SPACE, **{"architecture": "1", "points": SMALL, "attack_steps": 2} | choices)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InputError, match="expected a rule of theorem, scaled, constant, got 'fa"):
        trial(rule="fast")


@pytest.mark.parametrize("task", ["spirals", "mnist", "mnist:1", "mnist:a,b", "mnist:1,2,3"])
def test_an_unknown_task_is_refused(task: str) -> None:
    with pytest.raises(InputError, match="margin, tradeoff, or two classes of a data set"):
        draw(task, 10)


def test_digits_are_two_classes_reduced(data_dir: Path) -> None:
    x, y = draw("mnist:3,8", 40, side=7, seed=1, data_dir=data_dir)
    assert x.shape == (40, 49) and y.sum() == 0
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1)


def test_terms_are_of_the_joint_kernels() -> None:
    x, y = SMALL
    stack = np.concatenate([x, -x, x[::-1]])
    gram = infinite_ntk(SPACE.on(Task((5,), 1)), "1", stack)
    terms = bound_terms(gram, y, 3, 0.25)
    for error, name in (("clean", "joint_clean"), ("robust", "joint_robust")):
        kernel = joint_kernel(gram, name, 0.25, 30)
        assert terms[f"{error}_label_energy"] == label_energy_binary(kernel, y).value
        assert terms[f"{error}_margin_energy"] == margin_energy(kernel, y).value
        assert terms[f"{error}_largest"] == np.diag(kernel).max()
    given = {"clean_label_energy": 64.0, "robust_label_energy": 70.0}
    given |= {"clean_margin_energy": 4.0, "clean_largest": 0.25}
    theorem = 3 * 8 / (np.sqrt(0.5) * np.exp(0.5) * 10 * 4)
    assert step_size("theorem", given, 16, 10, 0.5, 3) == pytest.approx(theorem)
    assert step_size("scaled", given, 16, 10, nu=3) == pytest.approx(3 * np.sqrt(4 / 4) / 10)


def test_steps_without_an_energy_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.theory import trials

    monkeypatch.setattr(trials, "step_size", lambda *given: float("nan"))
    with pytest.raises(InputError, match=r"the rule theorem has none, .* choose the rule constant"):
        trial()
