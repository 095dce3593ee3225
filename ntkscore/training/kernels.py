"""How the clean and the robust kernel move along a training."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, Int, PyTree

from ntkscore.errors import InputError
from ntkscore.kernels.joint import joint_kernel
from ntkscore.kernels.stack import stack
from ntkscore.measures.kernel import measure
from ntkscore.model import Model, Trainable
from ntkscore.regression import alignment, distance
from ntkscore.results.atomic import make_folder, publish
from ntkscore.training.recipe import Recipe
from ntkscore.training.steps import State

IMAGES = 32
"""The first training images, at which kernels are taken."""
BATCHES = 100
"""Forward passes after which running statistics are those of the images, to 0.9^100."""
MEASURES = ("frobenius", "trace", "lambda_min_normalized", "effective_rank")
FILE = "kernels.csv"


class KernelHistory:
    """Kernels of a training's networks, at its beginning and after every few epochs.

    Of each network there are the kernels of clean images, of these attacked (FGSM at the recipe's
    radius, on the network as it is), and K_all at the recipe's β: their distance from the
    beginning, that of the robust kernel from the clean one, the centred alignment with the labels,
    and scores. Networks normalise by their running statistics, at the beginning by those of the
    images.

    Args:
        networks: the untrained network of each seed.
        model_of: the network at weights and statistics.
        every: epochs from one record to the next.
        out: folder for `kernels.csv`; nothing is written if left out.

    Attributes:
        rows: a row for each seed, epoch and kernel.

    Source: Fort et al. (2020), "Deep learning versus kernel learning", section 3, for distances;
    Loo et al. (2022), "Evolution of neural tangent kernels under benign and adversarial training".
    """

    def __init__(
        self,
        networks: Sequence[Trainable],
        seeds: Sequence[int],
        model_of: Callable[[PyTree, PyTree], Model],
        images: Float[np.ndarray, "m h w c"],
        labels: Int[np.ndarray, " m"],
        recipe: Recipe,
        every: int,
        out: Path | None = None,
    ) -> None:
        if every < 1:
            raise InputError("at least one epoch between kernels", every, "1 records each epoch")
        self._seeds, self._model_of, self._recipe, self._every = seeds, model_of, recipe, every
        self._images, self._labels = jnp.asarray(images), np.asarray(labels)
        self._path = None if out is None else Path(out) / FILE
        self._networks = networks
        if self._path is not None and self._path.exists():
            self.rows = pd.read_csv(self._path)
        else:
            self.rows = pd.DataFrame(self._rows(0, self._start))

    @cached_property
    def _start(self) -> list[dict[str, np.ndarray]]:
        """The kernels of each seed at the beginning; a run that had ended needs them no more."""
        return [self._kernels(_at_its_images(each, self._images)) for each in self._networks]

    def __call__(self, epoch: int, state: State) -> None:
        """Record the kernels after an epoch, counted from 1, if it is the turn of it or the last.

        The state has seeds along the first axis.
        """
        if epoch % self._every and epoch != self._recipe.epochs:
            return
        by_seed = [jax.tree.map(lambda a, k=k: a[k], state) for k in range(len(self._seeds))]
        kernels = [self._kernels(self._model_of(at.params, at.statistics)) for at in by_seed]
        # A record whose epoch was not kept before a stop is made again.
        both = pd.concat([self.rows, pd.DataFrame(self._rows(epoch, kernels))], ignore_index=True)
        key = ["seed", "epoch", "kernel"]
        self.rows = both.drop_duplicates(key, keep="last").sort_values(key, ignore_index=True)
        if self._path is not None:
            make_folder(self._path.parent)
            publish(self._path, self.rows.to_csv(index=False).encode())

    def _kernels(self, model: Model) -> dict[str, np.ndarray]:
        """The kernels by name."""
        n, beta = len(self._images), self._recipe.beta
        found = stack(model, self._images, self._labels, "fgsm", [self._recipe.rho], output="trace")
        gram = np.asarray(found.gram[0], np.float64)
        joint = joint_kernel(gram, "joint_clean", beta, n)
        return {"clean": gram[:n, :n], "robust": gram[n : 2 * n, n : 2 * n], "joint_clean": joint}

    def _rows(
        self, epoch: int, kernels: Sequence[dict[str, np.ndarray]]
    ) -> Iterator[dict[str, object]]:
        """A row for each seed and kernel."""
        targets = np.eye(self._labels.max() + 1)[self._labels]
        for seed, own, start in zip(self._seeds, kernels, self._start, strict=True):
            for name, kernel in own.items():
                scores = measure(kernel, self._labels)
                yield {
                    "seed": seed,
                    "epoch": epoch,
                    "kernel": name,
                    "distance": distance(kernel, start[name]),
                    "distance_from_clean": distance(kernel, own["clean"]),
                    "alignment": alignment(kernel, targets @ targets.T),
                    **{score: scores[score].value for score in MEASURES},
                }


def _at_its_images(network: Trainable, images: jax.Array) -> Model:
    """An untrained network whose running statistics are those of some images."""
    advance = jax.jit(lambda statistics: network.train(network.params, statistics, images)[1])
    statistics = network.statistics
    for _ in range(BATCHES if jax.tree.leaves(statistics) else 0):
        statistics = advance(statistics)
    return network.at(network.params, statistics)
