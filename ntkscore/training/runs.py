"""Training of a space's architecture, and reading its folder back."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from ntkscore.data.images import ImageSet
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.results.checkpoints import RUN, latest
from ntkscore.space import Architecture, Space
from ntkscore.spaces import default_space, recorded_space
from ntkscore.task import Task
from ntkscore.training.fit import HISTORY, Fitted, Moment, fit, split, untrained
from ntkscore.training.kernels import FILE, IMAGES, KernelHistory
from ntkscore.training.recipe import Recipe
from ntkscore.training.steps import State, as_pixels


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network after training, from one or several seeds.

    Attributes:
        space: on the images' task.
        architecture: of the space.
        recipe: settings of the training.
        seeds: of weights and order.
        dataset, checksum: of the images.
        fitted: weights, statistics and history by seed.
        epochs: number of whole epochs.
        kernels: a row for each seed, epoch and kernel, where they were asked for.
    """

    space: Space
    architecture: Architecture
    recipe: Recipe
    seeds: tuple[int, ...]
    dataset: str
    checksum: str
    fitted: Fitted
    epochs: int
    kernels: pd.DataFrame | None = None

    def state(self, place: int = 0) -> State:
        """Weights, statistics and moments of the seed at a place of `seeds`."""
        return jax.tree.map(lambda leaf: leaf[place], self.fitted.state)

    def model(self, place: int = 0) -> Model:
        """The network at its trained weights, by its running statistics."""
        state = self.state(place)
        key = self.space.key(self.architecture)
        return self.space.trained_model(key, state.params, state.statistics)

    @property
    def history(self) -> pd.DataFrame:
        """A row for each seed and epoch: mean loss and accuracies of its own batches."""
        identity = self.space.identity(self.architecture)
        rows = [
            {**identity, "seed": seed, "beta": self.recipe.beta, "epoch": epoch + 1}
            | dict(zip(HISTORY, map(float, numbers), strict=True))
            for place, seed in enumerate(self.seeds)
            for epoch, numbers in enumerate(self.fitted.history[: self.epochs, place])
        ]
        return pd.DataFrame(rows)

    def write_weights(self, path: Path, place: int = 0) -> None:
        """Write the weights of the seed at a place of `seeds` to a file of the space's own kind."""
        state = self.state(place)
        self.space.write_weights(path, self.architecture, state.params, state.statistics)


def train(
    architecture: Architecture,
    images: ImageSet,
    recipe: Recipe | None = None,
    *,
    space: Space | None = None,
    seeds: int | Sequence[int] = 1,
    out: Path | None = None,
    kernels: int | None = None,
    report: Callable[[Moment], None] | None = None,
) -> TrainedNetwork:
    """Train an architecture adversarially.

    Args:
        architecture: by any name that the space knows.
        images: the training images.
        recipe: settings of the training; the benchmark's code at β = 1 if left out.
        space: the architecture's space; NAS-Bench-201 if left out.
        seeds: how many, counted from 0, or which: of weights, order, augmentation and attacks. They
            are trained side by side.
        out: folder for the state after each epoch; the same call resumes from the last one.
        kernels: after how many epochs to record how the kernels have moved
            (`ntkscore.training.kernels.KernelHistory`); never if left out.
        report: called with the training's progress, about once a second.

    Raises:
        InputError: if there is no such architecture, or the folder is of another run or damaged.
        Diverged: if a loss is not finite; the state after the last whole epoch is kept.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", equation 3 and section 3.1.

    Example:
        >>> from ntkscore.data.images import load_images
        >>> from cells.residual import Residual
        >>> recipe = Recipe(beta=0.5, epochs=1, batch=50, held_out=900, attack_steps=1)
        >>> trained = train("1", load_images("synthetic"), recipe, space=Residual(width=8))
        >>> trained.history.columns.tolist()
        ['skips', 'seed', 'beta', 'epoch', 'loss', 'clean_accuracy', 'robust_accuracy']
    """
    recipe = recipe or Recipe()
    seeds = tuple(range(seeds) if isinstance(seeds, int) else seeds)
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError("at least one seed, each once", list(seeds), "correct them")
    space = (space or default_space()).on(images.task)
    chosen = space.parse(architecture)
    rows, _ = split(len(images.labels), recipe.held_out)
    networks = [space.trainable(space.key(chosen), seed) for seed in seeds]
    described = {
        **space.columns,
        "identity": space.identity(chosen),
        "dataset": images.name,
        "checksum": images.checksum,
        "task": list(images.task),
        "recipe": asdict(recipe),
    }
    pixels, labels = images.images[rows], images.labels[rows]
    history = None
    if kernels is not None:
        some = np.asarray(as_pixels(jnp.asarray(pixels[:IMAGES]), jnp.float32))
        model_of = partial(space.trained_model, space.key(chosen))
        given = (some, labels[:IMAGES], recipe, kernels, out)
        history = KernelHistory(networks, seeds, model_of, *given)
    fitted = fit(networks, pixels, labels, recipe, seeds, out, described, report, history)
    found = (images.name, images.checksum, fitted, recipe.epochs)
    rows = None if history is None else history.rows
    return TrainedNetwork(space, chosen, recipe, seeds, *found, rows)


def open_trained(folder: Path, space: Space | None = None) -> TrainedNetwork:
    """Open the networks of a folder that `train` writes, during training or after it."""
    folder = Path(folder)
    try:
        described = json.loads((folder / RUN).read_text(encoding="utf-8"))
        if "configuration" in described:
            raise InputError(
                "a folder that `ntkscore train` left",
                f"the scores of a run in {folder}",
                "train one of its networks",
            )
        recipe = Recipe(**described["recipe"])
        shape, classes, mean, std = described["task"]
        seeds = tuple(described["seeds"])
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "a folder that `ntkscore train` left",
            f"but {folder / RUN} cannot be read ({type(error).__name__})",
            "give another",
        ) from error
    found = recorded_space(described, folder, None if space is None else type(space))
    found = found.on(Task(tuple(shape), classes, tuple(mean), tuple(std)))
    chosen = found.parse(next(iter(described["identity"].values())))
    networks = [found.trainable(found.key(chosen), seed) for seed in seeds]
    done, (state, history) = latest(folder, untrained(networks, recipe))
    if not done:
        raise InputError(f"at least one epoch in {folder}", "but none is done", "wait for it")
    fitted, dataset = Fitted(state, np.asarray(history)), described["dataset"]
    checksum = described["checksum"]
    kernels = pd.read_csv(folder / FILE) if (folder / FILE).exists() else None
    return TrainedNetwork(found, chosen, recipe, seeds, dataset, checksum, fitted, done, kernels)
