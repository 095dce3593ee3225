"""Zeros and ones of MNIST for lazy networks, in training and test points by seed."""

from functools import lru_cache
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Array

from experiments.study import Study
from experiments.theory.networks import draw_two_layer
from experiments.theory.tasks import Points, area_means, on_sphere
from ntkscore.data.images import ImageSet, load_images
from ntkscore.errors import InputError

TRAIN = 600
"""Points for training where the official test files are missing; the others are for testing."""


def split(study: Study, side: int, seed: int, scale: str = "unit") -> tuple[Points, Points]:
    """Training and test points of side² pixels, labelled −1 for a zero and 1 for a one.

    They have length 1 on the scale `unit`, and pixels in [0, 1] on the scale `pixel`. The seed
    splits them where the official test files are missing.
    """
    train, *test = (_points(images, side, scale) for images in _files(study.data_dir))
    if test:
        return train, test[0]
    x, y = train
    order = np.random.default_rng(seed).permutation(len(x))
    first, rest = order[:TRAIN], order[TRAIN:]
    return Points(x[first], y[first]), Points(x[rest], y[rest])


def drawn(dimension: int, width: int, seed: int) -> tuple[Array, Array, Array]:
    """W and a of a network of its own for every size and seed, and a key for its training."""
    key = jax.random.fold_in(jax.random.key(seed), dimension * width)
    weights, order = jax.random.split(key)
    return *draw_two_layer(weights, dimension, width), order


@lru_cache
def _files(data_dir: Path) -> tuple[ImageSet, ...]:
    train = load_images("mnist", data_dir)
    try:
        return train, load_images("mnist", data_dir, test=True)
    except InputError:
        return (train,)


def _points(images: ImageSet, side: int, scale: str) -> Points:
    (rows,) = np.nonzero(np.isin(images.labels, (0, 1)))
    pixels = area_means(images.pixels[rows].astype(float), side).reshape(len(rows), -1)
    labels = np.where(np.asarray(images.labels)[rows] == 1, 1.0, -1.0)
    return Points(on_sphere(pixels) if scale == "unit" else pixels, labels)
