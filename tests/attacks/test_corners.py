"""Attacks where labels, classes, logits or slopes are not what a network usually has."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import refuses

from attacks import APGD, FAB, FMN, PGD, AttackError, SquareAttack, Victim, attack_all
from attacks.versions import targeted
from ntkscore.model import Model
from ntkscore.trace.coupling import logits_alone
from ntkscore.training.evaluation import evaluate, rights
from ntkscore.training.robustness import ATTACK_NAMES, SINGLE, claim, robustness

SHAPE = (4, 4, 1)
RHO = 0.02


def linear(classes: int) -> Model:
    weights = np.random.default_rng(0).normal(size=(int(np.prod(SHAPE)), classes))
    return Model(lambda w, x: x.reshape(len(x), -1) @ w, jnp.asarray(weights, jnp.float32))


def greys(count: int = 8) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.uniform(0.3, 0.7, (count, *SHAPE)).astype(np.float32)


def answers(model: Model, x: np.ndarray) -> np.ndarray:
    return np.asarray(model.logits(jnp.asarray(x)).argmax(1))


@pytest.mark.parametrize(
    ("wrong", "came", "expected"),
    [
        (lambda y: y + 1, (1, 4), (8, 0, 3)),
        (lambda y: y - 1, (-1, 2), (8, 0, 3)),
        (lambda y: y + 0.5, ("float64", (8,)), (8, "labels")),
        (lambda y: np.eye(4)[y], ((8, 4, 4, 1), (8, 4)), "label"),
    ],
)
@pytest.mark.parametrize("ask", [robustness, evaluate, rights])
@pytest.mark.usefixtures("unchecked")
def test_labels_that_are_no_classes_of_the_network_are_refused(
    ask: Any, wrong: Any, came: tuple, expected: object
) -> None:
    with refuses(*came, expected=expected):
        ask(linear(4), greys(), wrong(np.arange(8) % 4))


def test_labels_are_checked_without_a_model_too() -> None:
    apply = linear(4).apply
    with refuses(1, 4, expected=3, kind=AttackError):
        attack_all(apply, linear(4).params, greys(2), np.array([1, 4]), {"apgd": APGD(RHO)})


@pytest.mark.parametrize("name", [*SINGLE, "apgd-t", "fab-t"])
def test_of_few_classes_an_attack_is_right_or_refused(name: str) -> None:
    needed = {"apgd-dlr": 3, "apgd-t": 4}.get(name, 2)
    x = greys(24)
    for classes in (1, 2, 3):
        model = linear(classes)
        y = answers(model, x)
        if classes < needed:
            with refuses(classes, expected="cross-entropy" if classes == 1 else needed):
                robustness(model, x, y, name)
            continue
        # A linear network falls where the nearest boundary is within ρ, in the dual norm.
        w = np.asarray(model.params)
        logits = x.reshape(len(x), -1) @ w
        gaps = logits.max(1, keepdims=True) - logits
        slopes = np.abs(w.T[y][:, None] - w.T).sum(2)
        far = np.where(slopes > 0, gaps / np.where(slopes > 0, slopes, 1), np.inf).min(1)
        rho = float(np.median(far))
        left = robustness(model, x, y, name, rho).right[name]
        sure = np.abs(far - rho) > 0.05 * rho
        assert 0 < left.sum() < len(x) and sure.sum() > 8
        np.testing.assert_array_equal(left[sure], (far > rho)[sure])


def test_an_attack_by_itself_asks_for_its_classes_and_images() -> None:
    victim, x = Victim(linear(3).logits, jnp.zeros(8, int)), jnp.asarray(greys())
    for attack in (APGD(RHO, loss="dlr", targets=2), FAB(RHO, targets=3), APGD(RHO, targets=3)):
        with refuses(3, expected=4, kind=AttackError):
            attack(victim, x)
    flat = Victim(lambda x: x @ jnp.eye(16)[:, :3], jnp.zeros(8, int))
    with refuses((16,), expected="Square", kind=AttackError):
        SquareAttack(RHO)(flat, x.reshape(8, 16))
    # The last attack of the ensemble is refused before the first one runs.
    model = Model(lambda w, x: x @ w, linear(4).params)
    with refuses((16,), expected="Square"):
        robustness(model, greys().reshape(8, 16), np.zeros(8, int))
    assert targeted(RHO, "linf", 2)["fab-t"].fewest_classes == 2


@pytest.mark.usefixtures("unchecked")
def test_a_network_that_takes_no_single_image_is_refused() -> None:
    flat = linear(4)
    # A number of its own, since networks that are equal at two points share their programs.
    squeezed = flat._replace(apply=lambda w, x: jnp.squeeze(1.3 * flat.apply(w, x)))
    y = answers(squeezed, greys())
    for ask in (robustness, evaluate, rights):
        with refuses("(4,)", expected="(1, classes)", remedy="squeezes"):
            ask(squeezed, greys(), y)
        with refuses("(4,)", expected="(1, classes)"):
            ask(squeezed, greys(1), y[:1])
    chance = squeezed._replace(apply=lambda w, x, key: squeezed.apply(w, x))
    for count in (8, 1):
        with refuses("(4,)", expected="(1, classes)", remedy="squeezes"):
            robustness(chance, greys(count), y[:count], "autoattack-rand")
    none = squeezed._replace(apply=lambda w, x, key: flat.apply(w, x).sum(1))
    with refuses("(1,)", expected="(1, classes)"):
        robustness(none, greys(), y, "autoattack-rand")

    def apply(w: Any, x: Any) -> Any:
        if len(x) == 1:
            raise IndexError("one image")
        return 1.4 * flat.apply(w, x)

    with refuses("IndexError", expected="(1, classes)", remedy="squeezes"):
        robustness(Model(apply, flat.params), greys(), y)
    with refuses("(4,)", expected="(1, classes)", remedy="squeezes", kind=AttackError):
        attack_all(squeezed.apply, flat.params, greys(), y, {"apgd": APGD(RHO)})
    with refuses("(4,)", expected="(1, classes)", remedy="squeezes", kind=AttackError):
        APGD(RHO)(Victim(lambda x: squeezed.apply(flat.params, x), y[:1]), greys(1))


@pytest.mark.parametrize(
    ("make", "came"),
    [
        (lambda: FAB(RHO, steps=0), (0, 1, 0)),
        (lambda: FAB(RHO, restarts=0), (100, 0, 0)),
        (lambda: FAB(RHO, targets=-1), (100, 1, -1)),
        (lambda: FMN(RHO, steps=0), (0, 1, 0)),
        (lambda: PGD(RHO, restarts=0), (50, 0, 0)),
        (lambda: SquareAttack(RHO, restarts=0), (5000, 0, 0)),
    ],
)
def test_an_attack_that_would_do_nothing_is_refused(make: Any, came: tuple) -> None:
    with refuses(*came, expected="restart", kind=AttackError):
        make()


def test_too_little_memory_is_no_fault_of_the_network() -> None:
    def exhausted(*_: Any) -> Any:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    with pytest.raises(jax.errors.JaxRuntimeError, match="memory"):
        logits_alone(exhausted, (), jnp.zeros(SHAPE))


def test_an_attack_has_a_run_for_each_target_and_restart() -> None:
    square = SquareAttack(RHO, queries=7, restarts=2)
    assert [run.steps for run in square.runs] == [7, 7]
    assert not hasattr(square, "steps")  # A row of a run has 0 steps for it.
    assert [run.steps for run in FMN(RHO, steps=5).runs] == [5]
    for attack in (FAB(RHO, targets=2, restarts=2), PGD(RHO, targets=2, restarts=2)):
        assert [run.target for run in attack.runs] == [2, 2, 3, 3]


@pytest.mark.parametrize("steps", range(1, 9))
def test_of_few_steps_some_are_at_the_radius_itself(steps: int) -> None:
    runs = APGD(12.0, "l1", steps).runs
    assert runs[-1].scale == 1 and runs[-1].steps > 0
    assert sum(run.steps for run in runs) == steps and min(run.steps for run in runs) > 0


def test_square_attacks_an_image_whose_label_is_right_by_a_tie() -> None:
    # Logits in steps of 1: the label 0 has as many as class 1, and is the first of equals.
    def apply(w: Any, x: Any) -> Any:
        bright = jnp.round(10 * x.mean((1, 2, 3)) + 0 * w.sum())
        return jnp.stack([jnp.full_like(bright, 5.0), bright], 1)

    model, x = Model(apply, jnp.ones(1)), np.full((2, *SHAPE), 0.5, np.float32)
    assert np.asarray(model.logits(jnp.asarray(x))).tolist() == [[5, 5]] * 2
    found = robustness(model, x, np.zeros(2, int), "square", 0.1)
    assert found.accuracies == {"clean": 1.0, "square": 0.0}


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_logits_that_are_not_finite_are_not_right(bad: float, caplog: Any) -> None:
    model, x = linear(3), greys()
    y = answers(model, x)
    spoiled = np.arange(len(x)) < 3

    def apply(w: Any, x: Any) -> Any:
        dark = (x[:, 0, 0] < 0.1)[:, :1]
        return jnp.where(dark, bad, model.apply(w, x))

    x[spoiled, 0, 0] = 0
    y = np.where(spoiled, 0, answers(model, x))  # argmax of NaN or of equals is 0
    odd = model._replace(apply=apply)
    found = robustness(odd, x, y, "apgd-ce", 1e-6)
    np.testing.assert_array_equal(found.right["clean"], ~spoiled)
    assert "at 3 of 8 images the logits are NaN or infinite" in " ".join(found.flags)
    rows = evaluate(odd, x, y, radii=(), metrics=("clean",))
    assert rows.set_index("class")["value"][-1] == 5 / 8
    assert "logits of 3 of 8 images are NaN or infinite" in caplog.text


def test_a_slope_that_is_no_number_stops_a_pixel_and_not_the_image() -> None:
    model, x = linear(3), greys(200)
    x[:, 0, 0] = 0.5  # where the slope of the root is infinite, and that of 0 times it NaN
    y = answers(model, x)
    plain = rights(model, x, y, radii=(8,))

    def apply(w: Any, x: Any) -> Any:
        return model.apply(w, x) + 0 * jnp.sqrt(jnp.abs(x[:, 0, 0, :1] - 0.5))

    found = rights(model._replace(apply=apply), x, y, radii=(8,))
    for attack in ("fgsm", "pgd"):
        left = found[attack, 8]
        # One of sixteen pixels may stay: more images are right, but not all.
        assert plain[attack, 8].sum() <= left.sum() < found["clean", 0].sum()
        assert (left >= plain[attack, 8]).all()


@pytest.mark.usefixtures("unchecked")
def test_a_network_that_looks_at_its_batch_is_refused() -> None:
    model, x = linear(3), greys()
    centred = model._replace(apply=lambda w, x: model.apply(w, x - x.mean(0)))
    for ask in (robustness, evaluate, rights):
        with refuses(remedy="coupled=True"):
            ask(centred, x, np.zeros(8, int))
        with refuses("PjitFunction", expected="ntkscore.Model", remedy="Model(apply, params)"):
            ask(jax.jit(model.logits), x, np.zeros(8, int))
        broken = model._replace(params=model.params.at[0, 0].set(jnp.nan))
        with refuses("NaN", "params", expected="weights"):
            ask(broken, x, np.zeros(8, int))
        with refuses((2,), expected="(2, classes)"):
            ask(model._replace(apply=lambda w, x: model.apply(w, x)[:, 0]), x, np.zeros(8, int))


def test_another_function_of_the_same_weights_does_not_go_on(tmp_path: Path) -> None:
    model, x = linear(3), greys()
    y = answers(model, x)
    how = {"attack": "apgd-ce", "rho": RHO, "out": tmp_path}
    first = robustness(model, x, y, **how)
    other = model._replace(apply=lambda w, x: model.apply(w, x**2))
    with refuses("logits", expected=tmp_path):
        robustness(other, x, y, **how)
    again = robustness(model, x, y, **how)
    np.testing.assert_array_equal(first.right["apgd-ce"], again.right["apgd-ce"])


def test_a_claim_names_its_attack() -> None:
    model, x = linear(4), greys()
    y = answers(model, x)
    found = robustness(model, x, y, "pgd", RHO)
    made = claim(found, RHO, "linf", "mine", "greys", "pgd")
    right = 100 * found.right["pgd"].mean()
    assert made["attack"] == "pgd" and float(made["pgd_acc"]) == right
    assert "autoattack_acc" not in json.dumps(made)
    for name in ("autoattack", "autoattack-plus"):
        assert float(claim(found, RHO, "linf", "mine", "greys", name)["autoattack_acc"]) == right
    assert {"autoattack-rand", "pgd"} < {*ATTACK_NAMES}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("rho", ["8/255", [0.1, 0.2], True, None])
def test_a_radius_is_one_number(rho: Any) -> None:
    model, x = linear(4), greys()
    y = answers(model, x)
    if rho is None:
        expected = robustness(model, x, y, "apgd-ce", 8 / 255).right["apgd-ce"]
        for same in (None, np.float64(8 / 255), jnp.asarray(8 / 255)):
            found = robustness(model, x, y, "apgd-ce", same)
            np.testing.assert_array_equal(found.right["apgd-ce"], expected)
        return
    with refuses(rho, expected="radius", remedy="8 / 255"):
        robustness(model, x, y, "apgd-ce", rho)


def test_what_an_evaluation_measures_is_checked() -> None:
    model, x = linear(4), greys()
    y = answers(model, x)
    with refuses("cleen", expected=("clean", "fgsm", "pgd", "draws")):
        evaluate(model, x, y, metrics=("cleen",))
    with refuses(-5, expected="queries"):
        evaluate(model, x, y, queries=-5)
