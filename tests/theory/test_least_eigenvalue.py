"""The corrected bound holds and the printed one does not, case by case."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from cells.residual import ACTIVATIONS, Residual
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.least_eigenvalue import lower_bound, lower_bound_at, printed_bound
from experiments.theory.sphere import project_to_cap
from experiments.theory.studies.eigenvalue import coherence, counterexample, meeting_points
from experiments.theory.tasks import margin
from ntkscore.errors import InputError
from ntkscore.kernels.joint import joint_kernel

PATTERNS = ("1", "0", "111", "101", "000")


def directions(count: int, dimension: int, seed: int = 0) -> np.ndarray:
    return margin(count, dimension, 0.0, np.random.default_rng(seed)).x


def least(kernel: np.ndarray) -> float:
    """The least eigenvalue, with what rounding may have taken from it."""
    spectrum = np.linalg.eigvalsh(kernel)
    return float(spectrum[0] + 1e-9 * spectrum[-1])


@pytest.mark.parametrize(("activation", "name"), [*itertools.product(ACTIVATIONS, PATTERNS)])
def test_no_kernel_lies_below_the_corrected_bound(activation: str, name: str) -> None:
    space = Residual(activation=activation)
    for n, d, rho in ((20, 128, 0.0), (20, 128, 0.05), (30, 1024, 0.02), (30, 16, 0.05)):
        x, c = directions(n, d), coherence(directions(n, d))
        once, twice = x, x
        for seed in (1, 2):
            towards = jnp.asarray(directions(n, d, seed))
            once, twice = twice, np.asarray(project_to_cap(towards, jnp.asarray(twice), rho))
        points = np.concatenate([x, once, twice]).astype(float)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        gram = infinite_ntk(space, name, points)
        kernels = {"clean": gram[:n, :n], "robust": gram[n : 2 * n, n : 2 * n]}
        kernels |= {"twice": gram[2 * n :, 2 * n :]}
        for kernel in ("joint_clean", "joint_robust"):
            kernels[kernel] = joint_kernel(gram, kernel, 0.4, n)
        for kernel, matrix in kernels.items():
            assert lower_bound(kernel, space, name, n, c, rho) <= least(matrix)
        at_points = lower_bound_at(space, name, points[:n])
        assert lower_bound("clean", space, name, n, c) <= at_points + 1e-12
        assert at_points <= least(kernels["clean"])


def test_without_a_skip_the_printed_bound_is_wrong() -> None:
    x = directions(50, 1024)
    printed = printed_bound("relu", 50, coherence(x))
    assert printed > 0.07
    assert least(infinite_ntk(Residual(), "0", x)) < printed
    assert least(infinite_ntk(Residual(), "1", x)) > printed


def test_for_the_joint_kernel_the_printed_bound_is_wrong_with_all_skips() -> None:
    """Two points, each attacked twice, meet in the middle."""
    stack, rho = meeting_points()
    assert rho == pytest.approx(0.38528, abs=1e-5)
    x, once, twice = stack[:2], stack[2:4], stack[4:]
    assert np.linalg.norm(x[0] - x[1]) == pytest.approx(1.4)
    for here, there in ((x, once), (once, twice)):
        np.testing.assert_allclose(np.linalg.norm(here - there, axis=1), rho)
    for beta, expected in {1.0: 0.0, 0.9: 0.0038, 0.7: 0.0346}.items():
        printed, found = counterexample(beta)
        assert printed == pytest.approx(0.0305, abs=1e-3)
        assert found == pytest.approx(expected, abs=1e-4)
    assert lower_bound("joint_robust", Residual(), "1", 2, abs(x[0] @ x[1]), rho) == 0


def test_reference_values_of_the_printed_bound() -> None:
    for n, c, order, value in (
        (20, 0.241, 4, 0.0124),
        (20, 0.451, 6, 0.0034),
        (50, 0.104, 2, 0.0748),
        (50, 0.544, 8, 0.0011),
    ):
        bound = printed_bound("relu", n, c)
        assert bound == printed_bound("relu", n, c, order) == pytest.approx(value, abs=1e-4)


def test_what_says_nothing_is_zero() -> None:
    assert printed_bound("relu", 50, 1.0) == 0
    assert printed_bound("tanh", 50, 0.3, r=4) == 0  # odd: the coefficient is zero
    assert lower_bound_at(Residual(), "1", np.array([[1.0, 0.0], [-1.0, 0.0]])) == 0


def test_what_is_no_kernel_or_radius_is_refused() -> None:
    with pytest.raises(InputError, match=r"^expected a kernel of clean, .*, got 'cross'"):
        lower_bound("cross", Residual(), "1", 3, 0.1)
    with pytest.raises(InputError, match=r"^expected rho from 0 to 2, got 2\.5"):
        lower_bound("clean", Residual(), "1", 3, 0.1, 2.5)
