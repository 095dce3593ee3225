"""The ensemble of attacks on networks whose answers are known, stopped and continued."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import refuses

from attacks import (
    APGD,
    FAB,
    FMN,
    PGD,
    AttackError,
    SquareAttack,
    Victim,
    attack_all,
    autoattack,
    ensemble,
    pgd,
)
from attacks.steps import drawn, point_keys
from ntkscore.model import Model
from ntkscore.results.checkpoints import ArrayFolder
from ntkscore.training.robustness import robustness

SHAPE, CLASSES = (6, 6, 3), 5
RADII = {"linf": 8 / 255, "l2": 0.5, "l1": 4.0}
ORDER = {"linf": 1, "l2": 2, "l1": np.inf}
"""The dual norms."""


def linear(classes: int = CLASSES) -> Model:
    weights = np.random.default_rng(0).normal(size=(int(np.prod(SHAPE)), classes))
    return Model(lambda w, x: x.reshape(len(x), -1) @ w, jnp.asarray(weights, jnp.float32))


def greys(count: int) -> np.ndarray:
    """So grey that no attack in ℓ∞ or ℓ2 meets the ends of the scale."""
    rng = np.random.default_rng(1)
    return rng.uniform(0.3, 0.7, (count, *SHAPE)).astype(np.float32)


def distances(model: Model, x: np.ndarray, norm: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels of images, and how far each is from the nearest other class of a linear network."""
    weights = np.asarray(model.params)
    logits = x.reshape(len(x), -1) @ weights
    labels = logits.argmax(1)
    gaps = logits[np.arange(len(x)), labels][:, None] - logits
    slopes = np.linalg.norm(weights.T[labels][:, None] - weights.T, ORDER[norm], axis=2)
    return labels, np.where(slopes > 0, gaps / np.where(slopes > 0, slopes, 1), np.inf).min(1)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_of_a_linear_network_it_finds_all_that_there_is(norm: Any) -> None:
    model, x, rho = linear(), greys(40), RADII[norm]
    labels, far = distances(model, x, norm)
    sure = abs(far - rho) > 0.02 * rho
    found = robustness(model, x, labels, rho=rho, norm=norm, batch=16)
    left = found.right["square"]
    assert 0 < left.sum() < len(x) and sure.sum() > 30
    np.testing.assert_array_equal(left[sure], (far > rho)[sure])
    assert [*found.right] == ["clean", "apgd-ce", "apgd-t", "fab-t", "square"]
    change = (found.images - x).reshape(len(x), -1)
    assert (np.linalg.norm(change, {"linf": np.inf, "l2": 2}[norm], axis=1) <= rho * 1.0001).all()
    assert ((model.logits(jnp.asarray(found.images)).argmax(1) == labels) == left).all()
    assert not found.flags


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("attack", [FAB, FMN])
def test_the_nearest_misclassified_point_of_a_linear_network(attack: Any, norm: Any) -> None:
    model, x = linear(), greys(20 if norm != "l1" else 200)
    labels, far = distances(model, x, norm)
    if norm == "l1":
        # So near that one pixel, which the box bounds, is enough.
        near = far < 0.28
        x, labels, far = x[near], labels[near], far[near]
    victim = Victim(model.logits, jnp.asarray(labels, jnp.int32))
    points = jax.jit(lambda x: attack(1.0, norm)(victim, x))(jnp.asarray(x))
    change = (np.asarray(points) - x).reshape(len(x), -1)
    size = np.linalg.norm(change, {"linf": np.inf, "l2": 2, "l1": 1}[norm], axis=1)
    assert len(x) > 4 and (np.asarray(victim.logits(points)).argmax(1) != labels).all()
    assert (size >= far * 0.9999).all()
    tolerance = 0.02 if attack is FAB else 0.2
    assert (size <= far * (1 + tolerance)).mean() > 0.9


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_run_of_pgd_takes_the_steps_of_the_plain_attack(norm: Any) -> None:
    model, x, rho = linear(), jnp.asarray(greys(12)), RADII[norm]
    victim = Victim(model.logits, jnp.asarray(distances(model, np.asarray(x), norm)[0], jnp.int32))
    attack = PGD(rho, norm, 5)
    (run,) = attack.runs
    keys = point_keys(jax.random.key(0), np.arange(12))
    state: Any = attack.start(victim, x, keys, run._replace(first=False), 0, x)
    for step in range(5):
        state = attack.advance(victim, x, keys, run, step, state)
    np.testing.assert_allclose(state.z, pgd(rho, 5, norm=norm)(victim, x), atol=1e-5)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_pgd_leaves_of_a_linear_network_what_is_farther_than_the_radius(norm: Any) -> None:
    model, x = linear(), greys(20 if norm != "l1" else 200)
    rho = RADII[norm] / (20 if norm == "l1" else 1)
    labels, far = distances(model, x, norm)
    attacks = {loss: PGD(rho, norm, 20, loss, restarts=2) for loss in ("ce", "margin")}  # type: ignore[arg-type]
    # A step in l1 changes a fifth of the coordinates, where the nearest point changes one.
    surely_left, surely_lost = far > 1.01 * rho, far < (0.3 if norm == "l1" else 0.99) * rho
    for loss in attacks:
        alone = attack_all(model.apply, model.params, x, labels, {loss: attacks[loss]}).right[loss]
        assert alone[surely_left].all() and surely_left.any()
        assert not alone[surely_lost].any() and surely_lost.any()


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_square_stays_in_the_ball_and_lowers_the_margin(norm: Any) -> None:
    model, x, rho = linear(), greys(12), RADII[norm]
    labels = jnp.asarray(distances(model, x, norm)[0], jnp.int32)
    victim, size = Victim(model.logits, labels), {"linf": np.inf, "l2": 2, "l1": 1}[norm]
    margins = []
    for queries in (1, 200):
        attack = SquareAttack(rho, norm, queries=queries, rescale=False)
        z = np.asarray(jax.jit(lambda x, attack=attack: attack(victim, x))(jnp.asarray(x)))
        change = (z - x).reshape(len(x), -1)
        assert (np.linalg.norm(change, size, axis=1) <= rho * 1.0001).all()
        assert (z >= 0).all() and (z <= 1).all()
        logits = np.array(victim.logits(jnp.asarray(z)))
        own = logits[np.arange(12), labels]
        logits[np.arange(12), labels] = -np.inf
        margins.append(own - logits.max(1))
    assert (margins[1] <= np.maximum(margins[0], 0) + 1e-5).all()
    assert margins[1].clip(0).sum() < margins[0].clip(0).sum()


