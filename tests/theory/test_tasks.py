"""Points of the theory's tasks: on the sphere, with the margins that they promise."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest
from tiny import refuses

from experiments.theory.tasks import margin, tradeoff


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_margin_points_are_the_uniform_ones_outside_the_margin() -> None:
    x, y = margin(4000, 5, 0.25, rng())
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1)
    np.testing.assert_array_equal(np.sign(x[:, 0]), y)
    assert abs(y.mean()) < 0.05
    drawn = np.random.default_rng(1).standard_normal((40_000, 5))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    outside = drawn[np.abs(drawn[:, 0]) > 0.25]
    for axis in (0, 1):
        assert kstest(np.abs(x[:, axis]), np.abs(outside[:, axis])).pvalue > 1e-3


def test_tradeoff_has_a_fragile_and_a_robust_coordinate() -> None:
    x, y = tradeoff(4000, 20, rng())
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1)
    assert (np.sign(x[:, 0]) == y).mean() == pytest.approx(0.85, abs=0.02)
    assert (np.sign(x[:, 1]) == y).all()
    assert np.abs(x[:, 0]).min() > 0.3 > np.median(np.abs(x[:, 1]))


@pytest.mark.parametrize(
    ("make", "got", "expected"),
    [
        (lambda: margin(5, 4, 1.0, rng()), 1, ("margin", 0, 1)),
        (lambda: margin(5, 1, 0.1, rng()), 1, (2, "dimensions")),
        (lambda: tradeoff(5, 2, rng()), 2, (3, "dimensions")),
    ],
)
def test_what_no_task_can_give_is_refused(make: Any, got: int, expected: Any) -> None:
    with refuses(got, expected=expected):
        make()
