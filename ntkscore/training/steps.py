"""One step of multi-objective adversarial training, traced."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PyTree

from attacks import Attack, Victim
from attacks.steps import is_right
from ntkscore.measures.cross_entropy import cross_entropy
from ntkscore.model import Trainable
from ntkscore.training.recipe import Recipe

Images = Float[Array, "n h w c"]
Classes = Int[Array, " n"]


class State(NamedTuple):
    """State of a training: weights, running statistics of normalisations, and the optimiser's."""

    params: PyTree
    statistics: PyTree
    moments: PyTree


class Progress(NamedTuple):
    """Loss in nats and right answers of a step, at the weights before it; NaN where β has none."""

    loss: Float[Array, ""]
    clean: Float[Array, ""]
    robust: Float[Array, ""]


Outcome = tuple[PyTree, Float[Array, ""], Float[Array, ""], PyTree]
"""Gradient, weighted loss, number of correct answers, and new statistics of a pass."""


def as_pixels(images: Array | np.ndarray, dtype: DTypeLike) -> Float[Array, "..."]:
    """Images in a float dtype, pixel scale [0, 1], where uint8 counts grey levels."""
    pixels = jnp.asarray(images, dtype)
    return pixels / 255 if images.dtype == jnp.uint8 else pixels


def mean_loss(logits: Float[Array, "n o"], labels: Classes) -> Float[Array, ""]:
    """Mean cross-entropy, nats."""
    return jnp.mean(cross_entropy(logits, labels))


def augmented(key: Array, images: Images, pad: int) -> Images:
    """Each image shifted by up to `pad` pixels, padded with zeros, and flipped at random."""
    n, height, width, colours = images.shape
    shift, flip = jax.random.split(key)
    corners = jax.random.randint(shift, (n, 2), 0, 2 * pad + 1)
    padded = jnp.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    zero = jnp.zeros((), corners.dtype)
    crop = lambda image, at: lax.dynamic_slice(  # noqa: E731
        image, (at[0], at[1], zero), (height, width, colours)
    )
    moved = jax.vmap(crop)(padded, corners)
    flipped = jax.random.bernoulli(flip, 0.5, (n, 1, 1, 1))
    return jnp.where(flipped, moved[:, :, ::-1], moved)


def gradient(
    network: Trainable,
    recipe: Recipe,
    beta: Float[Array, ""],
    state: State,
    x: Images,
    attacked: Images,
    y: Classes,
) -> tuple[PyTree, PyTree, Progress]:
    """The gradient of the objective (1−β) CE(x) + β CE(x̂), the new statistics and the progress.

    The attacked pass is not run where β is 0, nor the clean one where β is 1.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", equation 3.
    """
    right = lambda logits, y: jnp.sum(is_right(logits, y), dtype=logits.dtype)  # noqa: E731

    def run_if(weight: Array, statistics: PyTree, images: Images) -> Outcome:
        def loss(params: PyTree) -> tuple[Array, tuple[Array, PyTree]]:
            logits, new = network.train(params, statistics, images)
            return weight * mean_loss(logits, y), (right(logits, y), new)

        def run() -> Outcome:
            (value, (correct, new)), found = jax.value_and_grad(loss, has_aux=True)(state.params)
            return found, value, correct, new

        def skip() -> Outcome:
            none = jnp.zeros((), x.dtype)
            return jax.tree.map(jnp.zeros_like, state.params), none, none * jnp.nan, statistics

        # The backward pass is in the branch too: activations that leave one are copied to every
        # device of several.
        return lax.cond(weight > 0, run, skip)

    def joint(params: PyTree) -> tuple[Array, tuple[PyTree, Progress]]:
        logits, new = network.train(params, state.statistics, jnp.concatenate([x, attacked]))
        clean, robust = logits[: len(x)], logits[len(x) :]
        loss = (1 - beta) * mean_loss(clean, y) + beta * mean_loss(robust, y)
        return loss, (new, Progress(loss, right(clean, y), right(robust, y)))

    if recipe.bn_train == "joint":
        found, (new, progress) = jax.grad(joint, has_aux=True)(state.params)
        return found, new, progress
    of_clean, clean, clean_right, new = run_if(1 - beta, state.statistics, x)
    of_robust, robust, robust_right, new = run_if(beta, new, attacked)
    total = jax.tree.map(jnp.add, of_clean, of_robust)
    return total, new, Progress(clean + robust, clean_right, robust_right)


def step(
    network: Trainable,
    recipe: Recipe,
    optimizer: optax.GradientTransformation,
    state: State,
    images: Images,
    labels: Classes,
    key: Array,
    beta: Float[Array, ""],
) -> tuple[State, Progress]:
    """The state after a step on one batch, and the step's loss and correct answers.

    Args:
        network: functions of the weights; its own weights are not used.
        recipe: attack, augmentation and statistics; its β is not used.
        images: pixels in [0, 1].
        key: of augmentation and the attack's start.
        beta: weight of adversarial training, as data.
    """
    augmentation_key, attack_key = jax.random.split(key)
    if recipe.augment:
        images = augmented(augmentation_key, images, max(images.shape[1] // 8, 1))
    attack = Attack(recipe.rho, recipe.attack_steps, recipe.attack_step, random_start=True)
    # The attack is on the network as it will be used, with its running statistics.
    logits = partial(network.evaluate, state.params, state.statistics)
    attacked = lax.cond(
        beta > 0,
        lambda x: attack(Victim(logits, labels), x, attack_key),
        lambda x: x,
        images,
    )
    found, statistics, progress = gradient(network, recipe, beta, state, images, attacked, labels)
    with jax.numpy_dtype_promotion("standard"):  # optax counts steps by integers.
        updates, moments = optimizer.update(found, state.moments, state.params)
    return State(optax.apply_updates(state.params, updates), statistics, moments), progress
