"""T1: kernels of finite width approach those of infinite width, at attacked points too."""

from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Array

from cells.residual import Residual, ResidualConvolutional
from cells.residual.networks import ResidualSpace
from experiments.plotting import panels
from experiments.study import Outcome, Study
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.sphere import CapAttack
from experiments.theory.studies.setting import (
    Rows,
    by_seed,
    kernel,
    kernels_of,
    lines,
    pixels,
    stacked,
)
from experiments.theory.studies.statistics import INVERSE_ROOT, Findings, slope
from experiments.theory.tasks import margin, on_sphere
from ntkscore.model import Model

N, DIMENSION, MU, RHO, BETA, SEEDS = 16, 10, 0.1, 0.15, 0.5, 20
PIXELS, CHANNELS = 8, 3
WIDTHS = (64, 128, 256, 512, 1024)
SETTINGS: dict[str, tuple[ResidualSpace, str, tuple[int, ...]]] = {
    "relu, all skips": (Residual(), "1", WIDTHS),
    "relu, no skip": (Residual(), "0", WIDTHS),
    "tanh, all skips": (Residual(activation="tanh"), "1", WIDTHS),
    "swish, relu, tanh": (Residual(), "10:swish,relu,tanh", WIDTHS),
    "convolutional, κ = 3": (ResidualConvolutional(filter_size=3), "1", WIDTHS[:4]),
}
FULL = {"SEEDS": 50}


def measured(model: Model, x: Array, y: Array) -> tuple[Array, Array]:
    """X, X_ρ and X_2ρ of a network, and its kernel there."""
    stack = stacked(CapAttack(RHO), model, model.params, x, y)
    return stack, kernel(model, model.params, stack)


def deviations() -> Rows:
    """A row for each setting, width, seed and kernel: its relative Frobenius deviation."""
    for label, (space, name, widths) in SETTINGS.items():
        tasks = [
            margin(N, DIMENSION, MU, np.random.default_rng(seed))
            if isinstance(space, Residual)
            else pixels(N, PIXELS, CHANNELS, MU, seed)
            for seed in range(SEEDS)
        ]
        for width in widths:
            runs = by_seed(replace(space, width=width), name, tasks, measured)
            for seed, (stack, gram) in enumerate(runs):
                limit = kernels_of(infinite_ntk(space, name, on_sphere(stack)), N, BETA)
                found = kernels_of(gram.astype(float), N, BETA)
                for which, expected in limit.items():
                    relative = (found[which] - expected) / np.linalg.norm(expected)
                    yield {
                        "setting": label,
                        "m": width,
                        "seed": seed,
                        "kernel": which,
                        "deviation": float(np.linalg.norm(relative)),
                        "trace": float(np.trace(relative)),
                    }


def run(study: Study) -> Outcome:
    """Slopes of the deviations, and whether their means over the seeds vanish."""
    frame = pd.DataFrame(deviations())
    figure, axes = panels(len(SETTINGS), 0.6, together=True)
    findings, rows = Findings(), []
    for axis, (label, part) in zip(axes, frame.groupby("setting", sort=False), strict=True):
        row: dict[str, object] = {"networks": label}
        for i, (name, one) in enumerate(part.groupby("kernel", sort=False)):
            fitted = slope(one, "m", "deviation")
            widest = one[one["m"] == one["m"].max()]["trace"]
            bias = abs(widest.mean()) / widest.sem()
            row[str(name)] = f"{fitted.value:.2f}"
            findings.measure(
                f"{label}: {name} approaches its limit as m^−1/2",
                "a limit; no rate",
                fitted,
                *INVERSE_ROOT,
                f"slope in m; mean trace at the largest m {bias:.1f} standard errors off",
            )
            lines(axis, one, "m", "deviation", str(name), i)
        rows.append(row)
        axis.set(title=label, xlabel="width m")
    axes[0].set_ylabel("relative Frobenius deviation")
    axes[0].legend(fontsize="x-small")
    return Outcome(
        frame,
        figure,
        {"n": N, "d": DIMENSION, "mu": MU, "rho": RHO, "beta": BETA, "seeds": SEEDS},
        (
            f"{N} points of the task `margin`, attacked with ρ = {RHO} on each network, {SEEDS} "
            "seeds of weights and points; limits are evaluated at the attacked points of each.",
        ),
        tuple(findings),
        pd.DataFrame(rows),
    )