def test_an_image_is_attacked_alike_whatever_is_attacked_beside_it() -> None:
    model, x = linear(), greys(24)
    labels, _ = distances(model, x, "linf")
    attacks = autoattack(8 / 255, classes=CLASSES) | {"square": SquareAttack(8 / 255, queries=50)}

    def run(rows: np.ndarray, **how: Any) -> Any:
        return attack_all(model.apply, model.params, x[rows], labels[rows], attacks, **how)

    whole = run(np.arange(24), batch=24)
    other = run(np.arange(24), batch=5)
    for name, right in whole.right.items():
        np.testing.assert_array_equal(right, other.right[name])
    np.testing.assert_allclose(whole.images, other.images, atol=1e-5)


def test_as_few_programs_as_can_be_and_few_empty_places() -> None:
    model = linear()
    network = ensemble.Network(model.apply, 0, ())
    key = jax.random.key(0)
    job = ensemble._Job(network, model.params, greys(1), np.zeros(1), key, 48, None)
    counts = [0, 1, 8, 9, 36, 48, 49, 82, 97]
    assert [job._size(n) for n in counts] == [4, 4, 8, 12, 36, 48, 28, 44, 36]
    assert job._smaller(48, 40, 624) == 48 and job._smaller(48, 40, 625) == 40
    assert job._smaller(48, 50, 124) == 48 and job._smaller(48, 50, 125) == 28


def test_draws_are_those_of_a_points_key_and_shape() -> None:
    keys = point_keys(jax.random.key(0), np.arange(3))
    for draw in (jax.random.uniform, jax.random.normal, jax.random.rademacher):
        each = jnp.stack([draw(key, SHAPE, jnp.float32) for key in keys])
        np.testing.assert_array_equal(drawn(keys, draw, SHAPE, jnp.float32), each)


class Stopped(Exception):
    """In place of a kill."""


