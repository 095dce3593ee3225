"""G3: descent on smooth two-layer networks without projection (theorem 5.1)."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pandas as pd

from cells.residual import ACTIVATIONS
from experiments.plotting import panels
from experiments.study import Outcome, Study
from experiments.theory.convergence import Arcs, projected_descent, regret, theorem51_width
from experiments.theory.networks import draw_two_layer, two_layer
from experiments.theory.studies.setting import grid, lines, numbers
from experiments.theory.studies.statistics import Findings, slope, within
from ntkscore.model import Model

STEPS, RATE, SEEDS = 600, 0.5, 5
WIDTHS = (64, 256, 1024, 4096)
SIGMAS = ("softplus", "tanh")
COMPARATOR_STEPS, COMPARATOR_RADIUS = 1500, 12.0
ARCS = Arcs(radius=0.15)
QUANTITIES = {
    "movement": "‖W_T − W₀‖",
    "row": "largest movement of a row",
    "linearisation": "relative error of the linearisation",
}
EXPECTED = {"movement": (-0.1, 0.1), "row": (-0.6, -0.35), "linearisation": (-9.0, -0.4)}
CENTRED = (-1.2, -0.8)
"""Of the linearisation without pairs: signs of the second order are random, and cancel too."""
STARTS = {"pairs": "begins as zero by pairs", "centred": "independent neurons, minus its start"}
FULL = {"WIDTHS": (64, 256, 1024, 4096, 16384), "SEEDS": 20}


@partial(jax.jit, static_argnames=("width", "sigma", "start"))
def measured(key: Any, width: int, sigma: str, start: str) -> dict[str, Any]:
    """What training moves, and the regret's bound."""
    model = two_layer(*draw_two_layer(key, 3, width, start == "pairs"), sigma)
    if start == "centred":
        own = model
        model = Model(lambda w, x: own.apply(w, x) - own.apply(own.params, x), own.params)
    y, worst = jnp.asarray(ARCS.y, jnp.float32), partial(ARCS.worst, model)
    towards = projected_descent(model, y, worst, RATE, COMPARATOR_STEPS, COMPARATOR_RADIUS).params
    run = projected_descent(model, y, worst, RATE, STEPS, comparator=towards)
    best, _ = ARCS.robust_loss(model, towards)
    change = run.params - model.params
    x = jnp.asarray(ARCS.clean, jnp.float32)
    _, along = jax.jvp(lambda w: model.apply(w, x), (model.params,), (change,))
    moved = model.apply(run.params, x) - model.apply(model.params, x)
    return {
        "gap": jnp.min(run.losses) - best,
        "bound": sum(regret(run, RATE, ACTIVATIONS[sigma].curvature, width)),
        "movement": jnp.linalg.norm(change),
        "row": jnp.max(jnp.linalg.norm(change, axis=1)),
        "linearisation": jnp.linalg.norm(moved - along) / jnp.linalg.norm(moved),
    }


def rows() -> Iterator[dict[str, Any]]:
    """A row for each activation, start, width and seed."""
    for case in grid(sigma=SIGMAS, start=STARTS, m=WIDTHS, seed=range(SEEDS)):
        sigma, start, width, seed = case.values()
        yield case | numbers(measured(jax.random.key(seed), width, sigma, start))


def run(study: Study) -> Outcome:
    """Slopes in the width of what training moves, and the inequality in every run."""
    frame = pd.DataFrame(rows())
    paired = frame[frame["start"] == "pairs"]
    broken = int((paired["gap"] > paired["bound"] + 1e-5).sum())
    findings = Findings()
    findings.add(
        "regret ≤ distance + slope + C″‖W_t − W^c‖²/(2√m), every run",
        "always",
        f"{broken} of {len(paired)} runs violate it",
        not broken,
        "the proof of theorem 5.1 with measured constants",
    )
    figure, axes = panels(len(QUANTITIES), 0.8)
    for colour, ((sigma, start), part) in enumerate(frame.groupby(["sigma", "start"], sort=False)):
        for axis, (name, title) in zip(axes, QUANTITIES.items(), strict=True):
            lines(axis, part, "m", name, f"{sigma}, {start}", colour)
            axis.set(title=title, xlabel="width m")
            if start != "pairs" and name != "linearisation":
                continue
            low, high = EXPECTED[name] if start == "pairs" else CENTRED
            fitted = slope(part, "m", name)
            findings.add(
                f"{sigma}, {STARTS[str(start)]}: slope in m of {title}",
                f"at most {high:g}" if low < -2 else f"{low:g} to {high:g}",
                str(fitted),
                within(fitted, low, high),
                "means over the seeds",
            )
    axes[0].legend(fontsize="x-small")
    gap = 0.1
    return Outcome(
        frame,
        figure,
        {"steps": STEPS, "step_size": RATE, "seeds": SEEDS, "radius": ARCS.radius},
        (
            f"The same arcs, two-layer networks, {STEPS} steps of {RATE} against the worst case, "
            f"no projection; W^c from {COMPARATOR_STEPS} steps in a ball of {COMPARATOR_RADIUS:g}. "
            f"Width that theorem 5.1 asks for there, for a gap of {gap:g} and without its "
            f"constant: {theorem51_width(COMPARATOR_RADIUS, gap):.0e}.",
            "The error of the linearisation is m^−1/2 Σ a_r σ″ (Δw_r·x)²/2 to leading order, with "
            "(Δw_r·x)² of order 1/m and signs a_r: of order 1/m with pairs and without.",
        ),
        tuple(findings),
    )
