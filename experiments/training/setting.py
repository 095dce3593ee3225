"""A small network, its images and its training, for the experiments that train."""

from collections.abc import Hashable, Mapping

import jax
import pandas as pd

from cells.nasbench201.space import NASBench201
from experiments.study import DATASET, RESAMPLES, Study
from experiments.theory.seeds import Interval, over_seeds
from ntkscore.analysis.correlation import spearman
from ntkscore.data.images import load_images
from ntkscore.model import Model
from ntkscore.run import devices
from ntkscore.training.fit import Fitted, fit, split
from ntkscore.training.recipe import Recipe

TEST, EPOCHS = 500, 10
SIZES = {
    "train": 2000,
    "test": TEST,
    "epochs": EPOCHS,
    "batch": 64,
    "channels": 4,
    "cells_per_stage": 1,
}
"""Sizes of the images, the network and its training, as they are recorded."""


def correlation(frame: pd.DataFrame, first: Hashable, second: Hashable) -> Interval:
    """Spearman between two columns, with an interval over cells."""
    pairs = frame[[first, second]].to_numpy(float)
    return over_seeds(pairs, lambda drawn: spearman(*drawn.T), RESAMPLES)


class SmallTraining:
    """Training and test images of CIFAR-10, a fixed split of the training files.

    Attributes:
        sizes: of the images, the network and its training, as `SIZES`.
        space: small networks for them.
        train, test: pairs of images and labels.
    """

    def __init__(self, study: Study, sizes: Mapping[str, int] = SIZES) -> None:
        devices.keep_compiled()
        images = load_images(DATASET, study.data_dir)
        train, test = split(len(images.labels), sizes["test"])
        self.sizes = sizes
        self.space = NASBench201(
            channels=sizes["channels"], cells_per_stage=sizes["cells_per_stage"]
        ).on(images.task)
        self.train, self.test = (
            (images.images[rows], images.labels[rows]) for rows in (train[: sizes["train"]], test)
        )

    def fit(self, cell: str, beta: float, seeds: tuple[int, ...]) -> Fitted:
        """Train a cell from some seeds."""
        recipe = Recipe(beta=beta, epochs=self.sizes["epochs"], batch=self.sizes["batch"])
        networks = [self.space.trainable(cell, seed) for seed in seeds]
        return fit(networks, *self.train, recipe, seeds)

    def trained(self, cell: str, fitted: Fitted, place: int = 0) -> Model:
        """The network of one seed, at its weights after training."""
        state = jax.tree.map(lambda leaf: leaf[place], fitted.state)
        return self.space.trained_model(cell, state.params, state.statistics)
