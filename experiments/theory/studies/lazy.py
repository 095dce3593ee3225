"""T5: which output scale is lazy, the printed one or the proof's."""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jaxtyping import Array, PyTree
from matplotlib.figure import Figure

from cells.residual import Residual
from experiments.frame import INVERSE_ROOT, Claim, Corrected, Study, Within
from experiments.plotting import annotate, lines, panels
from experiments.statistics import slope
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.sphere import CapAttack
from experiments.theory.studies.setting import network, singles
from experiments.theory.tasks import margin
from experiments.theory.training import linearisation, steps
from ntkscore.kernels.implementations import evaluate
from ntkscore.model import Model

SCALES = {"literal": "f as printed", "sqrt_width": "√m f"}
FALLS = Within(high=INVERSE_ROOT.high)
QUANTITIES = {
    "movement": ("‖W − W₀‖ falls as m^−1/2", "‖W − W₀‖", INVERSE_ROOT),
    "kernel": ("the kernel's change vanishes", "relative change of the kernel", FALLS),
    "linearisation": ("the linearisation becomes exact", "relative error of outputs", FALLS),
}
"""What a column says of lazy networks, its label in the figure, and the slopes in m for that."""


@partial(jax.jit, static_argnames=("attack_steps", "kernel_points"))
def moved(
    start: tuple[Any, PyTree], x: Array, y: Array, beta: Array, rho: Array, gamma: Array, *,
    attack_steps: int, kernel_points: int,
) -> dict[str, Array]:  # fmt: skip
    """What a run of Algorithm 1 changes."""
    model = Model(*start)
    end, *_ = steps(model, CapAttack(rho, attack_steps), model.params, x, y, beta, gamma)
    points, labels = x[:kernel_points], jnp.zeros(kernel_points, jnp.int32)
    models = (model, model._replace(params=end))
    before, after = (evaluate(each, points, labels).gram[0] for each in models)
    change, along = linearisation(model, end, x)
    return {
        "movement": optax.tree.norm(jax.tree.map(jnp.subtract, end, model.params)),
        "kernel": jnp.linalg.norm(after - before) / jnp.linalg.norm(before),
        "linearisation": jnp.linalg.norm(change - along) / jnp.linalg.norm(change),
    }


def measure(at: SimpleNamespace) -> dict[str, float]:
    """One network, trained by steps that are equally long in function space."""
    x, y = margin(at.points, at.d, at.mu, np.random.default_rng(at.seed))
    space = Residual(activation=at.activation, output_scale=at.scale, width=at.m)
    ((diagonal,),) = infinite_ntk(space, "1", x[:1])
    gamma = at.function_step / (diagonal * (at.m if at.scale == "sqrt_width" else 1))
    start, numbers = network(space, "1", x, at.seed), singles(x, y, at.beta, at.rho, gamma)
    sizes = {"attack_steps": at.attack_steps, "kernel_points": at.kernel_points}
    return {name: float(value) for name, value in moved(start, *numbers, **sizes).items()}


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Of each scale the slopes in the width, of all activations."""
    for scale, part in frame.groupby("scale", sort=False):
        for name, (text, _, rule) in QUANTITIES.items():
            found = [slope(one, "m", name) for _, one in part.groupby("activation", sort=False)]
            rule = Corrected(rule) if scale == "sqrt_width" else rule
            yield Claim(f"{SCALES[str(scale)]}: {text}, slopes in m", "lazy", found, rule)


def figure(frame: pd.DataFrame) -> Figure:
    """What changes, by width."""
    drawing, axes = panels(len(QUANTITIES), 0.8)
    frame = frame.assign(network=frame["scale"].map(SCALES) + ", " + frame["activation"])
    for axis, (name, (_, label, _)) in zip(axes, QUANTITIES.items(), strict=True):
        lines(axis, frame, "m", name, "network", log="xy")
        axis.set_ylabel(label)
    annotate(drawing, axes[0], "width m, features", 4)
    return drawing


STUDY = Study(
    "Which output scale is lazy (T5)",
    measure,
    cases={"scale": tuple(SCALES), "activation": ("relu", "tanh")}
    | {"m": (64, 256, 1024), "seed": (0, 1, 2)},
    fixed={"points": 200, "d": 10, "mu": 0.1, "rho": 0.15, "attack_steps": 10}
    | {"beta": 0.5, "function_step": 0.5, "kernel_points": 16},
    full={"m": (64, 256, 1024, 4096), "seed": tuple(range(10))},
    claims=claims,
    figure=figure,
    note="Theorem 1's proof needs √m f; f as printed moves its weights as far at any width. "
    "Steps move the output of their point by `function_step` times the loss's derivative.",
)
