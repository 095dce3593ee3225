"""Training on images in memory, saved after each epoch so that the same call resumes it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from ntkscore.compiler import compiler_options
from ntkscore.errors import InputError
from ntkscore.model import Trainable
from ntkscore.platforms import platform
from ntkscore.results import checkpoints
from ntkscore.results.checkpoints import fingerprint
from ntkscore.training.optimizer import optimizer
from ntkscore.training.recipe import Recipe
from ntkscore.training.steps import Progress, State, as_pixels, step

SECONDS = 1.0
"""Time between two reports; each report waits for its step."""
HISTORY = ("loss", "clean_accuracy", "robust_accuracy")


class Diverged(Exception):
    """A loss that is not finite, at a step of an epoch, from 1 on; the last whole epoch is kept."""

    def __init__(self, step: int, epoch: int) -> None:
        kept = f"the state after epoch {epoch - 1} is kept" if epoch > 1 else "nothing is kept"
        super().__init__(
            f"the loss is not finite at step {step}, in epoch {epoch}; {kept}, and a lower peak "
            "goes further"
        )
        self.step, self.epoch = step, epoch


class Moment(NamedTuple):
    """Report of a training: steps done of all, the epoch of all, the last loss, seconds left."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    seconds_left: float


class Fitted(NamedTuple):
    """Result of a training.

    Attributes:
        state: weights, statistics and moments, a leading axis of seeds on every leaf.
        history: mean loss, clean and robust accuracy of each epoch's own batches, each before its
            step, (epoch, seed, 3); NaN where β leaves them out.
    """

    state: State
    history: Float[np.ndarray, "e s 3"]


def fit(
    networks: Sequence[Trainable],
    images: np.ndarray,
    labels: Int[np.ndarray, " n"],
    recipe: Recipe,
    seeds: Sequence[int] = (0,),
    out: Path | None = None,
    described: Mapping[str, Any] | None = None,
    report: Callable[[Moment], None] | None = None,
    after: Callable[[int, State], None] | None = None,
) -> Fitted:
    """Train a network from several seeds, side by side.

    On several devices each has a part of every batch.

    Args:
        networks: the untrained network of each seed; all share the first one's functions.
        images: (N, height, width, colours), uint8 or pixels in [0, 1].
        seeds: of the order of images, augmentation and attacks.
        out: folder for the state after each epoch, from which the same call resumes and reaches the
            same weights. Nothing is written if left out.
        described: what else than the seeds decides the numbers, as JSON types, for that folder; the
            recipe and the data's checksum if left out.
        after: called with each whole epoch, counted from 1, and the state after it.

    Raises:
        InputError: if the folder is of another run or damaged.
        Diverged: if a loss is not finite.
    """
    per_epoch = -(-len(labels) // recipe.batch)
    steps = recipe.steps(len(labels))
    advance = compiled_step(networks[0], recipe, steps)
    if described is None:
        described = {"recipe": asdict(recipe), "checksum": fingerprint([images, labels])}
    if out is not None:
        out = Path(out)
        checkpoints.begin(out, {**described, "seeds": list(seeds)})
    done, (state, history) = checkpoints.latest(out, untrained(networks, recipe))
    dtype = jax.tree.leaves(state.params)[0].dtype
    history = np.array(history)
    place = _placement()
    data, state = jax.device_put((images, state), place(None))
    start = time.monotonic()
    last = start
    for epoch in range(done, recipe.epochs):
        orders = [np.random.default_rng([seed, epoch]).permutation(len(labels)) for seed in seeds]
        results: list[Progress] = []
        for k in range(per_epoch):
            rows = np.stack([o[k * recipe.batch : (k + 1) * recipe.batch] for o in orders])
            keys = jnp.stack(
                [jax.random.fold_in(jax.random.key(seed), epoch * per_epoch + k) for seed in seeds]
            )
            batch = jax.device_put((rows, labels[rows]), place(rows.shape[1]))
            state, result = advance(state, data, *batch, keys, jnp.asarray(recipe.beta, dtype))
            results.append(result)
            if report is not None and time.monotonic() - last >= SECONDS:
                count = epoch * per_epoch + k + 1
                rate = (time.monotonic() - start) / (count - done * per_epoch)
                loss, left = float(jnp.mean(result.loss)), rate * (steps - count)
                report(Moment(count, steps, epoch + 1, recipe.epochs, loss, left))
                last = time.monotonic()
        losses, clean, robust = np.array(jax.device_get(results), float).swapaxes(0, 1)
        if not (finite := np.isfinite(losses).all(1)).all():
            raise Diverged(epoch * per_epoch + int(np.argmin(finite)) + 1, epoch + 1)
        sizes = np.diff([*range(0, len(labels), recipe.batch), len(labels)])
        history[epoch] = np.stack([sizes @ losses, clean.sum(0), robust.sum(0)], -1) / len(labels)
        if after is not None:  # Before the state is kept, so that it is called again if killed.
            after(epoch + 1, state)
        checkpoints.save(out, epoch + 1, (state, history))
    return Fitted(state, history)


def untrained(
    networks: Sequence[Trainable], recipe: Recipe
) -> tuple[State, Float[np.ndarray, "e s 3"]]:
    """The state before the first step, of all seeds, and a history without entries."""
    stepping = optimizer(recipe, 1)
    states = [State(n.params, n.statistics, stepping.init(n.params)) for n in networks]
    blank = np.full((recipe.epochs, len(networks), len(HISTORY)), np.nan)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), blank


def compiled_step(network: Trainable, recipe: Recipe, steps: int) -> Any:
    """One step of all seeds, jitted: side by side on accelerators, one after the other on CPUs."""
    functions = network._replace(params=None, statistics=None)
    stepping = optimizer(recipe, steps)

    def one(
        state: State, images: Array, labels: Array, key: Array, beta: Array
    ) -> tuple[State, Progress]:
        return step(functions, recipe, stepping, state, images, labels, key, beta)

    # The state before a step is not needed any more, so its memory is donated.
    @partial(jax.jit, donate_argnums=0, compiler_options=compiler_options())
    def all_seeds(
        state: State, data: Array, rows: Array, labels: Array, keys: Array, beta: Array
    ) -> tuple[State, Progress]:
        pixels = as_pixels(data[rows], jax.tree.leaves(state.params)[0].dtype)
        by_seed = (state, pixels, labels, keys)
        if platform() == "cpu":
            return lax.map(lambda seed: one(seed[0], seed[1], seed[2], seed[3], beta), by_seed)
        return jax.vmap(one, in_axes=(0, 0, 0, 0, None))(*by_seed, beta)

    return all_seeds


def _placement() -> Callable[[int | None], NamedSharding]:
    """A function from batch size to placement: split over devices that divide it, else whole."""
    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("images",))

    def place(batch: int | None) -> NamedSharding:
        divides = batch is not None and batch % len(devices) == 0
        return NamedSharding(mesh, PartitionSpec(None, "images") if divides else PartitionSpec())

    return place


def split(count: int, held_out: int) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]:
    """Rows to train on and held-out rows, the same for every seed.

    Example:
        >>> train, held_out = split(10, 3)
        >>> len(train), len(held_out), sorted([*train, *held_out]) == list(range(10))
        (7, 3, True)
    """
    if held_out >= count:
        raise InputError(f"fewer held-out images than there are, {count}", held_out, "lower it")
    order = np.random.default_rng(88).permutation(count)
    return np.sort(order[: count - held_out]), np.sort(order[count - held_out :])
