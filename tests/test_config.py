"""Every choice that can be wrong is refused with its own sentence."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import refuses

from attacks import Attack, fgsm
from cells.residual import Residual
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.kernels.attacks import ATTACKS
from ntkscore.task import Task
from ntkscore.text import format_rho, parse_fraction


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"output": "mean"}, "expected output to be one of sum, trace, label, loss, got 'mean'"),
        ({"parameters": "bias"}, "expected parameters to be one of all, weights, conv_linear"),
        (
            {"attack": "cw"},
            "expected attack to be one of apgd, fgsm, pgd, square, got 'cw'; choose one",
        ),
        ({"norm": "l1"}, "expected norm to be one of linf, l2, got 'l1'"),
        (
            {"implementation": "fast"},
            "expected implementation to be one of auto, layerwise, contraction, ntvp, got 'fast'",
        ),
        ({"samples": "8"}, "expected samples to be of the type int, such as 50, got '8'; correct"),
        ({"samples": True}, "expected samples to be of the type int, such as 50, got True"),
        ({"betas": "0.5"}, r"expected betas to be of the type tuple, such as \(0.5,\), got '0.5'"),
        (
            {"samples": 0},
            "expected at least 2 samples, whose kernel can tell them apart, got 0; raise it",
        ),
        ({"samples": 1}, "expected at least 2 samples, whose kernel can tell them apart, got 1"),
        ({"rhos": ()}, "expected at least one rho, got none; give one"),
        (
            {"rhos": (-0.1,)},
            "expected a radius in linf from 0 to 1 on the pixel scale, got -0.1; write 8/255",
        ),
        (
            {"rhos": (8.0,)},
            "expected a radius in linf from 0 to 1 on the pixel scale, got 8; write 8/255",
        ),
        (
            {"rhos": (float("nan"),)},
            "expected a radius in linf from 0 to 1 on the pixel scale, got nan",
        ),
        ({"rhos": (0.1, 0.2, 0.1)}, "expected every rho once, got 0.1 again; leave it out"),
        # Rows would not tell them apart.
        ({"rhos": (0.1, 0.1 + 1e-12)}, "expected every rho once, got 0.1 again"),
        ({"betas": ()}, "expected at least one beta, got none; give one"),
        ({"betas": (1.5,)}, "expected beta from 0 to 1, got 1.5; 0 is clean"),
        ({"betas": (-0.5,)}, "expected beta from 0 to 1, got -0.5"),
        ({"betas": (0.5, 0.0, 0.5)}, "expected every beta once, got 0.5 again; leave it out"),
        (
            {"steps": 7},
            "expected no steps with fgsm, which has none, got 7; leave it out, or choose the "
            "attack apgd or pgd",
        ),
        ({"rhos": ("8/255",)}, r"expected rhos to be of the type tuple, such as \(0.0.*'8/255'"),
        ({"step_size": 0.1}, "expected no step_size with fgsm, which has none, got 0.1"),
        ({"random_start": True}, "expected no random_start with fgsm, which has none, got True"),
        ({"attack": "pgd", "steps": 0}, "expected at least 1 step, got 0"),
        ({"attack": "pgd", "step_size": 0.0}, "expected a step size above 0 and at most 1, got 0"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_choices_are_refused(choices: dict, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        Config(**choices)


def test_the_benchmarks_training_attack_is_pgds_default() -> None:
    attack = Config(attack="pgd").attack_at(8 / 255)
    assert attack.steps == 7
    assert attack.step_size == pytest.approx(2 / 255)
    assert Config().attack_at(3 / 255) == fgsm(3 / 255)
    assert Config().attack_at(3 / 255).step_size == 3 / 255
    assert Config().attack_at(3 / 255).steps == 1


def test_every_choice_of_the_attack_reaches_it() -> None:
    config = Config(attack="pgd", steps=3, step_size=0.02, random_start=True, norm="l2")
    assert config.attack_at(0.1) == Attack(0.1, 3, 0.02, random_start=True, norm="l2")
    assert Config(norm="l2").attack_at(0.1) == fgsm(0.1, "l2")


@pytest.mark.usefixtures("unchecked")
def test_one_number_or_a_list_does_for_several() -> None:
    config = Config(rhos=0.03, betas=[0, 1])  # type: ignore[arg-type]
    assert (config.rhos, config.betas) == ((0.03,), (0, 1))


def test_one_program_serves_what_differs_in_data_alone() -> None:
    config = Config(rhos=(0.1, 0.2), attack="pgd")
    others = [
        Config(rhos=(0.3, 0.01), attack="pgd", samples=7, betas=(0.1, 0.9), balanced=True),
        Config(rhos=(0.0, 1.0), attack="pgd", samples=2),
    ]
    for other in others:
        assert other != config
        assert other.program == config.program
        assert hash(other.program) == hash(config.program)
    for changed in (
        {"rhos": (0.1,)},
        {"attack": "fgsm"},
        {"norm": "l2"},
        {"steps": 3},
        {"output": "loss"},
        {"parameters": "weights"},
        {"implementation": "ntvp"},
        {"x64": True},
    ):
        other = Config(**{"rhos": (0.1, 0.2), "attack": "pgd", **changed})
        assert other.program != config.program, changed


def test_choices_are_plain_values_for_a_record() -> None:
    config = Config(rhos=(0.1, 0.2), attack="pgd", steps=3)
    record = config.to_dict()
    assert record["rhos"] == [0.1, 0.2] and record["betas"] == [0.5]
    assert (
        Config(**{k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}) == config
    )


@pytest.fixture
def brightening() -> Iterator[str]:
    """An attack of one's own, which has a strength and none of PGD's choices."""

    class Brighten(Attack):
        def __call__(self, gradient, x, key=None):
            return self.constrain(x + self.rho, x)

    ATTACKS["brighten"] = lambda rho: Brighten(rho)
    yield "brighten"
    del ATTACKS["brighten"]


def test_an_attack_of_ones_own_is_a_name_like_the_others(brightening: str) -> None:
    attack = Config(attack=brightening).attack_at(0.1)
    x = jnp.asarray([[0.25, 0.95]])
    np.testing.assert_allclose(attack(lambda x: -x, x), [[0.35, 1.0]], rtol=1e-6)
    with pytest.raises(
        InputError, match=r"^expected no steps with brighten, which has none, got 3"
    ):
        Config(attack=brightening, steps=3)


def test_the_radius_of_an_attack_of_ones_own_is_checked_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ATTACKS, "dark", lambda rho: Attack(rho, box=(0.0, 0.5)))
    with pytest.raises(InputError, match=r"^expected a radius in linf from 0 to 0\.5"):
        Config(attack="dark", rhos=(0.6,))


def test_an_attack_that_was_removed_is_no_name_any_more() -> None:
    with refuses("'brighten'"):
        Config(attack="brighten")


def test_a_space_checks_its_own_choices() -> None:
    with refuses("'gelu'"):
        Residual(activation="gelu")
    assert Residual().on(Task((4, 4, 1), 3)).task.num_classes == 3


def test_fractions() -> None:
    assert parse_fraction("8/255") == 8 / 255
    assert parse_fraction("0.03") == 0.03
    for text in ("8/0", "eight", "1/2/3", ""):
        with pytest.raises(InputError, match="expected a number or a fraction such as 8/255"):
            parse_fraction(text)
    assert format_rho(8 / 255) == "8/255"
    assert format_rho(0.05) == "0.05"
