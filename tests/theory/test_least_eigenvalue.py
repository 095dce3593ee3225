"""The corrected bound holds and the printed one does not, case by case."""

from pathlib import Path

import numpy as np
import pytest
from theory_networks import unit_points
from tiny import refuses

from cells.residual import ACTIVATIONS, Residual
from experiments.data import Data
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.least_eigenvalue import lower_bound, lower_bound_at, printed_bound
from experiments.theory.studies.eigenvalue import (
    BOUNDS,
    STUDY,
    coherence,
    counterexample,
    meeting_points,
    too_large,
)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_no_kernel_lies_below_the_corrected_bound(activation: str) -> None:
    given = {"skips": ("1", "0", "111", "101", "000"), "points": "random", "beta": 0.4}
    for size, rho in (("20x128", (0.0, 0.05)), ("30x1024", 0.02), ("30x16", 0.05)):
        study = STUDY.at(size=size, rho=rho, activation=activation, **given)
        frame = study.frame(Data(Path()))
        assert not any(too_large(frame, bound).any() for bound in BOUNDS[1:])
        clean = frame[frame["kernel"] == "clean"]
        assert (clean["corrected"] <= clean["at the points"] + 1e-12).all()


def test_without_a_skip_the_printed_bound_is_wrong() -> None:
    x = unit_points(50, 1024)
    printed = printed_bound("relu", 50, coherence(x))
    least = [np.linalg.eigvalsh(infinite_ntk(Residual(), name, x))[0] for name in ("0", "1")]
    assert printed > 0.07 and least[0] < printed < least[1]


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


def test_reference_values_of_the_bounds() -> None:
    for n, c, order, value in (
        (20, 0.241, 4, 0.0124),
        (50, 0.544, 8, 0.0011),
    ):
        bound = printed_bound("relu", n, c)
        assert bound == printed_bound("relu", n, c, order) == pytest.approx(value, abs=1e-4)
    twice = lower_bound("twice", Residual(), "1", 20, 0.1, 0.05)
    assert twice == lower_bound("robust", Residual(), "1", 20, 0.1, 2 * 0.05) > 0


def test_what_says_nothing_is_zero() -> None:
    assert printed_bound("relu", 50, 1.0) == 0
    assert printed_bound("tanh", 50, 0.3, r=4) == 0  # odd: the coefficient is zero
    assert lower_bound_at(Residual(), "1", np.array([[1.0, 0.0], [-1.0, 0.0]])) == 0


def test_what_is_no_kernel_or_radius_is_refused() -> None:
    with refuses("cross", expected=("clean", "robust")):
        lower_bound("cross", Residual(), "1", 3, 0.1)
    with refuses(2.5, expected=("rho", 2)):
        lower_bound("clean", Residual(), "1", 3, 0.1, 2.5)
