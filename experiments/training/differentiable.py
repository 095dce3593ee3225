"""Searches over a network of all operations at once: DARTS and AdvRush (Table 7).

Every edge adds up its five operations, weighed by a softmax of numbers of its own. One half of the
images trains the network's weights, the other half the edges' numbers. The cell has the largest
operation of each edge.

Source: Liu et al. (2019), "DARTS", first order, with its settings; Mok et al. (2021), "AdvRush", as
its authors' code has it. Normalisations here have trained scales and shifts, and use the batch's
statistics throughout, in AdvRush's term too.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jaxtyping import Array, Float, PyTree
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cells import layers
from cells.cell_space import STATISTICS
from cells.nasbench201 import forward
from cells.nasbench201.cell import AVG_POOL, EDGES, KERNEL_SIZES, OPERATIONS, SKIP, Cell
from cells.nasbench201.space import NASBench201
from cells.nasbench201.training import Training
from cells.rules import Weights, trained_logits
from experiments.paper.search import TABLE_7
from experiments.plotting import metric_label, panels
from experiments.study import METRIC, METRICS, Finding, Outcome, Study, count_of, verdict
from experiments.training.setting import SmallTraining
from ntkscore.grams import Images
from ntkscore.training.steps import as_pixels, augmented, cross_entropy, mean_loss

IMAGES, CHANNELS, CELLS, EPOCHS, SEEDS = 4000, 4, 1, 15, 3
"""Images of both halves; channels and cells per stage; epochs, AdvRush has a fifth more; seeds."""
FULL = {"IMAGES": 50_000, "CHANNELS": 16, "CELLS": 5, "EPOCHS": 50, "SEEDS": 3}
BATCH, PAD = 64, 4
RATES, MOMENTUM, DECAY, CLIP = (0.025, 0.001), 0.9, 3e-4, 5.0
EDGE_RATE, EDGE_DECAY = 3e-4, 1e-3
STEP, GAMMA = 1.5, 0.04
"""AdvRush's step in normalised images, and the weight of its term."""
APART = 0.0015
"""Largest difference to a printed accuracy, whose last digit is the third."""
SHOWN = 3
"""Cells that a row names."""
PAPER_METRICS = METRICS[:-1]
DIFFERENTIABLE = {method: TABLE_7[method] for method in ("DARTS", "AdvRush")}
Logits = Callable[[Images], Float[Array, "m o"]]


@dataclass(frozen=True, kw_only=True)
class Mixture(Training):
    """Rules for a network of all operations.

    Attributes:
        shares: weights of the operations of each edge.
    """

    shares: Float[Array, "6 5"]

    @classmethod
    def at(cls, network: Any, shares: Float[Array, "6 5"]) -> "Mixture":
        """The rules of a flax network at these weights."""
        unused = np.zeros(len(EDGES), np.int32)
        return cls(**vars(forward.CellRules.of(network, unused)), shares=shares)

    def _cell(self, x: Images, weights: Weights, stored: Weights) -> tuple[Images, Weights]:
        nodes = [x, *(jnp.zeros_like(x) for _ in range(3))]
        for e, (source, target) in enumerate(EDGES):
            share, z, name = self.shares[e], nodes[source], f"edge_{e}"
            y = share[SKIP] * z + share[AVG_POOL] * layers.average_pool_3x3(z)
            for operation in KERNEL_SIZES:
                of_conv = weights[name][OPERATIONS[operation]]
                convolved, *_ = self.conv_norm(jax.nn.relu(z), of_conv, stored[name])
                y += share[operation] * convolved
            nodes[target] += y
        return nodes[-1], stored


class State(NamedTuple):
    """Weights of the network, numbers of the edges, and their optimisers' states."""

    params: PyTree
    edges: Float[Array, "6 5"]
    of_params: Any
    of_edges: Any


def roughness(logits: Logits, x: Images, y: Array, std: Array) -> Float[Array, ""]:
    """AdvRush's term: how far the input gradient moves along its sign, a mean over images."""

    def gradient(u: Images) -> Images:
        return jax.grad(lambda u: jnp.sum(cross_entropy(logits(x + std * u), y)))(u)

    lengths = lambda u: jnp.sqrt(jnp.sum(u**2, (1, 2, 3), keepdims=True) + 1e-12)  # noqa: E731
    here = gradient(jnp.zeros_like(x))
    z = jnp.sign(jax.lax.stop_gradient(here))
    return jnp.mean(lengths(gradient(STEP * z / lengths(z)) - here))


