"""Every choice that can be wrong is refused with its own sentence."""

import pytest

from ntkscore.config import Config, format_rho, parse_fraction
from ntkscore.errors import InputError


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"init": "lecun"}, "expected init to be one of torch, he, .*, got 'lecun'"),
        ({"bn": "eval"}, "expected bn to be one of calibrated, init, batch, got 'eval'"),
        ({"output": "mean"}, "expected output to be one of sum, trace, label, loss, got 'mean'"),
        ({"parameters": "bias"}, "expected parameters to be one of all, weights, conv_linear"),
        ({"attack": "cw"}, "expected attack to be one of fgsm, pgd, got 'cw'"),
        ({"implementation": "fast"}, "expected implementation to be one of auto, jacobian, ntvp"),
        ({"channels": 0}, "expected channels to be at least 1, got 0"),
        ({"cells_per_stage": -1}, "expected cells_per_stage to be at least 1, got -1"),
        ({"samples": 1}, "expected at least 2 samples, got 1"),
        ({"rhos": ()}, "expected at least one rho, got none"),
        ({"rhos": (-0.1,)}, "expected rho from 0 to 1, got -0.1; write 8/255"),
        ({"rhos": (8.0,)}, "expected rho from 0 to 1, got 8; write 8/255"),
        ({"rhos": (float("nan"),)}, "expected rho from 0 to 1, got nan"),
        ({"betas": (1.5,)}, "expected beta from 0 to 1, got 1.5"),
        ({"betas": (-0.5,)}, "expected beta from 0 to 1, got -0.5"),
        ({"steps": 7}, "expected neither steps nor a step size with fgsm.*choose the attack pgd"),
        ({"random_start": True}, "expected no random start with fgsm"),
        ({"attack": "pgd", "steps": 0}, "expected at least 1 step, got 0"),
        ({"attack": "pgd", "step_size": 0.0}, "expected a step size above 0 and at most 1, got 0"),
        ({"bn": "batch", "implementation": "jacobian"}, "expected the implementation ntvp"),
    ],
)
def test_bad_choices_are_refused(choices: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Config(**choices)


def test_the_benchmarks_training_attack_is_pgds_default() -> None:
    config = Config(attack="pgd")
    assert config.attack_steps == 7
    assert config.attack_step_size(8 / 255) == pytest.approx(2 / 255)
    assert Config().attack_step_size(3 / 255) == 3 / 255
    assert Config().attack_steps == 1


def test_auto_takes_the_fast_kernel_wherever_it_is_exact() -> None:
    assert Config().resolved_implementation == "jacobian"
    assert Config(bn="init").resolved_implementation == "jacobian"
    assert Config(bn="batch").resolved_implementation == "ntvp"
    assert Config(implementation="ntvp").resolved_implementation == "ntvp"


def test_fractions() -> None:
    assert parse_fraction("8/255") == 8 / 255
    assert parse_fraction("0.03") == 0.03
    for text in ("8/0", "eight", "1/2/3", ""):
        with pytest.raises(InputError, match="expected a number or a fraction such as 8/255"):
            parse_fraction(text)
    assert format_rho(8 / 255) == "8/255"
    assert format_rho(0.05) == "0.05"
