"""Runs of Algorithm 1 beside the bounds: settings, rules, the command."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cells import Task
from cells.nasbench201.space import NASBench201
from cells.residual import Residual
from ntkscore.cli import app
from ntkscore.errors import InputError
from ntkscore.kernels.joint import joint_kernel
from ntkscore.theory.bounds import scaled_step, theorem_step
from ntkscore.theory.energies import label_energy_binary, margin_energy
from ntkscore.theory.infinite_width import infinite_ntk
from ntkscore.theory.settings import Trial
from ntkscore.theory.trials import bound_terms, run_trial, step_size

SPACE = Residual(width=16, output_scale="sqrt_width")
SMALL = Trial(points=30, dimension=5, attack_steps=2)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"beta": 1.5}, "expected beta from 0 to 1, got 1.5"),
        ({"rho": 2.5}, "expected rho from 0 to 2, a chord of the unit sphere, got 2.5"),
        ({"nu": 0.0}, "expected nu above 0, got 0"),
        ({"points": 1}, "expected points to be at least 2, got 1"),
        ({"attack_steps": 0}, "expected attack_steps to be at least 1, got 0"),
        ({"rule": "fast"}, "expected rule to be one of theorem, scaled, constant, got 'fast'"),
    ],
)
def test_a_setting_outside_its_range_is_refused(wrong: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Trial(**wrong)


@pytest.mark.parametrize("task", ["spirals", "mnist", "mnist:1", "mnist:a,b", "mnist:1,2,3"])
def test_an_unknown_task_is_refused(task: str) -> None:
    with pytest.raises(InputError, match="margin, tradeoff, or two classes of a data set"):
        Trial(task=task).draw(0)


def test_digits_are_two_classes_reduced(data_dir: Path) -> None:
    x, y = Trial(task="mnist:3,8", points=40, side=7).draw(1, data_dir)
    assert x.shape == (40, 49) and y.sum() == 0
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1)


def test_terms_are_of_the_joint_kernels() -> None:
    x, y = SMALL.draw(0)
    stack = np.concatenate([x, -x, x[::-1]])
    gram = infinite_ntk(SPACE.on(Task((5,), 1)), "1", stack)
    terms = bound_terms(gram, y, 3, 0.25)
    for error, name in (("clean", "joint_clean"), ("robust", "joint_robust")):
        kernel = joint_kernel(gram, name, 0.25, 30)
        assert terms[f"{error}_label_energy"] == label_energy_binary(kernel, y).value
        assert terms[f"{error}_margin_energy"] == margin_energy(kernel, y).value
        assert terms[f"{error}_largest"] == np.diag(kernel).max()
    energies = [float(terms[f"{error}_label_energy"]) for error in ("clean", "robust")]
    assert step_size("theorem", terms, 30, 16, 1.0, 4.0) == theorem_step(
        min(energies), 16, 30, nu=4.0
    )
    largest, energy = float(terms["clean_largest"]), float(terms["clean_margin_energy"])
    assert step_size("scaled", terms, 30, 16) == scaled_step(energy, largest, 16, 30)


@pytest.mark.thorough
def test_a_trial_is_repeatable_and_goes_on(tmp_path: Path) -> None:
    first = run_trial(SPACE, "10", SMALL, seed=3)
    assert run_trial(SPACE, "10", SMALL, seed=3, out=tmp_path / "run") == first
    assert run_trial(SPACE, "10", SMALL, seed=3, out=tmp_path / "run") == first
    assert run_trial(SPACE, "10", SMALL, seed=4) != first
    with pytest.raises(InputError, match="a run with other settings"):
        run_trial(SPACE, "10", SMALL, seed=4, out=tmp_path / "run")
    with pytest.raises(InputError, match="space of residual networks, got nasbench201"):
        run_trial(NASBench201(), "0", SMALL)


def test_steps_without_an_energy_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from ntkscore.theory import trials

    monkeypatch.setattr(trials, "step_size", lambda *given: float("nan"))
    with pytest.raises(InputError, match=r"the rule theorem has none, .* choose the rule constant"):
        run_trial(SPACE, "1", SMALL)


def test_the_command_prints_the_row() -> None:
    asked = "theory train 1 --space residual --width 16 --output-scale sqrt_width --points 30 "
    asked += "--dimension 5 --attack-steps 2"
    result = CliRunner().invoke(app, [*asked.split(), "--format", "json"])
    assert result.exit_code == 0
    (row,) = json.loads(result.stdout)
    found = run_trial(SPACE, "1", SMALL)
    assert row == {k: pytest.approx(v) if isinstance(v, float) else v for k, v in found.items()}
    shown = CliRunner().invoke(app, asked.split())
    assert "clean_margin_term" in shown.stdout and "width_required" in shown.stdout
