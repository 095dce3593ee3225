"""Many cells trained side by side by one program, and the scores of their kernels at any weights.

A cell's digits are data beside its running statistics, so that nothing is compiled for each cell.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int, UInt8

from cells.nasbench201.cell import Cell
from cells.nasbench201.forward import CellRules, run
from cells.nasbench201.network import STATISTICS, Network
from cells.nasbench201.space import NASBench201
from cells.nasbench201.training import Training
from cells.rules import Weights
from ntkscore.config import Config
from ntkscore.grams import Images
from ntkscore.model import Trainable
from ntkscore.run.devices import compiler_options
from ntkscore.run.scorer import Scorer
from ntkscore.training.evaluation import ANSWERS, BATCH
from ntkscore.training.fit import fit
from ntkscore.training.recipe import Recipe
from ntkscore.training.steps import State, as_pixels

SCORES = tuple(
    f"{k}.{s}" for k in ("clean", "robust") for s in ("frobenius", "trace", "lambda_min")
)
"""Kernels and scores that are measured."""
RADIUS = 8 / 255
"""Of the kernels' attack, of training and of PGD, pixel scale."""


class AnyCell(Training):
    """Rules in training for a cell whose digits are data; they equal those of `Training`."""

    def stage(
        self, x: Images, weights: Weights, stored: Weights
    ) -> tuple[Float[Array, "k m h w c"], Weights, None]:
        nodes, new, _ = CellRules.stage(self, x, weights, stored)
        return nodes, new, None


def logits(
    network: Network, measure: bool, params: Weights, statistics: Weights, images: Images
) -> tuple[Float[Array, "m o"], Weights]:
    """Logits, and the statistics after the batch: the cell's digits, and running statistics."""
    rules = AnyCell.of(network, statistics["digits"], measure)
    y, _, new = run(rules, params, statistics["running"], images)
    return y, {**statistics, "running": new}


def trainable(space: NASBench201, cell: Cell, seed: int) -> Trainable:
    """The untrained network of `space.trainable`, whose functions are the same for every cell."""
    one = space.trainable(cell, seed)
    statistics = {"digits": jnp.asarray(space.encode(cell)), "running": one.statistics}
    passes = partial(logits, space.flax_network)
    return Trainable(
        partial(passes, True), lambda *given: passes(False, *given)[0], one.params, statistics
    )


def halved(images: UInt8[np.ndarray, "n h w c"]) -> UInt8[np.ndarray, "n h2 w2 c"]:
    """Images of half the height and width: means of four pixels, in whole grey levels.

    Example:
        >>> halved(np.array([[[[1], [3]], [[5], [7]]]], np.uint8)).ravel()
        array([4], dtype=uint8)
    """
    n, height, width, colours = images.shape
    blocks = images.reshape(n, height // 2, 2, width // 2, 2, colours)
    return blocks.mean((2, 4)).round().astype(np.uint8)


def scores_at(
    space: NASBench201,
    cells: Sequence[Cell],
    states: Sequence[State],
    images: np.ndarray,
    labels: Int[np.ndarray, " n"],
) -> pd.DataFrame:
    """Scores of each cell's kernels at its weights, normalised as the space says: a column each."""
    scorer = Scorer(space, Config(samples=len(labels), rhos=(RADIUS,)))
    batch = scorer.batch(images.astype(np.float32) / 255, labels, 0)
    rows = []
    for cell, state in zip(cells, states, strict=True):
        # As NumPy's, so that one program serves weights from everywhere.
        weights = jax.device_get((state.params, state.statistics["running"]))
        variables = dict(zip(("params", STATISTICS), weights, strict=True))
        (found,) = scorer([cell], replace(batch, variables=variables))
        values = {f"{row['kernel']}.{row['score']}": row["value"] for row in found}
        rows.append({name: values[name] for name in SCORES})
    return pd.DataFrame(rows)


def accuracies(
    network: Trainable,
    states: Sequence[State],
    images: np.ndarray,
    labels: Int[np.ndarray, " n"],
) -> pd.DataFrame:
    """Clean accuracy and accuracy under PGD of `ntkscore.training.evaluation`, a row per state."""

    @partial(jax.jit, compiler_options=compiler_options(), static_argnums=0)
    def right(metric: str, state: State, x: Images, y: Array, key: Array) -> Array:
        at = lambda z: network.evaluate(state.params, state.statistics, z)  # noqa: E731
        answer = ANSWERS[metric](at, x, y, key, jnp.asarray(RADIUS, x.dtype))
        return jnp.mean(jnp.argmax(answer, 1) == y)

    def accuracy(metric: str, state: State) -> float:
        return float(np.mean([
            right(
                metric,
                state,
                as_pixels(images[k : k + BATCH], jnp.float32),
                jnp.asarray(labels[k : k + BATCH], jnp.int32),
                jax.random.fold_in(jax.random.key(0), k),
            )
            for k in range(0, len(labels), BATCH)
        ]))  # fmt: skip

    rows = [
        {m: accuracy(m, state._replace(moments=())) for m in ("clean", "pgd")} for state in states
    ]
    return pd.DataFrame(rows)


def trained(
    space: NASBench201,
    cells: Sequence[Cell],
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    recipe: Recipe,
    kernel_images: int,
    seed: int,
    work: Path,
) -> pd.DataFrame:
    """Train cells; their scores before and after, and their accuracies after.

    Args:
        space: the small networks, on the images' task.
        cells: to train, all from the same random numbers.
        train, test: pairs of images, uint8, and labels.
        recipe: settings of the training.
        kernel_images: number of training images that kernels are of.
        seed: of weights, order and attacks.
        work: folder for the state after each epoch, from which the same call goes on.

    Returns:
        A row per cell: `cell`, `before SCORE` and `after SCORE` for `SCORES`, `clean` and `pgd`.
    """
    networks = [trainable(space, cell, seed) for cell in cells]
    few = train[0][:kernel_images], train[1][:kernel_images]
    start = [State(each.params, each.statistics, ()) for each in networks]
    before = scores_at(space, cells, start, *few)
    described: dict[str, Any] = {
        "cells": [cell.digits for cell in cells],
        "channels": space.channels,
        "images": len(train[1]),
        "side": train[0].shape[1],
        "recipe": repr(recipe),
    }
    fitted = fit(networks, *train, recipe, [seed] * len(cells), work, described)
    one = lambda place: jax.tree.map(lambda leaf: leaf[place], fitted.state)  # noqa: E731
    states = [one(place) for place in range(len(cells))]
    after = scores_at(space, cells, states, *few)
    reached = accuracies(networks[0], states, *test)
    named = pd.DataFrame({"cell": [cell.index for cell in cells]})
    return pd.concat(
        [named, before.add_prefix("before "), after.add_prefix("after "), reached], axis=1
    )
