"""The stack of an arbitrary function: its points, its kernel and what is measured by the way."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from networks import EXACT, error, points, small_model, small_params
from tiny import refuses

from attacks import NORMS, AttackError, SquareAttack, Victim, fgsm, pgd, twice
from cells.nasbench201.space import NASBench201
from ntkscore.kernels.attacks import ATTACKS
from ntkscore.kernels.joint import KERNELS, POINTS, every_kernel, joint_kernel
from ntkscore.kernels.ntk import ntk
from ntkscore.kernels.stack import Stack, stack
from ntkscore.measures.forward_pass import cross_entropy
from ntkscore.measures.slopes import correlation
from ntkscore.model import Model

Array = jax.Array
N, D, HIDDEN, CLASSES = 4, 6, 5, 3
RHOS = (0.02, 0.1)


def apply(weights: list[Array], points: Array) -> Array:
    """A function of a list of arrays, without names, layers or images."""
    first, second = weights
    return jnp.tanh(points @ first) @ second


def model() -> Model:
    rng = np.random.default_rng(2)
    shapes = ((D, HIDDEN), (HIDDEN, CLASSES))
    return Model(apply, [jnp.asarray(rng.normal(size=shape)) for shape in shapes])


def data() -> tuple[Array, Array]:
    rng = np.random.default_rng(4)
    labels = jnp.asarray(rng.integers(0, CLASSES, N), jnp.int32)
    return jnp.asarray(rng.uniform(size=(N, D))), labels


def run(attack: Any, rhos: tuple[float, ...] = RHOS, key: Any = None) -> Stack:
    compiled = jax.jit(lambda x, y, rhos: stack(model(), x, y, attack, rhos, "trace", key=key))
    return compiled(*data(), jnp.asarray(rhos))


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attack", ["fgsm", "pgd", "apgd"])
def test_the_stack_is_the_kernel_of_its_attacked_points(double, attack: str, norm: str) -> None:
    make = lambda rho: ATTACKS[attack](rho, norm=norm)  # noqa: E731
    got, (x, y) = run(make), data()
    assert got.gram.shape == (len(RHOS), 3 * N, 3 * N)
    assert not {"states", "features"} & {name for own in got.quantities.values() for name in own}
    victim = Victim(partial(apply, model().params), y)
    together = np.stack([got.quantities[kernel]["loss"] for kernel in POINTS], 1)
    for gram, slope, losses, rho in zip(got.gram, got.slopes, together, RHOS, strict=True):
        parts = (x, *twice(make(rho), victim, x))
        points = jnp.concatenate(parts)
        jacobian = jax.jacrev(partial(apply, points=points))(model().params)
        rows = np.concatenate([np.reshape(leaf, (3 * N, CLASSES, -1)) for leaf in jacobian], 2)
        assert error(gram, np.einsum("icp,jcp->ij", rows, rows) / CLASSES) < EXACT
        logits = [np.asarray(apply(model().params, part)) for part in parts]
        expected = [
            np.mean(np.log(np.exp(f).sum(1)) - f[np.arange(N), np.asarray(y)]) for f in logits
        ]
        np.testing.assert_allclose(losses, expected, rtol=1e-10)
        assert expected[0] < expected[1] < expected[2]
        slopes = jax.vmap(jax.grad(lambda x: jnp.sum(apply(model().params, x))))(points)
        assert error(slope, np.corrcoef(slopes)) < EXACT


def test_a_program_leaves_linear_algebra_to_the_host() -> None:
    """Two such calls of a program can wait for each other without end on a CPU."""
    space = NASBench201(channels=4, cells_per_stage=1)
    digits = jnp.asarray(space.encode(space.parse("323133")))
    variables, labels = space.draw((), 0, jnp.float32), jnp.zeros(2, jnp.int32)

    def compute(images: Array) -> Stack:
        model = space.model((), variables, digits, images)
        return stack(model, images, labels, fgsm, jnp.asarray(RHOS))

    program = jax.jit(compute).lower(jnp.zeros((2, 32, 32, 3), jnp.float32)).as_text()
    assert "dot_general" in program and "lapack" not in program


def test_kernels_and_attacks_have_names(double) -> None:
    named = stack(model(), *data(), "fgsm", list(RHOS))
    plain = stack(model(), *data(), fgsm, jnp.asarray(RHOS))
    for radius, gram in enumerate(np.asarray(plain.gram)):
        kernels = list(every_kernel(gram, N, (0.25,)))
        for name, _, kernel in kernels:
            np.testing.assert_array_equal(named.kernel(name, 0.25, radius), kernel)
        assert len(kernels) == len(KERNELS)
    with refuses("adversarial", expected=("clean", "joint_robust")):
        named.kernel("adversarial")
    with refuses("cw", expected=("apgd", "fgsm", "pgd", "square")):
        stack(model(), *data(), "cw", list(RHOS))


def test_one_radius_of_several_is_that_radius_alone(double) -> None:
    together = run(pgd)
    for place, rho in enumerate(RHOS):
        alone = run(pgd, (rho,))
        assert error(together.gram[place], alone.gram[0]) < EXACT
        assert jax.tree.structure(together.quantities) == jax.tree.structure(alone.quantities)
        jax.tree.map(
            lambda a, b, place=place: np.testing.assert_allclose(a[place], b[0], rtol=1e-9),
            together.quantities,
            alone.quantities,
        )


def test_the_reading_that_passes_by_has_the_same_slopes(double) -> None:
    """The passes go back once for the kernel of `sum` and the slopes."""
    x, y = points(N)

    @jax.jit
    def slopes(params: Any) -> list[Array]:
        model = small_model(params, jnp.asarray(1, jnp.int32))
        return [stack(model, x, y, fgsm, jnp.asarray(RHOS), out).slopes for out in ("sum", "loss")]

    by_the_way, apart = slopes(small_params())
    assert error(by_the_way, apart) < EXACT


def test_the_correlation_is_of_gradients_large_and_small_and_of_none() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 30))
    scaled = rows * np.array([[1e25], [1e-25], [1.0], [-3.0]])
    np.testing.assert_allclose(
        correlation(jnp.asarray(scaled, jnp.float32)),
        np.corrcoef(rows) * np.outer([1, 1, 1, -1], [1, 1, 1, -1]),
        atol=1e-6,
    )
    flat = correlation(jnp.asarray([np.zeros(30), np.full(30, 2.0), rows[0]], jnp.float32))
    np.testing.assert_allclose(flat, np.diag([0.0, 0.0, 1.0]), atol=1e-6)


def test_radius_zero_leaves_every_block_the_clean_kernel(double) -> None:
    gram = np.asarray(run(fgsm, (0.0,)).gram[0])
    clean = ntk(model(), data()[0], output="trace")
    assert error(gram, np.tile(clean, (3, 3))) < EXACT
    assert error(joint_kernel(gram, "joint_robust", 0.3, N), clean) < EXACT


@pytest.mark.slow
def test_a_random_start_needs_its_key_and_follows_it(double) -> None:
    attack = lambda rho: pgd(rho, 2, random_start=True)  # noqa: E731
    with refuses(None, expected="key", kind=AttackError):
        run(attack)
    first, again, other = (run(attack, key=jax.random.key(seed)).gram for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert error(first, other) > 1e-6
    np.testing.assert_allclose(first[:, :N, :N], other[:, :N, :N], rtol=1e-12)


def test_cross_entropy_is_in_nats() -> None:
    logits = jnp.zeros((2, CLASSES))
    np.testing.assert_allclose(cross_entropy(logits, jnp.asarray([0, 2])), np.log(CLASSES))


def test_an_attack_may_ask_for_logits() -> None:
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.uniform(size=(4, 8, 8, 1)), jnp.float32)
    weights = jnp.asarray(rng.normal(size=(64, 2)), jnp.float32)
    linear = Model(lambda w, x: x.reshape(len(x), -1) @ w, weights)
    labels, key, rho = linear.logits(images).argmax(1), jax.random.key(1), 0.1

    square = partial(SquareAttack, queries=30)
    found = stack(linear, images, labels, square, [rho, 0.2], key=key)
    moved = square(rho)(Victim(linear.logits, labels), images, jax.random.split(key, 2)[0])
    gram = ntk(linear, jnp.concatenate([images, moved]))
    np.testing.assert_allclose(found.gram[0, :8, :8], gram, rtol=1e-5)
    assert found.quantities["robust"]["loss"][0] > found.quantities["clean"]["loss"][0]
