"""What the experiments that train share: a small network, its images, its training."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cells.nasbench201.space import NASBench201
from experiments.study import DATASET, Study
from ntkscore.data.images import ImageSet, load_images
from ntkscore.run import devices
from ntkscore.training.fit import Fitted, fit, split
from ntkscore.training.recipe import Recipe

TRAIN, TEST, EPOCHS, BATCH = 2000, 500, 10, 64
CHANNELS, CELLS_PER_STAGE = 4, 1


class Rows:
    """Training and test images of CIFAR-10, a fixed split of the training files.

    Attributes:
        space: small networks for them.
        train, test: pairs of images and labels.
    """

    def __init__(self, study: Study) -> None:
        devices.keep_compiled()
        images: ImageSet = load_images(DATASET, study.data_dir)
        train, test = split(len(images.labels), TEST)
        self.space = NASBench201(channels=CHANNELS, cells_per_stage=CELLS_PER_STAGE).on(images.task)
        self.train, self.test = (
            (images.images[rows], images.labels[rows]) for rows in (train[:TRAIN], test)
        )

    def fit(
        self,
        cell: str,
        beta: float,
        seeds: tuple[int, ...],
        after: Callable[[int, Any], None] | None = None,
    ) -> Fitted:
        """A cell trained from some seeds."""
        recipe = Recipe(beta=beta, epochs=EPOCHS, batch=BATCH)
        networks = [self.space.trainable(cell, seed) for seed in seeds]
        return fit(networks, *self.train, recipe, seeds, after=after)


def settings() -> dict[str, object]:
    """The sizes, for a record."""
    return {
        "train": TRAIN,
        "test": TEST,
        "epochs": EPOCHS,
        "batch": BATCH,
        "channels": CHANNELS,
        "cells_per_stage": CELLS_PER_STAGE,
    }


def interval(values: np.ndarray) -> str:
    """Mean, least and largest of the seeds."""
    return f"{values.mean():.3f} [{values.min():.3f}, {values.max():.3f}]"
