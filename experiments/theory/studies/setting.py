"""Shared parts of the theory's studies: grids, networks by seed, kernels and figures.

A study's `FULL` has what `--full` puts in place of its constants, for an accelerator.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsFloat

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.typing import DTypeLike
from jaxtyping import Array, PyTree
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from attacks import Attack, twice
from cells.residual.networks import ResidualSpace
from cells.tasks import Task
from experiments.plotting import COLOURS
from experiments.theory.sphere import CapAttack
from experiments.theory.tasks import Points, margin
from experiments.theory.training import input_gradient
from ntkscore.kernels.gram import evaluate
from ntkscore.kernels.joint import every_kernel
from ntkscore.model import Model

Rows = Iterator[dict[str, Any]]
"""Rows of a study's table, each by column."""


def grid(**values: Iterable[object]) -> Rows:
    """A dictionary for every combination of values; the last name's change first."""
    combinations = itertools.product(*values.values())
    return (dict(zip(values, each, strict=True)) for each in combinations)


def numbers(arrays: Mapping[str, SupportsFloat]) -> dict[str, float]:
    """A compiled function's results as Python numbers, by name."""
    return {name: float(value) for name, value in arrays.items()}


def on_points(space: ResidualSpace, points: np.ndarray) -> ResidualSpace:
    """The space of networks with one output, on points of this shape."""
    return space.on(Task(points.shape[1:], 1))


def start(
    space: ResidualSpace, name: str, points: np.ndarray, seed: int, dtype: DTypeLike = jnp.float32
) -> tuple[ResidualSpace, tuple[str, ...], PyTree, Array]:
    """The space on these points, a network's activations, W^{[1]}, and its skips."""
    space = on_points(space, points)
    skips = space.parse(name)
    names = space.activations_of(skips)
    return space, names, space.draw(names, seed, dtype), jnp.asarray(space.encode(skips))


def pixels(count: int, places: int, channels: int, mu: float, seed: int) -> Points:
    """Points of the task `margin`, each of some pixels and channels."""
    x, y = margin(count, places * channels, mu, np.random.default_rng(seed))
    return Points(x.reshape(count, places, channels), y)


def by_seed(
    space: ResidualSpace, name: str, tasks: Sequence[Points], compute: Callable[..., PyTree]
) -> Iterator[Any]:
    """The results of a function of (model, x, y), compiled once, for each task, in float32.

    A task's place is the seed of its weights. Tasks have points of one shape, equally many.
    """
    space = on_points(space, tasks[0].x)
    skips = space.parse(name)
    shape, code = space.shape(skips), jnp.asarray(space.encode(skips))

    @jax.jit
    def program(weights: PyTree, x: Array, y: Array) -> PyTree:
        return compute(space.model(shape, weights, code, x), x, y)

    for seed, task in enumerate(tasks):
        arrays = (jnp.asarray(each, jnp.float32) for each in task)
        yield jax.tree.map(np.asarray, program(space.draw(shape, seed, jnp.float32), *arrays))


def ball_attack(radius: Array, steps: int) -> Attack:
    """PGD in the Euclidean ball, whose steps together reach two and a half times the radius."""
    return Attack(radius, steps, 2.5 * radius / steps, norm="l2", box=None)


def stacked(attack: CapAttack, model: Model, params: PyTree, x: Array, y: Array) -> Array:
    """X, X_ρ and X_2ρ, one below the other, attacked at these weights."""
    return jnp.concatenate([x, *twice(attack, input_gradient(model, params, y), x)])


def kernel(model: Model, params: PyTree, points: Array) -> Array:
    """The NTK at some weights."""
    labels = jnp.zeros(len(points), jnp.int32)
    return evaluate(model._replace(params=params), points, labels).gram[0]


def linearisation(model: Model, end: PyTree, x: Array) -> tuple[Array, Array]:
    """The change of the outputs from the model's weights to others, and its first-order part."""
    change = jax.tree.map(jnp.subtract, end, model.params)
    before, along = jax.jvp(lambda w: model.apply(w, x), (model.params,), (change,))
    return model.apply(end, x) - before, along


LABELS = {
    "clean": "K",
    "cross": "K̄_ρ",
    "robust": "K̂_ρ",
    "cross_twice": "K̄_2ρ",
    "twice": "K̂_2ρ",
    "joint_clean": "K_all",
    "joint_robust": "K̃_all",
}
"""Kernels as the paper writes them."""


def kernels_of(gram: np.ndarray, n: int, beta: float) -> dict[str, np.ndarray]:
    """The five kernels in a stack's Gram matrix, and the joint ones of a β."""
    return {LABELS[name]: matrix for name, _, matrix in every_kernel(gram, n, [beta])}


def curve(axis: Axes, means: pd.Series, label: str, colour: int, plot: str = "loglog") -> None:
    """A line through points, by a method of the axes."""
    style = {"color": COLOURS[colour % len(COLOURS)], "label": label, "ms": 3}
    getattr(axis, plot)(means.index, means, "o-", **style)


def lines(axis: Axes, frame: pd.DataFrame, x: str, y: str, label: str, colour: int) -> None:
    """Means over the seeds, on logarithmic axes."""
    means = frame.groupby(x)[y].mean()
    curve(axis, means, label, colour)
    axis.set_xticks(means.index, [f"{value:g}" for value in means.index])
    axis.xaxis.set_minor_locator(NullLocator())


def lines_by_group(
    axes: Sequence[Axes],
    frame: pd.DataFrame,
    by: Sequence[str],
    x: str,
    quantities: Mapping[str, str],
    label: Callable[..., str],
    xlabel: str,
) -> None:
    """Fill a panel for each quantity, by column and title, with the means over x of every group.

    The label is the legend's text for a group's values. Further axes stay empty.
    """
    for colour, (values, part) in enumerate(frame.groupby(list(by), sort=False)):
        for axis, (name, title) in zip(axes, quantities.items(), strict=False):
            lines(axis, part, x, name, label(*values), colour)
            axis.set(title=title, xlabel=xlabel)
    axes[0].legend(fontsize="x-small")
