"""T4: clean and robust error over β, and what the bounds' leading terms say about them."""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, PyTree
from matplotlib.figure import Figure

from cells.residual import Residual
from experiments.frame import Claim, Interval, Study, Within
from experiments.plotting import annotate, lines, panels
from experiments.statistics import difference, mean
from experiments.theory.energies import leading_term, margin_energy
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.sphere import CapAttack
from experiments.theory.studies.setting import network, singles
from experiments.theory.tasks import on_sphere, tradeoff
from experiments.theory.training import attacked_stack, input_gradient, margins, steps
from ntkscore.kernels.joint import joint_kernel
from ntkscore.model import Model

ERRORS = {"clean": "joint_clean", "robust": "joint_robust"}
"""The two errors, and the kernel whose energy bounds each."""
ATTACKED = ("attacked at initialisation", "attacked after training")
"""The networks that the leading terms' points are attacked on; the theorem has the first."""
SIGNS = {
    "clean error is larger at β = 1 than at 0": ("clean", Within(low=0)),
    "robust error is smaller at β = 1 than at 0": ("robust", Within(high=0)),
    "robust error is above clean error at β = 0": ("gap", Within(low=0)),
}


@partial(jax.jit, static_argnames=("points", "attack_steps", "energy_points"))
def trained(
    start: tuple[Any, PyTree], x: Array, y: Array, beta: Array, rho: Array, gamma: Array, *,
    points: int, attack_steps: int, energy_points: int,
) -> tuple[Array, Array, list[Array]]:  # fmt: skip
    """Errors on the points after the first ones, with which it trains; and attacked stacks."""
    model, attack = Model(*start), CapAttack(rho, attack_steps)
    end, *_ = steps(model, attack, model.params, x[:points], y[:points], beta, gamma)
    z, labels = x[points:], y[points:]
    attacked = attack(input_gradient(model, end, labels), z)
    clean, robust = (jnp.mean(margins(model, end, each, labels) < 0) for each in (z, attacked))
    few = x[:energy_points], y[:energy_points]
    return clean, robust, [attacked_stack(attack, model, w, *few) for w in (model.params, end)]


def measure(at: SimpleNamespace) -> dict[str, float]:
    """Errors of one network, and leading terms √(L² s/N) of K_all and K̃_all."""
    activation, name = at.network.split()
    x, y = tradeoff(at.points + at.test, at.d, np.random.default_rng(at.seed))
    space = Residual(activation=activation, output_scale="sqrt_width", width=at.m)
    ((diagonal,),) = infinite_ntk(space, name, x[:1])
    numbers = singles(x, y, at.beta, at.rho, 4 * np.sqrt(0.1 / diagonal) / at.m)
    sizes = {name: vars(at)[name] for name in ("points", "attack_steps", "energy_points")}
    *errors, stacks = trained(network(space, name, x, at.seed), *numbers, **sizes)
    labels, layers = y[: at.energy_points], space.parse(name).layers
    row = {f"{error} error": float(e) for error, e in zip(ERRORS, errors, strict=True)}
    for attacked, stack in zip(ATTACKED, stacks, strict=True):
        gram = infinite_ntk(space, name, on_sphere(np.asarray(stack)))
        for error, kernel in ERRORS.items():
            joint = joint_kernel(gram, kernel, at.beta, len(labels))
            energy = margin_energy(joint, labels).value
            row[f"{error} term, {attacked}"] = leading_term(energy, layers, len(labels))
    return row


def change(part: pd.DataFrame, what: str, column: str) -> Interval:
    """A network's change of an error or term over β, or the gap between both at the least β."""
    if what != "gap":
        return difference(part, "beta", f"{what} {column}")
    first = part[part["beta"] == part["beta"].min()]
    return mean(first[f"robust {column}"] - first[f"clean {column}"])


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Signs of the errors, and of the leading terms by what their points are attacked on."""
    networks = [part for _, part in frame.groupby("network", sort=False)]
    for column, source in {"error": "", **{f"term, {where}": where for where in ATTACKED}}.items():
        for text, (what, rule) in SIGNS.items():
            found = [change(part, what, column) for part in networks]
            words = f"leading terms, {source}: {text.replace('error', 'term')}" if source else text
            yield Claim(words, "the errors' sign" if source else "a trade-off", found, rule)


def figure(frame: pd.DataFrame) -> Figure:
    """Errors, and the leading terms of either attack, over β."""
    columns = ("error", *(f"term, {where}" for where in ATTACKED))
    drawing, axes = panels(len(columns), 0.8)
    for axis, column in zip(axes, columns, strict=True):
        for i, error in enumerate(ERRORS):
            style = {"fmt": ("o-", "s--")[i], "mfc": (None, "white")[i]}
            lines(axis, frame, "beta", f"{error} {column}", "network", f"{error}, {{}}", **style)
        axis.set_ylabel("share of test points" if column == "error" else "√(L² s/N)")
        axis.set_title(column)
    annotate(drawing, axes[0], "weight β of adversarial training", 3)
    return drawing


STUDY = Study(
    "Clean and robust error over β, and what the bounds say of them (T4)",
    measure,
    cases={"network": ("relu 1", "tanh 1", "relu 0"), "beta": (0.0, 0.5, 1.0), "seed": (0, 1, 2)},
    fixed={"points": 2000, "test": 500, "d": 20, "rho": 0.3, "attack_steps": 10, "m": 256}
    | {"energy_points": 300},
    full={"points": 10_000, "m": 1024, "seed": tuple(range(10))}
    | {"beta": (0.0, 0.25, 0.5, 0.75, 1.0)},
    claims=claims,
    figure=figure,
    note="Networks with (1) and without (0) a skip; the task has a fragile coordinate that is "
    "right where a robust one errs at .15. Theorem 1 attacks at initialisation, along one gradient "
    "that moves the classes apart: it tells the kernel the labels. PGD's errors are from below.",
)
