"""G4: how many random features a function of the kernel's space needs (proposition C.1)."""

from functools import partial

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, PRNGKeyArray

from cells.residual import ACTIVATIONS
from experiments.plotting import panels
from experiments.study import Outcome, Study
from experiments.theory.random_features import random_features, random_sum, tangent_kernel
from experiments.theory.studies.setting import Rows, grid, lines
from experiments.theory.studies.statistics import INVERSE_ROOT, Findings, slope

TERMS, DRAWS, POINTS, DELTA = 5, 100, 2000, 0.01
DIMENSIONS = (5, 20)
FEATURES = (64, 256, 1024, 4096)
SIGMAS = ("tanh", "softplus")
FULL = {"DRAWS": 1000, "FEATURES": (64, 256, 1024, 4096, 16384)}


@partial(jax.jit, static_argnames=("count", "sigma"))
def drawn(
    key: PRNGKeyArray, x: Array, centres: Array, signs: Array, count: int, sigma: str
) -> Array:
    """h_M of one draw of M features."""
    return random_features(key, x, centres, signs, count, sigma)[0]


def rows() -> Rows:
    """A row for each activation, dimension, number of features and draw: the largest error."""
    for case in grid(sigma=SIGMAS, d=DIMENSIONS):
        sigma, d = case.values()
        arrays = random_sum(d, POINTS, TERMS)
        x, centres, signs = (np.asarray(each, float) for each in arrays)
        wanted = tangent_kernel(sigma, x @ centres.T) @ signs
        for draw in grid(M=FEATURES, seed=range(DRAWS)):
            found = drawn(jax.random.key(draw["seed"]), *arrays, draw["M"], sigma)
            error = float(np.max(np.abs(np.asarray(found) - wanted)))
            yield case | draw | {"error": error, "bound": bound(sigma, d, draw["M"])}


def bound(sigma: str, dimension: int, count: int) -> float:
    """C ‖h‖ M^−1/2 (2√d + √(2 log 1/δ)), with ‖h‖ ≤ C Σ|a_t|."""
    lipschitz = ACTIVATIONS[sigma].lipschitz
    spread = 2 * dimension**0.5 + (2 * np.log(1 / DELTA)) ** 0.5
    return float(lipschitz**2 * TERMS * spread / count**0.5)


def run(study: Study) -> Outcome:
    """Slopes of the largest error in the number of features, and its quantile beside the bound."""
    frame = pd.DataFrame(rows())
    groups = list(frame.groupby(["sigma", "d"], sort=False))
    figure, axes = panels(len(groups), 0.7, together=True)
    findings = Findings()
    for axis, ((sigma, d), part) in zip(axes, groups, strict=True):
        fitted = slope(part, "M", "error")
        by_count = part.groupby("M")
        worst, bounds = by_count["error"].quantile(1 - DELTA), by_count["bound"].first()
        ratio = bounds / worst
        findings.measure(
            f"{sigma}, d = {d}: the largest error falls as M^−1/2",
            "−1/2",
            fitted,
            *INVERSE_ROOT,
            f"slope in M, {DRAWS} draws",
        )
        findings.add(
            f"{sigma}, d = {d}: below the bound",
            f"with probability {1 - DELTA:g}",
            f"bound {ratio.min():.0f} to {ratio.max():.0f} times the quantile",
            (ratio > 1).all(),
            f"{1 - DELTA:.0%} quantile of {DRAWS} draws",
        )
        lines(axis, part, "M", "error", "error", 0)
        axis.loglog(bounds.index, bounds, "--", color="grey", label="bound")
        axis.set(title=f"{sigma}, d = {d}", xlabel="features M")
    axes[0].set_ylabel(f"largest error on {POINTS} points")
    axes[0].legend(fontsize="x-small")
    return Outcome(
        frame,
        figure,
        {"terms": TERMS, "draws": DRAWS, "points": POINTS, "delta": DELTA},
        (
            f"h is a sum of {TERMS} kernel functions K_σ(·, x_t) with signs; h_M draws M neurons. "
            "The proposition's bound holds for any such function, and is far from sharp.",
        ),
        tuple(findings),
    )