class Stopping(dict):
    """Results that outlive a stop, which comes at a given time of writing."""

    sizes: ClassVar[set[int]] = set()
    """Images of the programs in progress."""

    def __init__(self, content: dict[str, Any], writes: int) -> None:
        super().__init__(content)
        self.writes = writes

    def __setitem__(self, name: str, arrays: Any) -> None:
        super().__setitem__(name, {key: np.array(value) for key, value in arrays.items()})
        if "size" in arrays:
            self.sizes.add(int(arrays["size"]))
        self.writes -= 1
        if not self.writes:
            raise Stopped


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "steps"), [("linf", 30), ("l1", 25)])
def test_stopped_after_any_piece_it_goes_on_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, norm: Any, steps: int
) -> None:
    monkeypatch.setattr(ensemble, "SAVED_EVERY", 0.0)
    monkeypatch.setattr(ensemble, "CHUNK", 20)
    monkeypatch.setattr(ensemble, "WORTH", 40)  # programs become smaller on the way
    monkeypatch.setattr(ensemble, "UNIT", 2)
    model, x, rho = linear(), greys(24), 0.4 * RADII[norm]
    labels, _ = distances(model, x, norm)
    attacks = {
        "apgd-ce": APGD(rho, norm, steps, restarts=2),
        "apgd-t": APGD(rho, norm, steps, "dlr", targets=2),
        "fab-t": FAB(rho, norm, steps, targets=2),
        "square": SquareAttack(rho, norm, queries=60),
    }

    def run(store: Any = None) -> Any:
        how = {"batch": 8, "store": store}
        return attack_all(model.apply, model.params, x, labels, attacks, **how)

    whole = run()
    store: Any = {}
    stops = 0
    while True:
        store = Stopping(store, 8)
        try:
            found = run(store)
            break
        except Stopped:
            stops += 1
    assert stops > 4
    assert len(Stopping.sizes) > 2
    np.testing.assert_array_equal(found.images, whole.images)
    for name, right in whole.right.items():
        np.testing.assert_array_equal(right, found.right[name])
    assert 0 < whole.right["square"].sum() < whole.right["clean"].sum()


KILLED = """
import sys
from pathlib import Path
import numpy as np
from attacks import ensemble
from test_ensemble import distances, greys, linear
from ntkscore.training.robustness import robustness

ensemble.SAVED_EVERY = 0.0
model, x = linear(), greys(12)
labels, _ = distances(model, x, "linf")

def report(name, done, of, right):
    print(name, flush=True)

found = robustness(model, x, labels, rho=0.012, out=Path(sys.argv[1]), report=report)
right = {name.replace("-", "_"): mask for name, mask in found.right.items()}
np.savez(sys.argv[2], images=found.images, **right)
"""


@pytest.mark.slow
def test_killed_in_each_attack_it_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    paths = [str(folder) for folder in Path(__file__).parents[:3]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"}

    def start(name: str) -> subprocess.Popen[str]:
        arguments = [str(tmp_path / name), str(tmp_path / f"{name}.npz")]
        command = [sys.executable, "-c", KILLED, *arguments]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    whole = start("whole")
    for attack in ("apgd-ce", "apgd-t", "fab-t", "square"):
        process = start("killed")
        with process:
            assert process.stdout is not None
            assert any(line.strip() == attack for line in process.stdout)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / "killed.npz").exists()
        assert (tmp_path / "killed" / "in-progress.npz").exists()
    last = start("killed")
    _, _ = last.communicate(), whole.communicate()
    assert last.returncode == whole.returncode == 0
    one, two = (np.load(tmp_path / f"{name}.npz") for name in ("whole", "killed"))
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    assert 0 < one["square"].sum() < one["clean"].sum()


SHARED = """
import jax, numpy as np
from attacks import attack_all, autoattack
from test_ensemble import distances, greys, linear

model, x = linear(), greys(30)
labels, _ = distances(model, x, "linf")
attacks = autoattack(0.012, classes=5)
del attacks["square"]
found = {}
for devices in (jax.local_devices(), jax.local_devices()[:1]):
    at = attack_all(model.apply, model.params, x, labels, attacks, batch=12, devices=devices)
    found[len(devices)] = at
assert [*found] == [3, 1]
for name, right in found[1].right.items():
    assert (right == found[3].right[name]).all(), name
assert np.allclose(found[1].images, found[3].images, atol=1e-5)
print(found[3].accuracies)
"""


