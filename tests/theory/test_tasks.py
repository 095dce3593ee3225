"""Points of the theory's tasks: on the sphere, with the margins that they promise."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from experiments.theory.tasks import area_means, margin, tradeoff, two_classes
from ntkscore.data.images import load_images
from ntkscore.errors import InputError


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


def test_two_classes_of_images_become_points() -> None:
    images = load_images("synthetic")
    x, y = two_classes(images, (3, 5), 20, rng())
    assert x.shape == (20, 32 * 32 * 3) and y.sum() == 0
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1)
    pixels = images.images.reshape(len(images.images), -1).astype(float)
    for point, label in zip(x, y, strict=True):
        near = int(np.argmax(pixels @ point / np.linalg.norm(pixels, axis=1)))
        assert images.labels[near] == (5 if label > 0 else 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: margin(5, 4, 1.0, rng()), "expected a margin from 0 to below 1, got 1"),
        (lambda: margin(5, 1, 0.1, rng()), "expected at least 2 dimensions, got 1; raise it"),
        (lambda: tradeoff(5, 2, rng()), "expected at least 3 dimensions, got 2; raise it"),
        (
            lambda: two_classes(load_images("synthetic"), (0, 1), 5, rng()),
            "expected an even number",
        ),
        (
            lambda: two_classes(load_images("synthetic"), (0, 1), 4000, rng()),
            "expected at least 2000 images of class 0, got 100; ask for fewer points",
        ),
    ],
)
def test_what_no_task_can_give_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        make()


def test_area_means_keep_the_mean_and_are_block_means_where_sides_divide() -> None:
    images = np.random.default_rng(0).uniform(size=(3, 28, 28, 2))
    for side in (5, 7, 10, 14, 28):
        small = area_means(images, side)
        assert small.shape == (3, side, side, 2)
        np.testing.assert_allclose(small.mean((1, 2)), images.mean((1, 2)), rtol=1e-12)
        np.testing.assert_allclose(area_means(np.ones((1, 28, 28, 1)), side), 1, rtol=1e-12)
    np.testing.assert_array_equal(area_means(images, 28), images)
    blocks = images.reshape(3, 14, 2, 14, 2, 2).mean((2, 4))
    np.testing.assert_allclose(area_means(images, 14), blocks, rtol=1e-12)
    with pytest.raises(InputError, match="side from 1 to 28 pixels, got 29"):
        area_means(images, 29)
