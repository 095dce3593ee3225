"""Every choice that can be wrong is refused with its own sentence."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import refuses

from attacks import Attack, fgsm
from cells.residual import Residual
from ntkscore.config import Config
from ntkscore.kernels.attacks import ATTACKS
from ntkscore.task import Task
from ntkscore.text import format_rho, parse_fraction


@pytest.mark.parametrize(
    ("choices", "got"),
    [
        ({"output": "mean"}, "'mean'"),
        ({"parameters": "bias"}, "'bias'"),
        ({"attack": "cw"}, "'cw'"),
        ({"norm": "l1"}, "'l1'"),
        ({"implementation": "fast"}, "'fast'"),
        ({"betas": "0.5"}, "'0.5'"),
        ({"rhos": ()}, "none"),
        ({"rhos": (0.1, 0.2, 0.1)}, 0.1),
        # Rows would not tell them apart.
        ({"rhos": (0.1, 0.1 + 1e-12)}, 0.1),
        ({"rhos": ("8/255",)}, "('8/255',)"),
        ({"betas": ()}, "none"),
        ({"betas": (1.5,)}, 1.5),
        ({"betas": (-0.5,)}, -0.5),
        ({"betas": (0.5, 0.0, 0.5)}, 0.5),
        ({"steps": 7}, 7),
        ({"step_size": 0.1}, 0.1),
        ({"random_start": True}, True),
        ({"attack": "pgd", "steps": 0}, 0),
        ({"attack": "pgd", "step_size": 0.0}, 0.0),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_choices_are_refused(choices: dict, got: object) -> None:
    with refuses(got):
        Config(**choices)


@pytest.mark.parametrize("name", ["samples", "balanced"])
def test_what_belongs_to_the_images_is_said_where_it_goes(name: str) -> None:
    with refuses(name, remedy="load_images"):
        Config(**{name: 4})


@pytest.mark.parametrize(("rho", "got"), [(-0.1, "-0.1"), (8.0, "8"), (float("nan"), "nan")])
def test_a_radius_is_on_the_scale_of_pixels(rho: float, got: str) -> None:
    with refuses(got, expected=("linf", 0, 1), remedy="8/255"):
        Config(rhos=(rho,))


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
        Config(rhos=(0.3, 0.01), attack="pgd", betas=(0.1, 0.9)),
        Config(rhos=(0.0, 1.0), attack="pgd"),
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
    with refuses(3, expected=("steps", "brighten")):
        Config(attack=brightening, steps=3)


def test_the_radius_of_an_attack_of_ones_own_is_checked_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ATTACKS, "dark", lambda rho: Attack(rho, box=(0.0, 0.5)))
    with refuses(0.6, expected=("linf", 0.5)):
        Config(attack="dark", rhos=(0.6,))
    monkeypatch.setitem(ATTACKS, "dark", lambda rho: int("none"))
    with refuses(0.6, remedy="'none'"):
        Config(attack="dark", rhos=(0.6,))


def test_an_attack_that_was_removed_is_no_name_any_more() -> None:
    with refuses("brighten"):
        Config(attack="brighten")


def test_a_space_checks_its_own_choices() -> None:
    with refuses("gelu"):
        Residual(activation="gelu")
    assert Residual().on(Task((4, 4, 1), 3)).task.num_classes == 3


def test_fractions() -> None:
    assert parse_fraction("8/255") == 8 / 255
    assert parse_fraction("0.03") == 0.03
    for text in ("8/0", "eight", "1/2/3", ""):
        with refuses(text, expected="8/255"):
            parse_fraction(text)
    assert format_rho(8 / 255) == "8/255"
    assert format_rho(0.05) == "0.05"