@pytest.mark.slow
def test_three_devices_share_a_batch() -> None:
    paths = [str(folder) for folder in Path(__file__).parents[:3]]
    flags = "--xla_force_host_platform_device_count=3"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "XLA_FLAGS": flags}
    command = [sys.executable, "-c", SHARED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    accuracies = eval(done.stdout)
    assert accuracies["clean"] == 1 > accuracies["fab-t"] > 0


def test_a_folder_of_another_evaluation_is_refused(tmp_path: Path) -> None:
    model, x = linear(), greys(4)
    labels, _ = distances(model, x, "linf")
    how = {"attack": "apgd-ce", "out": tmp_path}
    first = robustness(model, x, labels, **how)
    again = robustness(model, x, labels, **how)
    np.testing.assert_array_equal(first.images, again.images)
    with refuses("rho", expected=tmp_path):
        robustness(model, x, labels, rho=0.1, **how)
    (tmp_path / "apgd-ce-0.npz").write_bytes(b"cut off")
    with refuses(expected=tmp_path / "apgd-ce-0.npz"):
        robustness(model, x, labels, **how)


def test_arrays_under_names(tmp_path: Path) -> None:
    folder = ArrayFolder(tmp_path, {"of": "a test"})
    folder["one two"] = {"a": np.arange(3)}
    assert [*folder] == ["one-two"] and len(folder) == 1 and "one two" in folder
    np.testing.assert_array_equal(folder["one two"]["a"], np.arange(3))
    del folder["one two"]
    assert not folder
    with pytest.raises(KeyError):
        folder["one two"]
    with pytest.raises(KeyError):
        del folder["one two"]


def test_what_makes_an_evaluation_doubtful_is_said() -> None:
    model, x = linear(), greys(8)
    labels, _ = distances(model, x, "linf")
    probabilities = model._replace(apply=lambda w, x: jax.nn.softmax(model.apply(w, x)))
    found = robustness(probabilities, x, labels, "apgd-ce", rho=1e-4)
    assert len(found.flags) == 1 and "give the logits" in found.flags[0]
    # Rounded to steps, logits have no gradient, and only Square moves them.
    stepped = model._replace(apply=lambda w, x: jnp.round(model.apply(w, x) * 4) / 4)
    labels = np.asarray(stepped.logits(jnp.asarray(x)).argmax(1))
    found = robustness(stepped, x, labels, rho=0.06)
    assert "at 8 of 8 images the gradient is zero" in found.flags[0]
    assert found.flags[1].startswith("Square lowered the accuracy by ")
    assert found.accuracies["fab-t"] == 1 > found.accuracies["square"]


def test_an_image_without_a_gradient_does_not_count_as_fallen_nor_hide_others() -> None:
    model, x = linear(), greys(20)
    x[3] = 0.5  # where the slope of the root is not a number
    labels, far = distances(model, x, "linf")
    apply = lambda w, x: model.apply(w, x) + 0 * jnp.sqrt(jnp.abs(x[:, 0, 0, :1] - 0.5))  # noqa: E731
    found = robustness(model._replace(apply=apply), x, labels, "apgd-ce", rho=0.02)
    expected = far > 0.02
    expected[3] = True
    sure = abs(far - 0.02) > 0.001
    np.testing.assert_array_equal(found.right["apgd-ce"][sure], expected[sure])
    assert not found.right["apgd-ce"].all() and np.isfinite(found.images).all()


def test_radii_weights_and_images_are_data_of_programs_and_what_a_network_captures_is_not() -> None:
    x, traces, scale = greys(20), [], [1.0]
    labels, far = distances(linear(), x, "linf")

    def apply(weights: Any, images: Any) -> Any:
        traces.append(images.shape)
        return scale[0] * linear().apply(weights, images)

    model = Model(apply, linear().params)
    rhos = np.quantile(far, (0.3, 0.7, 0.5))
    for number, rho in enumerate(rhos):
        found = robustness(model, x, labels, "apgd-ce", rho, seed=number)
        np.testing.assert_array_equal(found.right["apgd-ce"], far > rho)
        if not number:
            first = len(traces)
        # Each call traces the function once, to know whether it is as it was.
        assert len(traces) == first + number
    other = Model(apply, -linear().params)
    turned = np.asarray(other.logits(jnp.asarray(x)).argmax(1))
    before = len(traces)
    assert robustness(other, x, turned, "apgd-ce", rhos[0]).right["clean"].all()
    assert len(traces) == before + 1
    scale[0] = -1.0
    assert not robustness(model, x, labels, "apgd-ce", rhos[0]).right["clean"].any()


def test_a_program_that_is_found_again_computes_the_network_that_was_given() -> None:
    class Scaled:
        """A network with a factor, and one with another slope in the images."""

        def __init__(self) -> None:
            self.factor, self.slope = 1.0, 1.0

        def apply(self, weights: Any, images: Any) -> Any:
            return self.factor * linear().apply(weights, images)

        def masked(self, weights: Any, images: Any) -> Any:
            @jax.custom_vjp
            def same(x: Any) -> Any:
                return x

            same.defvjp(lambda x: (x, None), lambda _, g: (self.slope * g,))
            return linear().apply(weights, same(images))

    x, one, other = greys(20), Scaled(), Scaled()
    labels, far = distances(linear(), x, "linf")
    robustness(Model(one.apply, linear().params), x[:8], labels[:8], "apgd-ce", 1e-3)
    one.factor = -1.0
    found = robustness(Model(other.apply, linear().params), x, labels, "apgd-ce", 1e-3)
    assert found.right["clean"].all()
    rho, hidden = float(np.median(far)), Model(other.masked, linear().params)
    other.slope = 0.0  # the attack does not leave its start
    assert robustness(hidden, x, labels, "apgd-ce", rho).flags
    other.slope = 1.0
    found = robustness(hidden, x, labels, "apgd-ce", rho)
    np.testing.assert_array_equal(found.right["apgd-ce"], far > rho)


def test_an_attack_of_ones_own_is_run_as_it_is() -> None:
    class Own(PGD):
        """Its fields do not say all that it does, and it asks for its radius."""

        def __init__(self, rho: float, steps: int, sign: float) -> None:
            super().__init__(rho, steps=steps)
            object.__setattr__(self, "sign", sign)

        def advance(self, victim: Any, x: Any, keys: Any, run: Any, step: Any, state: Any) -> Any:
            if self.rho > 1:
                raise ValueError
            state = state._replace(gradient=self.sign * state.gradient)
            return super().advance(victim, x, keys, run, step, state)

    model, x = linear(), greys(20)
    labels, far = distances(model, x, "linf")
    rho = float(np.median(far))
    for sign in (-1.0, 1.0):
        attacks = {"own": Own(rho, 30, sign)}
        found = attack_all(model.apply, model.params, x, labels, attacks)
        assert found.accuracies["own"] == (1.0 if sign < 0 else 0.5)


def test_a_network_with_chance_is_attacked_through_its_mean() -> None:
    model, x, rho, scale = linear(), greys(30), 8 / 255, [1.0]
    labels, far = distances(model, x, "linf")

    def apply(w: Any, x: Any, key: Any) -> Any:
        # Noise of any size averages out of the gradient of the logits, not of one draw's loss.
        return scale[0] * model.apply(w, x) + 0.05 * jax.random.normal(key, (len(x), CLASSES))

    chance = model._replace(apply=apply)
    found = robustness(chance, x, labels, "autoattack-rand", rho)
    sure = abs(far - rho) > 0.3 * rho
    assert [*found.right] == ["clean", "apgd-ce", "apgd-dlr"]
    np.testing.assert_array_equal(found.right["apgd-dlr"][sure], (far > rho)[sure])
    scale[0] = -1.0
    assert not robustness(chance, x, labels, "autoattack-rand", rho).right["clean"].any()
    with refuses(3, expected=("apply(params, images, key)", "autoattack-rand")):
        robustness(model, x, labels, "autoattack-rand")


def test_choices_that_do_not_fit_are_refused() -> None:
    model, x = linear(3), greys(4)
    y = np.zeros(4, int)
    with refuses(3, expected=(4, "standard")):
        robustness(model, x, y)
    assert [*robustness(model, x, y, "apgd-dlr").right] == ["clean", "apgd-dlr"]
    for attack, norm, rho, came, expected in (
        ("deepfool", "linf", 0.1, "deepfool", "autoattack-plus"),
        ("square", "l3", 0.1, "l3", ("linf", "l2", "l1")),
        ("square", "linf", 2.0, 2, ("linf", 0, 1)),
    ):
        with refuses(came, expected=expected):
            robustness(model, x, y, attack, rho, norm)
    with refuses(-1.0, expected="step_size", kind=AttackError):
        PGD(0.1, step_size=-1.0)
    with refuses("coupled=True"):
        robustness(model._replace(coupled=True), x, y)
