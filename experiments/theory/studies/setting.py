"""What the theory's experiments share: wide networks by seed, slopes, and verdicts on slopes."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from attacks import twice
from cells.residual.networks import ResidualSpace
from cells.space import Task
from experiments.plotting import COLOURS
from experiments.theory.sphere import CapAttack
from experiments.theory.tasks import Points
from experiments.theory.training import loss_slope
from ntkscore.kernels.gram import evaluate
from ntkscore.kernels.joint import every_kernel
from ntkscore.model import Model


def of_width(space: ResidualSpace, width: int, points: np.ndarray) -> ResidualSpace:
    """The space of networks of a width with one output, on points of this shape."""
    choices: dict[str, Any] = space.choices() | {"width": width}
    return type(space)(**choices).on(Task(points.shape[1:], 1))


def by_seed(
    space: ResidualSpace, name: str, tasks: list[Points], compute: Callable[..., Any]
) -> Iterator[Any]:
    """What a function of (model, x, y) gives for each task, at the weights of its place as seed.

    Compiled once.

    Args:
        space: of networks of one output.
        name: of the architecture.
        tasks: points of equal numbers.
        compute: traced, on arrays in float32.
    """
    skips = space.parse(name)
    shape, code = space.shape(skips), jnp.asarray(space.encode(skips))

    @jax.jit
    def program(weights: Any, x: Any, y: Any) -> Any:
        return compute(space.model(shape, weights, code, x), x, y)

    for seed, task in enumerate(tasks):
        arrays = (jnp.asarray(each, jnp.float32) for each in task)
        yield jax.tree.map(np.asarray, program(space.draw(shape, seed, jnp.float32), *arrays))


def attacked_stack(attack: CapAttack) -> Callable[..., tuple[Any, Any]]:
    """A function of (model, x, y): X, X_ρ and X_2ρ of the network, and its kernel there."""

    def compute(model: Model, x: Any, y: Any) -> tuple[Any, Any]:
        stack = jnp.concatenate([x, *twice(attack, loss_slope(model, model.params, y), x)])
        labels = jnp.zeros(len(stack), jnp.int32)
        return stack, evaluate(model, stack, labels).gram[0]

    return compute


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


def lines(axis: Axes, frame: pd.DataFrame, x: str, y: str, label: str, colour: int) -> None:
    """Means over the seeds, on logarithmic axes."""
    means = frame.groupby(x)[y].mean()
    axis.loglog(means.index, means, "o-", color=COLOURS[colour % len(COLOURS)], label=label, ms=3)
    axis.set_xticks(means.index, [f"{value:g}" for value in means.index])
    axis.xaxis.set_minor_locator(NullLocator())
