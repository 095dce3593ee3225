"""G1: how long the gradient of a deep network is, and how it changes on the way."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import lax
from jaxtyping import Array, PRNGKeyArray

from attacks import project_to_sphere
from experiments.plotting import panels
from experiments.study import Outcome, Study
from experiments.theory.convergence import projected_descent
from experiments.theory.networks import deep_network
from experiments.theory.sphere import CapAttack
from experiments.theory.studies.setting import Rows, grid, linearisation, lines_by_group, numbers
from experiments.theory.studies.statistics import Findings, slope
from experiments.theory.training import input_gradient

N, DIMENSION, RHO, STEPS, SEEDS = 20, 10, 0.1, 150, 16
WIDTHS = (64, 256, 1024)
HIDDEN = (1, 2, 3)
RADII = (1.0, 4.0)
RATE = 0.2
"""Step size times m H."""
SLOWEST = -1 / 6
"""A slope in m below which the gradient's change counts as falling; lemma A.5 allows −1/6."""
QUANTITIES = {
    "at the end": "change of the gradient, W_T",
    "at random": "change of the gradient, a random W as far",
    "linearisation": "relative error of the linearisation",
}
FULL = {"WIDTHS": (64, 256, 1024, 4096), "SEEDS": 32}


@partial(jax.jit, static_argnames=("width", "hidden"))
def measured(key: PRNGKeyArray, radius: Array, width: int, hidden: int) -> dict[str, Array]:
    """Lengths and relative changes of the gradient, over the points of one draw."""
    weights, points, labels, direction = jax.random.split(key, 4)
    model = deep_network(weights, DIMENSION, width, hidden)
    x = project_to_sphere(jax.random.normal(points, (N, DIMENSION)))
    y = jax.random.rademacher(labels, (N,), x.dtype)
    attack = CapAttack(RHO)
    perturb = lambda w: attack(input_gradient(model, w, y), x)  # noqa: E731
    run = projected_descent(model, y, perturb, RATE / (width * hidden), STEPS, radius / width**0.5)
    change = jax.tree.map(jnp.subtract, run.params, model.params)
    drawn = optax.tree.random_like(direction, change)
    scaled = jax.tree.map(lambda c, d: d * optax.tree.norm(c) / optax.tree.norm(d), change, drawn)
    astray = jax.tree.map(jnp.add, model.params, scaled)

    def at(point: Array) -> tuple[Array, Array, Array]:
        of = jax.grad(lambda w: model.apply(w, point[None])[0, 0])
        start = of(model.params)
        apart = [jax.tree.map(jnp.subtract, of(w), start) for w in (run.params, astray)]
        return optax.tree.norm(start), *(optax.tree.norm(each) for each in apart)

    start, end, random = lax.map(at, x)
    outputs, along = linearisation(model, run.params, x)
    return {
        "length": jnp.mean(start) / (width * hidden) ** 0.5,
        "at the end": jnp.mean(end / start),
        "at random": jnp.mean(random / start),
        "linearisation": jnp.linalg.norm(outputs - along) / jnp.linalg.norm(outputs),
    }


def rows() -> Rows:
    """A row for each depth, radius, width and seed."""
    for case in grid(H=HIDDEN, R=RADII, m=WIDTHS, seed=range(SEEDS)):
        hidden, radius, width, seed = case.values()
        yield case | numbers(measured(jax.random.key(seed), jnp.float32(radius), width, hidden))


def run(study: Study) -> Outcome:
    """Lengths at the start, and slopes in the width of what changes inside the ball."""
    frame = pd.DataFrame(rows())
    lengths = frame.groupby(["H", "m"])["length"].mean()
    low, high = lengths.min(), lengths.max()
    findings = Findings()
    findings.add(
        "‖∇f‖/√(mH) at initialisation",
        "1",
        f"{low:.2f} to {high:.2f}, by depth and width",
        low > 0.9 and high < 1.1,
        "lemmas A.1 to A.3; within 0.1",
    )
    for hidden, part in frame[frame["R"] == max(RADII)].groupby("H"):
        fitted = slope(part, "m", "at the end")
        findings.measure(
            f"H = {hidden}, R = {max(RADII):g}: the gradient's change falls with the width",
            "as m^−1/6 or faster (lemma A.5)",
            fitted,
            -np.inf,
            SLOWEST,
            "slope in m",
        )
    means = frame.groupby(["H", "m", "R"])["at the end"].mean().unstack("R")
    grows = bool((means[max(RADII)] > means[min(RADII)]).all())
    findings.add(
        "the gradient's change grows with R",
        "at every width and depth",
        "at every one" if grows else "not at every one",
        grows,
        f"R = {min(RADII):g} against {max(RADII):g}, means over the seeds",
    )
    figure, axes = panels(len(QUANTITIES), 0.8)
    label = "H = {}, R = {:g}".format
    lines_by_group(axes, frame, ["H", "R"], "m", QUANTITIES, label, "width m")
    summary = frame.groupby(["H", "R", "m"])[list(QUANTITIES)].mean().round(3).reset_index()
    return Outcome(
        frame,
        figure,
        {"n": N, "d": DIMENSION, "rho": RHO, "steps": STEPS, "seeds": SEEDS},
        (
            f"Deep networks whose inner layers are trained, {N} random points and labels, PGD with "
            f"ρ = {RHO}, {STEPS} steps of {RATE}/(mH) projected to R/√m around each layer's start.",
        ),
        tuple(findings),
        summary,
    )
