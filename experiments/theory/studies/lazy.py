"""T5: which output scale is lazy, the printed one or the proof's."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jaxtyping import Array

from cells.residual import Residual
from experiments.plotting import panels
from experiments.study import OURS, Outcome, Study
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.sphere import CapAttack
from experiments.theory.studies.setting import (
    Rows,
    by_seed,
    grid,
    kernel,
    linearisation,
    lines_by_group,
    numbers,
)
from experiments.theory.studies.statistics import INVERSE_ROOT, Findings, slope
from experiments.theory.tasks import margin
from experiments.theory.training import steps
from ntkscore.model import Model

STEPS, DIMENSION, MU, RHO, BETA, SEEDS = 200, 10, 0.1, 0.15, 0.5, 3
FUNCTION_STEP = 0.5
"""γ ‖∂f/∂W‖²: move of the output at a step's point, per unit of the loss's derivative."""
WIDTHS = (64, 256, 1024)
ACTIVATIONS = ("relu", "tanh")
OF_KERNEL = 16
"""Points that the kernel's change is measured at; the linearisation's error at all."""
QUANTITIES = {
    "movement": "‖W − W₀‖",
    "kernel": "relative change of the kernel",
    "linearisation": "relative error of the linearisation",
}
EXPECTED = {
    "sqrt_width": {
        "movement": INVERSE_ROOT,
        "kernel": (-np.inf, max(INVERSE_ROOT)),
        "linearisation": (-np.inf, max(INVERSE_ROOT)),
    },
    "literal": dict.fromkeys(QUANTITIES, (-0.15, 0.15)),
}
"""Slopes in m that count as what the proof's scaling and the printed one should show."""
FULL = {"WIDTHS": (64, 256, 1024, 4096), "SEEDS": 10}


def moved(gamma: float) -> Callable[..., dict[str, Array]]:
    """A function of (model, x, y): what a run of Algorithm 1 changes."""

    def compute(model: Model, x: Array, y: Array) -> dict[str, Array]:
        beta = jnp.asarray(BETA, x.dtype)
        params, *_ = steps(model, CapAttack(RHO), model.params, x, y, beta, gamma)
        weight_change = jax.tree.map(jnp.subtract, params, model.params)
        before, after = (kernel(model, w, x[:OF_KERNEL]) for w in (model.params, params))
        change, along = linearisation(model, params, x)
        return {
            "movement": optax.tree.norm(weight_change),
            "kernel": jnp.linalg.norm(after - before) / jnp.linalg.norm(before),
            "linearisation": jnp.linalg.norm(change - along) / jnp.linalg.norm(change),
        }

    return compute


def changes() -> Rows:
    """A row for each scale, activation, width and seed."""
    tasks = [margin(STEPS, DIMENSION, MU, np.random.default_rng(seed)) for seed in range(SEEDS)]
    for case in grid(scale=EXPECTED, activation=ACTIVATIONS, m=WIDTHS):
        scale, activation, m = case.values()
        space = Residual(activation=activation, output_scale=scale, width=m)
        (diagonal,) = infinite_ntk(space, "1", tasks[0].x[:1])[0]
        times = m if scale == "sqrt_width" else 1
        runs = by_seed(space, "1", tasks, moved(FUNCTION_STEP / (diagonal * times)))
        for seed, found in enumerate(runs):
            yield case | {"seed": seed} | numbers(found)


def label(scale: str, activation: str) -> str:
    """The name of a group of networks in findings and in the legend."""
    return f"{'√m f' if scale == 'sqrt_width' else 'f as printed'}, {activation}"


def run(study: Study) -> Outcome:
    """Slopes in the width of what training changes, under both scales."""
    frame = pd.DataFrame(changes())
    findings = Findings()
    for (scale, activation), part in frame.groupby(["scale", "activation"], sort=False):
        for name, title in QUANTITIES.items():
            fitted = slope(part, "m", name)
            low, high = EXPECTED[str(scale)][name]
            findings.measure(
                f"{label(str(scale), str(activation))}: slope in m of {title}",
                "lazy" if scale == "sqrt_width" else OURS,
                fitted,
                low,
                high,
                "lazy" if scale == "sqrt_width" else "not lazy",
            )
    figure, axes = panels(len(QUANTITIES), 0.8)
    lines_by_group(axes, frame, ["scale", "activation"], "m", QUANTITIES, label, "width m")
    return Outcome(
        frame,
        figure,
        {"steps": STEPS, "d": DIMENSION, "rho": RHO, "beta": BETA, "seeds": SEEDS},
        (
            f"Algorithm 1 over {STEPS} points of the task `margin`, L = 3, one skip, steps equally "
            "long in function space. Theorem 1's proof needs √m f; f as printed is not lazy.",
        ),
        tuple(findings),
    )
