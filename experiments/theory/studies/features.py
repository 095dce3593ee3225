"""G4: how many random features a function of the kernel's space needs (proposition C.1)."""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cells.residual import ACTIVATIONS
from experiments.frame import INVERSE_ROOT, Claim, Study, Within, exact
from experiments.plotting import annotate, lines, panels
from experiments.statistics import slope
from experiments.theory.random_features import random_features, random_sum, tangent_kernel

DELTA = 0.01
"""Probability with which the bound may fail."""
draw = partial(jax.jit, static_argnames=("count", "activation"))(random_features)


def measure(at: SimpleNamespace) -> dict[str, float]:
    """The largest error of one draw of M features, and the proposition's bound of it.

    The bound is C ‖h‖ M^−1/2 (2√d + √(2 log 1/δ)), with ‖h‖ ≤ C Σ|a_t|.
    """
    arrays = random_sum(at.d, at.points, at.terms)
    x, centres, signs = (np.asarray(each, float) for each in arrays)
    wanted = tangent_kernel(at.sigma, x @ centres.T) @ signs
    found = draw(jax.random.key(at.seed), *arrays, at.M, at.sigma)
    spread = 2 * at.d**0.5 + (2 * np.log(1 / DELTA)) ** 0.5
    bound = ACTIVATIONS[at.sigma].lipschitz ** 2 * at.terms * spread / at.M**0.5
    return {"error": float(np.max(np.abs(found - wanted))), "bound": float(bound)}


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Slopes in M, and the quantile of the error beside the bound."""
    groups = [part for _, part in frame.groupby(["sigma", "d"], sort=False)]
    found = [slope(part, "M", "error") for part in groups]
    yield Claim("largest error of M features: slopes in M", "−1/2", found, INVERSE_ROOT)
    found = []
    for part in groups:
        by_count = part.groupby("M")
        worst = by_count["error"].quantile(1 - DELTA)
        found.append(exact((worst / by_count["bound"].first()).max()))
    yield Claim("its .99 quantile over the bound", "1 or less", found, Within(high=1))


def figure(frame: pd.DataFrame) -> Figure:
    """Errors and bounds by the number of features."""
    groups = list(frame.groupby("d"))
    drawing, axes = panels(len(groups), together=True)
    for axis, (d, part) in zip(axes, groups, strict=True):
        lines(axis, part, "M", "error", "sigma", "error, {}", log="xy")
        lines(axis, part, "M", "bound", "sigma", "bound, {}", log="xy", fmt="--")
        axis.set_title(f"d = {d}")
    axes[0].set_ylabel("largest error on the points, outputs")
    annotate(drawing, axes[0], "features M", 4)
    return drawing


STUDY = Study(
    "How many random features a function needs (G4)",
    measure,
    cases={"sigma": ("tanh", "softplus"), "d": (5, 20)}
    | {"M": (64, 256, 1024, 4096), "seed": tuple(range(100))},
    fixed={"points": 2000, "terms": 5},
    full={"M": (64, 256, 1024, 4096, 16_384), "seed": tuple(range(1000))},
    claims=claims,
    figure=figure,
    note="A sum of `terms` kernel functions K_σ(·, x_t) with signs, from M random neurons; largest "
    "error on `points` points. The bound holds for any such function, and is far from sharp.",
)