class Search:
    """A search by one method and seed.

    Args:
        space: of the cells; its width and depth are those of the network of all operations.
        halves: images and labels that train the weights, and those that train the edges.
        seed: of weights, edges, and order of the images.
        epochs: of the whole search.
        smooth: the epoch from which AdvRush's term counts; None for DARTS.
    """

    def __init__(
        self,
        space: NASBench201,
        halves: tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
        seed: int,
        epochs: int,
        smooth: int | None,
    ) -> None:
        self.space, self.halves, self.seed = space, halves, seed
        self.epochs, self.smooth = epochs, smooth
        self.batches = len(halves[0][1]) // BATCH
        rate = optax.cosine_decay_schedule(RATES[0], epochs * self.batches, RATES[1] / RATES[0])
        self.of_params = optax.chain(
            optax.clip_by_global_norm(CLIP),
            optax.add_decayed_weights(DECAY),
            optax.sgd(rate, MOMENTUM),
        )
        self.of_edges = optax.chain(
            optax.add_decayed_weights(EDGE_DECAY), optax.adam(EDGE_RATE, b1=0.5, b2=0.999)
        )
        variables = space.initial(jax.random.key(seed))
        self.statistics = variables[STATISTICS]
        edges = 1e-3 * jax.random.normal(jax.random.key(seed + 1), (len(EDGES), len(OPERATIONS)))
        params = variables["params"]
        self.state = State(params, edges, self.of_params.init(params), self.of_edges.init(edges))
        self.advance = jax.jit(self._advance, static_argnames="smooth")

    def logits(self, params: PyTree, edges: Array, images: Images) -> Float[Array, "m o"]:
        """Logits of the network of all operations."""
        rules = Mixture.at(self.space.flax_network, jax.nn.softmax(edges, 1))
        given = rules, params, self.statistics, images
        return trained_logits(forward.run, Mixture, *given, train=True)[0]

    def _advance(self, state: State, weigh: Any, choose: Any, key: Array, smooth: bool) -> State:
        """One step of the weights on some images, then one of the edges on others."""
        (x, y), (new, classes) = weigh, choose
        first, second = jax.random.split(key)
        x, new = augmented(first, x, PAD), augmented(second, new, PAD)
        slopes = jax.grad(lambda p: mean_loss(self.logits(p, state.edges, x), y))(state.params)
        change, of_params = self.of_params.update(slopes, state.of_params, state.params)
        params = optax.apply_updates(state.params, change)

        def loss(edges: Array) -> Array:
            logits = partial(self.logits, params, edges)
            total = mean_loss(logits(new), classes)
            if smooth:
                std = jnp.asarray(self.space.task.std, new.dtype)
                total += GAMMA * roughness(logits, new, classes, std)
            return total

        change, of_edges = self.of_edges.update(
            jax.grad(loss)(state.edges), state.of_edges, state.edges
        )
        return State(params, optax.apply_updates(state.edges, change), of_params, of_edges)

    def run(self) -> Iterator[Float[np.ndarray, "6 5"]]:
        """Search; the operations' weights after each epoch."""
        rng, key = np.random.default_rng(self.seed), jax.random.key(self.seed)
        for epoch in range(self.epochs):
            orders = [rng.permutation(len(labels)) for _, labels in self.halves]
            for k in range(self.batches):
                rows = [order[k * BATCH : (k + 1) * BATCH] for order in orders]
                batches = [
                    (as_pixels(images[some], jnp.float32), jnp.asarray(labels[some], jnp.int32))
                    for (images, labels), some in zip(self.halves, rows, strict=True)
                ]
                smooth = self.smooth is not None and epoch >= self.smooth
                step = jax.random.fold_in(key, epoch * self.batches + k)
                self.state = self.advance(self.state, *batches, step, smooth=smooth)
            yield np.asarray(jax.nn.softmax(self.state.edges, 1))


