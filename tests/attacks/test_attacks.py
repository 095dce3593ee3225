"""Attacks keep to their ball and the pixels, and raise the loss as much as they can."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import refuses

from attacks import (
    NORMS,
    Attack,
    AttackError,
    Norm,
    Victim,
    direction,
    fgsm,
    pgd,
    project,
    project_to_sphere,
    twice,
)
from ntkscore.kernels.attacks import ATTACKS

Array = jax.Array
SHAPE = (3, 4, 4, 3)
AXES = (1, 2, 3)
MAKERS: dict[str, Callable[..., Attack]] = {
    "fgsm": fgsm,
    "pgd": pgd,
    "pgd from a random start": lambda rho, norm: pgd(rho, 4, random_start=True, norm=norm),
    "pgd of long steps": lambda rho, norm: pgd(rho, 3, 0.5, norm=norm),
}
VARIANTS = [(name, norm) for name in MAKERS for norm in NORMS]


def lengths(x: Any) -> np.ndarray:
    return np.sqrt(np.sum(np.square(np.asarray(x, np.float64)), AXES))


def size(delta: Any, norm: str) -> float:
    """The length of the longest of the perturbations."""
    return float(np.max(np.abs(delta)) if norm == "linf" else np.max(lengths(delta)))


def uniform(seed: int, low: float = 0.0, high: float = 1.0) -> Array:
    values = np.random.default_rng(seed).uniform(low, high, SHAPE)
    return jnp.asarray(values, jnp.float32)


def wavy(z: Array) -> Array:
    """The gradient of a loss with many summits."""
    return jnp.cos(9 * z + jnp.arange(z.size, dtype=z.dtype).reshape(z.shape))


class Linear(NamedTuple):
    """The loss ⟨slope, x⟩ of each image."""

    slope: Array

    def loss(self, x: Array) -> np.ndarray:
        return np.sum(np.asarray(self.slope, np.float64) * np.asarray(x, np.float64), AXES)

    def gradient(self, x: Array) -> Array:
        return self.slope


@pytest.fixture(scope="module")
def linear() -> Linear:
    return Linear(uniform(11, -1, 1))


@pytest.fixture(scope="module")
def attacked() -> dict[tuple[str, str], Any]:
    """Each variant on the wavy loss as a function of (ρ, images, key), compiled once."""

    chex.clear_trace_counter()

    def compiled(make: Callable[..., Attack], norm: str) -> Any:
        def attack(rho: Array, x: Array, key: Array) -> Array:
            return make(rho, norm=norm)(wavy, x, key)

        # The variants share a counter, since they share their source.
        return jax.jit(chex.assert_max_traces(attack, n=len(VARIANTS)))

    return {(name, norm): compiled(MAKERS[name], norm) for name, norm in VARIANTS}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "norm"), VARIANTS)
def test_results_stay_in_the_ball_and_in_the_pixel_range(
    name: str, norm: str, attacked: dict[tuple[str, str], Any]
) -> None:
    function = attacked[name, norm]

    @settings(max_examples=25)
    @given(st.floats(0, 1, width=32), st.integers(0, 2**32 - 1))
    def check(rho: float, seed: int) -> None:
        x = uniform(seed)
        z = function(jnp.float32(rho), x, jax.random.key(seed))
        assert z.shape == x.shape and z.dtype == x.dtype
        assert float(z.min()) >= 0 and float(z.max()) <= 1
        assert size(z - x, norm) <= rho + 1e-6

    check()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "norm"), VARIANTS)
def test_radius_zero_is_the_identity(
    name: str, norm: str, attacked: dict[tuple[str, str], Any]
) -> None:
    x = uniform(0).at[0, 0, 0].set(jnp.array([0.0, 1.0, 0.5]))
    np.testing.assert_array_equal(MAKERS[name](0.0, norm=norm)(wavy, x, jax.random.key(0)), x)
    np.testing.assert_array_equal(attacked[name, norm](jnp.float32(0), x, jax.random.key(0)), x)


@pytest.mark.parametrize("norm", NORMS)
def test_one_program_serves_every_radius(norm: str, attacked: dict[tuple[str, str], Any]) -> None:
    function, x, key = attacked["pgd", norm], uniform(1), jax.random.key(0)
    small, large = (function(jnp.float32(rho), x, key) for rho in (0.01, 0.1))
    assert size(small - x, norm) <= 0.01 + 1e-6 < size(large - x, norm)
    for rho, traced in ((0.01, small), (0.1, large)):
        np.testing.assert_allclose(pgd(rho, norm=norm)(wavy, x), traced, atol=1e-6)  # type: ignore


def test_fgsm_raises_a_linear_loss_the_most(linear: Linear) -> None:
    x, rho = uniform(2, 0.3, 0.7), 8 / 255
    slope = np.asarray(linear.slope, np.float64)
    for norm, dual in (("linf", np.sum(np.abs(slope), AXES)), ("l2", lengths(slope))):
        z = fgsm(rho, norm)(linear.gradient, x)  # type: ignore[arg-type]
        np.testing.assert_allclose(linear.loss(z) - linear.loss(x), rho * dual, rtol=1e-4)
        # The steepest ascent goes on to the same point in many steps, and no further.
        many = pgd(rho, 7, norm=norm)(linear.gradient, x)  # type: ignore[arg-type]
        np.testing.assert_allclose(many, z, atol=1e-6)


def test_fgsm_is_clipped_to_the_pixel_range(linear: Linear) -> None:
    x = uniform(3)
    expected = np.clip(np.asarray(x) + 0.4 * np.sign(linear.slope), 0, 1)
    np.testing.assert_allclose(fgsm(0.4)(linear.gradient, x), expected, atol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_pgd_beats_fgsm_where_the_loss_bends(norm: Norm) -> None:
    """−‖x − summit‖² with summits inside the ball, which one step of full length overshoots."""
    x, rho = uniform(4, 0.3, 0.7), 0.2
    offset = uniform(5, -0.1, 0.1)
    summit = x + (offset if norm == "linf" else rho / 2 * project_to_sphere(offset))

    def gradient(z: Array) -> Array:
        return 2 * (summit - z)

    def loss(z: Array) -> np.ndarray:
        return -np.square(lengths(z - summit))

    many = pgd(rho, 40, rho / 16, norm=norm)(gradient, x)
    assert np.all(loss(many) > loss(fgsm(rho, norm)(gradient, x)))
    assert np.all(loss(many) > loss(x))
    assert size(many - summit, norm) <= 2.5 * rho / 40 + 1e-6


@pytest.mark.parametrize("norm", NORMS)
def test_steps_have_their_length(norm: Norm, linear: Linear) -> None:
    x = uniform(6, 0.4, 0.6)
    z = pgd(0.3, 3, 0.02, norm=norm)(linear.gradient, x)
    assert size(z - x, norm) == pytest.approx(0.06, rel=1e-4)
    assert pgd(0.1, 5) == Attack(0.1, 5, 0.1 / 4)
    assert fgsm(0.1, norm) == Attack(0.1, 1, 0.1, norm=norm)


@pytest.mark.parametrize(("name", "norm"), [v for v in VARIANTS if "random" not in v[0]])
def test_without_a_gradient_nothing_moves(name: str, norm: str) -> None:
    x = uniform(7)
    np.testing.assert_array_equal(MAKERS[name](0.2, norm=norm)(jnp.zeros_like, x), x)


@pytest.mark.parametrize("norm", NORMS)
def test_random_start_is_reproducible(norm: Norm, attacked: dict[tuple[str, str], Any]) -> None:
    function, x, rho = attacked["pgd from a random start", norm], uniform(8), jnp.float32(0.1)
    first, again, other = (function(rho, x, jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert size(first - other, norm) > 1e-3
    assert len({float(jnp.sum(image)) for image in first - x}) == len(x)


@pytest.mark.parametrize("norm", NORMS)
def test_random_start_is_uniform_in_the_ball(norm: Norm) -> None:
    attack = Attack(0.1, 1, 0.0, random_start=True, norm=norm)
    x = jnp.full((2000, 1, 2, 1), 0.5)
    noise = np.asarray(attack(jnp.zeros_like, x, jax.random.key(3)) - x, np.float64) / 0.1
    radii = np.max(np.abs(noise), AXES) if norm == "linf" else lengths(noise)
    # In two dimensions the square of the radius is uniform in either norm.
    quantiles = np.quantile(radii**2, [0.1, 0.25, 0.5, 0.75, 0.9, 1])
    np.testing.assert_allclose(quantiles, [0.1, 0.25, 0.5, 0.75, 0.9, 1], atol=0.04)
    np.testing.assert_allclose(np.mean(noise, 0), 0, atol=0.04)


def test_random_start_needs_a_key() -> None:
    with refuses(None, expected="key", remedy="key=…", kind=AttackError):
        pgd(0.1, random_start=True)(wavy, uniform(0))
    with refuses(None, expected="key", kind=AttackError):
        twice(pgd(0.1, random_start=True), wavy, uniform(0))


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.floats(0, 2, width=32), st.sampled_from(NORMS))
def test_projection_is_onto_the_ball_and_idempotent(seed: int, rho: float, norm: Norm) -> None:
    x, centre = uniform(seed, -1, 2), uniform(seed + 1)
    projected = project(x, centre, rho, norm)
    assert size(projected - centre, norm) <= rho + 1e-5
    np.testing.assert_allclose(project(projected, centre, rho, norm), projected, atol=1e-6)


def test_projection_is_exact() -> None:
    x, centre, rho = uniform(9, -1, 2), uniform(10), 2.0
    x = x.at[0].set(centre[0] + 0.01).at[1].set(centre[1])
    delta = np.asarray(x, np.float64) - np.asarray(centre, np.float64)
    far = lengths(delta)
    assert far[0] < rho < far[2]
    expected = centre + delta * np.minimum(1, rho / np.maximum(far, 1e-9))[:, None, None, None]
    projected = project(x, centre, rho, "l2")
    np.testing.assert_allclose(projected, expected, atol=1e-6)
    np.testing.assert_allclose(projected[:2], x[:2], atol=1e-7)
    assert lengths(projected - centre)[2] == pytest.approx(rho, rel=1e-6)
    box = np.clip(delta, -0.3, 0.3) + np.asarray(centre)
    np.testing.assert_allclose(project(x, centre, 0.3), box, atol=1e-6)


def test_the_sphere() -> None:
    x = uniform(12, -3, 3).at[1].set(0)
    on_sphere = project_to_sphere(x)
    np.testing.assert_allclose(lengths(on_sphere), [1, 0, 1], atol=1e-6)
    np.testing.assert_allclose(on_sphere[0], x[0] / lengths(x)[0], rtol=1e-5)
    np.testing.assert_allclose(project_to_sphere(on_sphere), on_sphere, atol=1e-6)
    np.testing.assert_array_equal(direction(x, "l2"), on_sphere)
    np.testing.assert_array_equal(direction(x), jnp.sign(x))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "norm"), VARIANTS)
def test_the_second_attack_starts_from_the_first_result(name: str, norm: str) -> None:
    attack, x, key = MAKERS[name](0.05, norm=norm), uniform(13), jax.random.key(5)
    once, again = twice(attack, wavy, x, key)
    first, second = jax.random.split(key)
    np.testing.assert_allclose(once, attack(wavy, x, first), atol=1e-6)
    np.testing.assert_allclose(again, attack(wavy, once, second), atol=1e-6)
    if "random" not in name:
        for with_key, without in zip((once, again), twice(attack, wavy, x), strict=True):
            np.testing.assert_array_equal(with_key, without)


@pytest.mark.parametrize("norm", NORMS)
def test_the_second_attack_may_leave_the_first_ball(norm: Norm, linear: Linear) -> None:
    x = uniform(14, 0.4, 0.6)
    for attack in (fgsm(0.1, norm), pgd(0.1, norm=norm)):
        once, again = twice(attack, linear.gradient, x)
        assert size(once - x, norm) == pytest.approx(0.1, rel=1e-4)
        assert size(again - once, norm) == pytest.approx(0.1, rel=1e-4)
        assert size(again - x, norm) == pytest.approx(0.2, rel=1e-4)


def test_points_without_a_box_are_kept_in_the_ball_alone(linear: Linear) -> None:
    x = uniform(14, 3, 4)
    attacked = pgd(2.0, norm="l2", box=None)(linear.gradient, x)
    assert size(attacked - x, "l2") == pytest.approx(2, rel=1e-4)
    np.testing.assert_allclose(attacked, x + 2 * direction(linear.gradient(x), "l2"), atol=1e-4)
    other = pgd(0.5, box=(3.0, 4.0))(linear.gradient, x)
    assert float(other.min()) >= 3 and float(other.max()) <= 4
    with refuses(-1, expected="linf", kind=AttackError):
        pgd(-1.0, box=None)


@pytest.mark.parametrize("rho", [-0.1, 1.5, 8, float("nan")])
def test_a_radius_off_the_pixel_scale_is_refused(rho: float) -> None:
    for make in (fgsm, pgd, lambda rho: Attack(rho, 3, jnp.float32(0.1))):
        with refuses(f"{rho:g}", expected=("linf", 0, 1), remedy="8/255", kind=AttackError):
            make(rho)


@pytest.mark.parametrize("given", [(0, 0.1), (-3, 0.1), (7, -0.1), (7, float("nan")), (0,)])
def test_no_steps_or_steps_backwards_are_refused(given: Any) -> None:
    for rho in (0.1, jnp.float32(0.1)):
        with refuses(*given, expected="step", remedy="2/255", kind=AttackError):
            pgd(rho, *given)


def test_an_unknown_norm_is_refused(unchecked) -> None:
    with refuses("l1", expected=("linf", "l2"), kind=AttackError):
        pgd(0.1, norm="l1")  # type: ignore[arg-type]


def test_every_registered_attack_is_a_function_of_the_radius() -> None:
    x, w = uniform(15), uniform(16)[:2].reshape(2, -1).T
    victim = Victim(lambda x: x.reshape(len(x), -1) @ w, jnp.arange(len(x)) % 2)
    for make in ATTACKS.values():
        attacked = make(0.1)(victim, x)
        assert 0.05 < size(attacked - x, "linf") <= 0.1 + 1e-6


@pytest.mark.parametrize("attack", [fgsm(0.1), pgd(0.1), pgd(0.1, random_start=True)])
def test_the_first_gradient_is_at_the_images_themselves(attack: Attack) -> None:
    """The very same array, so that a caller who knows the gradient there can tell."""
    x, asked = jnp.linspace(0.2, 0.7, 12).reshape(2, 6), []
    attack(lambda z: asked.append(z) or jnp.cos(9 * z), x, jax.random.key(3))
    assert (asked[0] is x) is not attack.random_start
    assert len(asked) == attack.steps


def test_a_step_has_a_share_of_the_radius_if_it_is_not_given(linear: Linear) -> None:
    assert Attack(8 / 255) == fgsm(8 / 255)
    x = uniform(16, 0.4, 0.6)
    for steps in (1, 4):
        moved = jnp.abs(Attack(0.1, steps)(linear.gradient, x) - x)
        np.testing.assert_allclose(moved, 0.1, atol=1e-6)
    traced = jax.jit(lambda rho: Attack(rho, 4)(linear.gradient, x))(jnp.float32(0.1))
    np.testing.assert_allclose(traced, Attack(0.1, 4)(linear.gradient, x), atol=1e-6)


@pytest.mark.parametrize("make", [fgsm, pgd])
def test_radii_in_l2_go_up_to_the_images_size(make: Callable[..., Attack]) -> None:
    """White is √48 from black where an image has 4·4·3 numbers."""
    x, up = jnp.zeros(SHAPE), jnp.ones_like
    for rho in (1.5, 3.0, 48**0.5):
        assert size(make(rho, norm="l2")(up, x) - x, "l2") == pytest.approx(rho, rel=1e-4)
    with refuses(7, expected=("l2", 6.9282, (4, 4, 3)), kind=AttackError):
        make(7.0, norm="l2")(up, x)
    for rho in (-0.5, float("nan"), float("inf")):
        with refuses(rho, expected=("l2", 0), kind=AttackError):
            make(rho, norm="l2")


@pytest.mark.parametrize("rho", ["8/255", None, True, [0.1]])
def test_a_radius_is_a_number(rho: Any, unchecked: None) -> None:
    with refuses(rho, expected="radius", remedy="8 / 255", kind=AttackError):
        Attack(rho)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_each_image_may_have_a_radius_of_its_own(norm: str) -> None:
    x, radii = jnp.full((3, 2, 2, 1), 0.5), jnp.asarray([0.0, 0.1, 0.2]).reshape(3, 1, 1, 1)
    attack = Attack(radii, 2, 0.05, random_start=True, norm=norm)
    z = attack(lambda x: x, x, jax.random.key(0))
    for change, radius in zip(z - x, radii.ravel(), strict=True):
        assert 0.3 * radius <= size(change[None], norm) <= radius + 1e-6
