"""Epochs of training on images in memory, kept so that the same call goes on from the last one."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int

from ntkscore.errors import InputError
from ntkscore.model import Trainable
from ntkscore.results.checkpoints import Checkpoints
from ntkscore.run.devices import compiler_options
from ntkscore.training.optimizer import optimizer
from ntkscore.training.recipe import Recipe
from ntkscore.training.steps import State, step

SECONDS = 1.0
"""Time between two reports; each report waits for the step that it tells of."""
HISTORY = ("loss", "clean_accuracy", "robust_accuracy")


class Diverged(Exception):
    """A loss that is not finite; the state after the last whole epoch is kept.

    Attributes:
        step: the first step whose loss is not finite, counted from 1.
        epoch: its epoch, counted from 1.
    """

    def __init__(self, step: int, epoch: int) -> None:
        super().__init__(
            f"the loss is not finite at step {step}, in epoch {epoch}; the state after epoch "
            f"{epoch - 1} is kept, and a lower peak goes further"
        )
        self.step, self.epoch = step, epoch


class Moment(NamedTuple):
    """Progress of a training: steps done of all, the epoch, its last loss, seconds left."""

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
        labels: classes.
        recipe: how.
        seeds: of the order of images, augmentation and attacks.
        out: folder where the state after each epoch is kept; with what it holds the same call goes
            on to the same weights. Nothing is written if left out.
        described: what else decides the numbers, as JSON types, for that folder.
        report: is told where training is, about once a second.
        after: is given each whole epoch, counted from 1, and the state after it.

    Raises:
        InputError: if the folder is of another run or damaged.
        Diverged: if a loss is not finite.
    """
    per_epoch = -(-len(labels) // recipe.batch)
    steps = recipe.steps(len(labels))
    advance = _compiled(networks[0], recipe, steps)
    kept = Checkpoints(out, {**(described or {}), "seeds": list(seeds)})
    done, (state, history) = kept.latest(untrained(networks, recipe))
    dtype = jax.tree.leaves(state.params)[0].dtype
    history = np.array(history)
    place = _placement()
    data, state = jax.device_put((images, state), place(None))
    start = time.monotonic()
    last = start
    for epoch in range(done, recipe.epochs):
        orders = [np.random.default_rng([seed, epoch]).permutation(len(labels)) for seed in seeds]
        seen: list[Any] = []
        for k in range(per_epoch):
            rows = np.stack([o[k * recipe.batch : (k + 1) * recipe.batch] for o in orders])
            keys = jnp.stack(
                [jax.random.fold_in(jax.random.key(seed), epoch * per_epoch + k) for seed in seeds]
            )
            batch = jax.device_put((rows, labels[rows]), place(rows.shape[1]))
            state, saw = advance(state, data, *batch, keys, jnp.asarray(recipe.beta, dtype))
            seen.append(saw)
            if report is not None and time.monotonic() - last >= SECONDS:
                count = epoch * per_epoch + k + 1
                rate = (time.monotonic() - start) / (count - done * per_epoch)
                loss = float(jnp.mean(saw.loss))
                left = rate * (steps - count)
                report(Moment(count, steps, epoch + 1, recipe.epochs, loss, left))
                last = time.monotonic()
        losses, clean, robust = (np.stack(each) for each in zip(*map(_on_host, seen), strict=True))
        if not (finite := np.isfinite(losses).all(1)).all():
            raise Diverged(epoch * per_epoch + int(np.argmin(finite)) + 1, epoch + 1)
        sizes = np.diff([*range(0, len(labels), recipe.batch), len(labels)])
        history[epoch] = np.stack([sizes @ losses, clean.sum(0), robust.sum(0)], -1) / len(labels)
        kept.save(epoch + 1, (state, history))
        if after is not None:
            after(epoch + 1, state)
    return Fitted(state, history)


def untrained(
    networks: Sequence[Trainable], recipe: Recipe
) -> tuple[State, Float[np.ndarray, "e s 3"]]:
    """The state before the first step, of all seeds, and a history without entries."""
    stepping = optimizer(recipe, 1)
    states = [State(n.params, n.statistics, stepping.init(n.params)) for n in networks]
    blank = np.full((recipe.epochs, len(networks), len(HISTORY)), np.nan)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), blank


def _on_host(seen: Any) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(each, float) for each in seen)


def _compiled(network: Trainable, recipe: Recipe, steps: int) -> Callable[..., Any]:
    """One step of all seeds: side by side on accelerators, one after the other on CPUs."""
    functions = network._replace(params=None, statistics=None)
    stepping = optimizer(recipe, steps)

    def one(state: State, images: Any, labels: Any, key: Any, beta: Any) -> Any:
        return step(functions, recipe, stepping, state, images, labels, key, beta)

    # What is donated is not needed any more; the state before a step never is.
    @partial(jax.jit, donate_argnums=0, compiler_options=compiler_options())
    def all_seeds(
        state: State, data: Any, rows: Any, labels: Any, keys: Any, beta: Any
    ) -> tuple[State, Any]:
        dtype = jax.tree.leaves(state.params)[0].dtype
        pixels = data[rows].astype(dtype)
        if data.dtype == jnp.uint8:
            pixels = pixels / jnp.asarray(255, dtype)
        given = (state, pixels, labels, keys)
        if jax.default_backend() == "cpu":
            return lax.map(lambda own: one(own[0], own[1], own[2], own[3], beta), given)
        return jax.vmap(one, in_axes=(0, 0, 0, 0, None))(*given, beta)

    return all_seeds


def _placement() -> Callable[[int | None], Any]:
    """The placement of an array: batches in parts where the devices divide them, else whole."""
    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("images",))

    def place(batch: int | None) -> Any:
        divides = batch is not None and batch % len(devices) == 0
        return NamedSharding(mesh, PartitionSpec(None, "images") if divides else PartitionSpec())

    return place


def split(count: int, held_out: int) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]:
    """Rows to train on and rows kept out, the same for every seed.

    Args:
        count: of all rows.
        held_out: how many to keep out.

    Raises:
        InputError: if none would be left.

    Example:
        >>> train, kept = split(10, 3)
        >>> len(train), len(kept), sorted([*train, *kept]) == list(range(10))
        (7, 3, True)
    """
    if held_out >= count:
        raise InputError(
            f"expected fewer held-out images than there are, {count}, got {held_out}; lower it"
        )
    order = np.random.default_rng(88).permutation(count)
    return np.sort(order[: count - held_out]), np.sort(order[count - held_out :])