def searches(study: Study) -> pd.DataFrame:
    """Weights of the operations, a row per method, seed, epoch, edge and operation."""
    sizes = {"train": IMAGES // 2, "test": IMAGES // 2}
    small = SmallTraining(study, sizes | {"channels": CHANNELS, "cells_per_stage": CELLS})
    halves = small.train, small.test
    lengths: Mapping[str, tuple[int, int | None]] = {
        "DARTS": (EPOCHS, None),
        "AdvRush": (EPOCHS + EPOCHS // 5, EPOCHS),
    }
    found = []
    for method, (epochs, smooth) in lengths.items():
        for seed in range(SEEDS):
            search = Search(small.space, halves, study.seed + seed, epochs, smooth)
            for epoch, shares in enumerate(search.run(), 1):
                table = pd.DataFrame(shares, columns=[*OPERATIONS]).rename_axis("edge")
                long = table.reset_index().melt("edge", var_name="operation", value_name="weight")
                found.append(long.assign(method=method, seed=seed, epoch=epoch))
    return pd.concat(found, ignore_index=True)


def largest_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The largest operation of each edge after the last epoch, by method, seed and edge."""
    last = frame[frame["epoch"] == frame.groupby("method")["epoch"].transform("max")]
    keys = ["method", "seed", "edge"]
    return last.loc[last.groupby(keys, sort=False)["weight"].idxmax()].set_index(keys)


def chosen(frame: pd.DataFrame) -> pd.Series:
    """The cell's digits by method and seed, after the last epoch."""
    digits = largest_of(frame)["operation"].map(lambda name: str(OPERATIONS.index(name)))
    return digits.groupby(["method", "seed"], sort=False).agg("".join)


def distances(accuracies: Mapping[str, np.ndarray], printed: tuple[float, ...]) -> np.ndarray:
    """The largest difference of each cell's accuracies to printed ones."""
    pairs = zip(PAPER_METRICS, printed, strict=True)
    return np.max([np.abs(accuracies[metric] - value) for metric, value in pairs], 0)


def findings(accuracies: Mapping[str, np.ndarray], cells: pd.Series) -> Iterator[Finding]:
    """Which cells the paper's rows are, by the table; and what the searches end at here."""
    for method, printed in DIFFERENTIABLE.items():
        apart = distances(accuracies, printed)
        near, beyond = np.flatnonzero(apart < APART), apart[apart >= APART].min()
        # Cells that compute one function share their accuracies.
        _, first = np.unique([accuracies[metric][near] for metric in PAPER_METRICS], True, axis=1)
        named = ", ".join(Cell(int(near[place])).digits for place in sorted(first)[:SHOWN])
        more = ", …" if len(first) > SHOWN else ""
        yield Finding(
            f"{method}: a cell of the table has the accuracies of Table 7",
            ", ".join(f"{value:.3f}" for value in printed),
            count_of(len(first), "function") + (f": {named}{more}" if named else ""),
            verdict(len(first) > 0),
            f"within {APART:g} in all five; the next is {beyond:.4f} away",
        )
    for method, own in cells.groupby("method", sort=False):
        values = [accuracies[METRIC][Cell.from_digits(digits).index] for digits in own]
        listed = ", ".join(f"{d} {v:.3f}" for d, v in zip(own, values, strict=True))
        yield Finding(
            f"{method}: PGD 8/255 accuracy of the cell that it finds",
            f"{DIFFERENTIABLE[str(method)][-1]:.3f}",
            listed,
            "not decidable",
            f"{CHANNELS} channels, {count_of(CELLS, 'cell')} per stage, {IMAGES:,} images, "
            f"{EPOCHS} epochs; median of the table {np.median(accuracies[METRIC]):.3f}",
        )


def draw(frame: pd.DataFrame) -> Figure:
    """Each operation's weight over the epochs, a mean over edges and seeds."""
    figure, axes = panels(len(DIFFERENTIABLE), 1.0, together=True)
    for axis, (method, part) in zip(axes, frame.groupby("method", sort=False), strict=True):
        means = part.groupby(["epoch", "operation"])["weight"].mean().unstack()[[*OPERATIONS]]
        for name in OPERATIONS:
            axis.plot(means.index, means[name], label=name)
        axis.set(title=method, xlabel="epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("weight, mean over edges")
    axes[0].legend(fontsize="x-small")
    return figure


def run(study: Study) -> Outcome:
    """Both searches from several seeds, and Table 7's rows beside the benchmark's table."""
    accuracies = {m: study.accuracy(range(15_625), m) for m in METRICS}
    frame = searches(study)
    cells = chosen(frame)
    largest = largest_of(frame)["weight"].mean()
    places = [Cell.from_digits(digits).index for digits in cells]
    summary = cells.rename("cell").reset_index()
    for metric in PAPER_METRICS:
        summary[metric_label(metric)] = accuracies[metric][places]
    configuration = {"images": IMAGES, "channels": CHANNELS, "cells_per_stage": CELLS}
    configuration |= {"epochs": EPOCHS, "seeds": SEEDS, "batch": BATCH}
    return Outcome(
        frame,
        draw(frame),
        configuration,
        (
            f"Each half has {IMAGES // 2:,} images. A search has {EPOCHS} epochs, AdvRush's "
            f"{EPOCHS // 5} more, in which its term counts. `--full` has the published sizes, for "
            "an accelerator.",
            f"At the end the largest of an edge's five weights is {largest:.3f} on average, where "
            "they began at 0.2: so short a search has hardly decided.",
        ),
        tuple(findings(accuracies, cells)),
        summary.round(3),
    )
