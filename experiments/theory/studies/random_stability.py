"""S1: perturbation stability of random networks against its exact moments."""

from functools import partial

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, Key, PRNGKeyArray

from attacks import project_to_sphere
from experiments.plotting import panels
from experiments.study import Outcome, Study
from experiments.theory.networks import INITIALISATIONS, fully_connected_network
from experiments.theory.stability import (
    gain,
    second_moment,
    stability_at_initialisation,
)
from experiments.theory.studies.setting import Rows, grid
from experiments.theory.studies.statistics import Findings
from ntkscore.measures.perturbations import displacements

LAYERS, WIDTHS = (2, 3, 4, 6, 8), (16, 64, 256)
DIMENSION, OUTPUTS = 64, 10
NETWORKS = {16: 1000, 64: 1000, 256: 400}
CLOSE, SLACK = 0.05, 0.02
FULL = {"NETWORKS": {16: 4000, 64: 4000, 256: 4000}}


@partial(jax.jit, static_argnames=("layers", "width", "initialisation"))
def moved(keys: Key[Array, " n"], layers: int, width: int, initialisation: str) -> Array:
    """The first-order move of each random network's outputs, at a point of its own."""

    def one(key: PRNGKeyArray) -> Array:
        weights, points, ball = jax.random.split(key, 3)
        model = fully_connected_network(weights, DIMENSION, width, OUTPUTS, layers, initialisation)
        x = project_to_sphere(jax.random.normal(points, (1, DIMENSION)))
        return displacements(model.logits, x, ball)[0]

    return jax.lax.map(one, keys)


def rows() -> Rows:
    """A row for each initialisation, depth and width."""
    for case in grid(initialisation=INITIALISATIONS, L=LAYERS, m=WIDTHS):
        initialisation, layers, width = case.values()
        keys = jax.random.split(jax.random.key(0), NETWORKS[width])
        values = np.asarray(moved(keys, layers, width, initialisation), float)
        sizes = (initialisation, DIMENSION, width, OUTPUTS, layers)
        exact, squares = second_moment(*sizes), values**2
        error = squares.std() / len(values) ** 0.5
        yield case | {
            "mean": float(values.mean()),
            "formula": stability_at_initialisation(*sizes),
            "square": float(squares.mean()),
            "exact": exact,
            "errors": float((squares.mean() - exact) / error),
        }


def run(study: Study) -> Outcome:
    """Moments against what is exact, means against the formula, slopes in the depth."""
    frame = pd.DataFrame(rows())
    inside = frame["errors"].abs() <= 3
    wide = frame[frame["L"] <= frame["m"] / 8]
    ratio = (wide["mean"] / wide["formula"] - 1).abs()
    findings = Findings()
    findings.add(
        "mean square, lemma 5 with equality",
        "exact",
        f"within three standard errors in {inside.sum()} of {len(frame)}",
        inside.mean() >= 0.95,
        "95 % of the grid",
    )
    findings.add(
        "𝒫/ε at initialisation, L ≤ m/8",
        "its formula",
        f"at most {ratio.max():.1%} off",
        (ratio <= CLOSE).all(),
        f"{len(wide)} settings, within {CLOSE:.0%}",
    )
    figure, axes = panels(len(INITIALISATIONS), 0.8, together=True)
    widest = max(WIDTHS)
    for axis, (name, part) in zip(axes, frame.groupby("initialisation", sort=False), strict=True):
        deep = part[part["m"] == widest]
        found = float(np.polyfit(deep["L"], np.log(deep["mean"]), 1)[0])
        expected = np.log(gain(str(name), DIMENSION, widest)) - 5 / (8 * widest)
        findings.add(
            f"{name}: slope of log 𝒫 in the depth, m = {widest}",
            f"{expected:.3f}",
            f"{found:.3f}",
            abs(found - expected) <= SLACK,
            f"within {SLACK:g}",
        )
        for width, one in part.groupby("m"):
            axis.semilogy(one["L"], one["mean"], "o", ms=3, label=f"m = {width}")
            axis.semilogy(one["L"], one["formula"], "-", color="grey", lw=0.7)
        axis.set(title=str(name), xlabel="layers L")
    axes[0].set_ylabel("P/ε of random networks")
    axes[0].legend(fontsize="x-small")
    return Outcome(
        frame,
        figure,
        {"d": DIMENSION, "o": OUTPUTS},
        (
            "Random networks, a point and a draw of the ball each; lines are the formula. Narrow "
            "or deep random networks move less, before any training.",
        ),
        tuple(findings),
    )
