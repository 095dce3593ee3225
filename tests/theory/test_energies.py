"""Energies of kernels and labels: a plain solver, inequalities, and what has none."""

import numpy as np
import pytest
from scipy.optimize import nnls
from tiny import refuses

from cells.residual import Residual
from experiments.theory.energies import label_energy_binary, leading_term, margin_energy
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.tasks import margin

N = 40


def problem(activation: str = "relu", name: str = "1") -> tuple[np.ndarray, np.ndarray]:
    x, y = margin(N, 6, 0.1, np.random.default_rng(0))
    return infinite_ntk(Residual(activation=activation), name, x), y


@pytest.mark.parametrize("activation", ["relu", "swish", "sigmoid"])
@pytest.mark.parametrize("name", ["1", "0"])
def test_the_margin_energy_is_that_of_the_support_vector_machine(
    activation: str, name: str
) -> None:
    kernel, y = problem(activation, name)
    # The dual as non-negative least squares: ‖R a − R⁻ᵀ1‖² with RᵀR = Q.
    root = np.linalg.cholesky(kernel * np.outer(y, y)).T
    a, _ = nnls(root, np.linalg.solve(root.T, np.ones(N)), maxiter=10_000)
    expected = 2 * a.sum() - np.sum((root @ a) ** 2)
    got = margin_energy(kernel, y)
    assert got.status == "ok" and got.lower <= got.upper <= 1.01 * got.lower
    assert got.value == pytest.approx(expected, rel=0.01)


def test_the_inequalities_between_energies() -> None:
    kernel, y = problem()
    q, s = label_energy_binary(kernel, y).value, margin_energy(kernel, y).value
    assert q == pytest.approx(y @ np.linalg.solve(kernel, y))
    assert s <= q
    least = np.linalg.eigvalsh(kernel)[0]
    assert least * q <= N
    assert q >= N**2 / (y @ kernel @ y)
    assert leading_term(q, layers=3, n=N) == pytest.approx(np.sqrt(9 * q / N))
    assert leading_term(q, layers=3, n=N) <= 3 / np.sqrt(least)  # remark a below theorem 1


def test_of_a_mixture_the_energy_is_below_that_of_the_stack() -> None:
    x, y = margin(2 * N, 6, 0.1, np.random.default_rng(0))
    y = np.concatenate([y[:N], y[:N]])
    gram = infinite_ntk(Residual(), "1", x)
    beta = 0.3
    both = np.concatenate([(1 - beta) * np.eye(N), beta * np.eye(N)], 1)
    mixed = both @ gram @ both.T
    assert margin_energy(mixed, y[:N]).lower <= margin_energy(gram, y).upper


def test_a_singular_kernel_has_no_energy_of_labels() -> None:
    energy = label_energy_binary(np.ones((3, 3)), np.array([1.0, -1.0, 1.0]))
    assert np.isnan(energy.value) and energy.status == "singular"


def test_labels_that_cannot_be_told_apart_have_no_margin() -> None:
    """Two equal points with different labels: the energy is infinite."""
    energy = margin_energy(np.ones((2, 2)), np.array([1.0, -1.0]), steps=1000)
    assert np.isnan(energy.value) and energy.status == "not_converged"
    assert energy.upper == np.inf
    missing = margin_energy(np.full((2, 2), np.nan), np.array([1.0, -1.0]))
    assert np.isnan(missing.value) and missing.status == "singular"


def test_labels_are_1_and_minus_1() -> None:
    for energy in (label_energy_binary, margin_energy):
        with refuses(0, expected=(1, -1)):
            energy(np.eye(2), np.array([1.0, 0.0]))
