"""S3: perturbation stability of two-layer networks whose weights must travel."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, PyTree

from experiments.plotting import COLOURS, panels
from experiments.study import Outcome, Study, verdict
from experiments.theory.convergence import descend_until
from experiments.theory.networks import fully_connected, fully_connected_network
from experiments.theory.seeds import over_seeds
from experiments.theory.stability import TwoLayer, expected_hidden_kernel, least_norm, travel
from experiments.theory.studies.digits import split
from experiments.theory.studies.setting import Rows, curve, grid
from experiments.theory.studies.statistics import Findings, ratio, slope
from ntkscore.measures.perturbations import displacements

SIDE, POINTS, SEEDS, RATE = 14, 100, 5, 0.5
WIDTHS = (8, 32, 128, 512, 2048)
POWERS = (1.5, 2.0)
"""c of β₁ = β₂ = m^−c at α = 1."""
LAZY = "lazy"
"""The contrast: α = √m, β₁ = β₂ = 1."""
EARLY, DONE, MOST = 10, 0.02, 50_000
"""Steps of the second time, the loss of the third, and steps after which it has not converged."""
DRIFT = 0.01
FLOWS = 1e-3
"""What a layer's norm may lack of equation 15, which is of gradient flow, not of steps."""
FULL = {"WIDTHS": tuple(2**i for i in range(3, 16, 2)), "POINTS": 12_665}


@partial(jax.jit, static_argnames="steps")
def trained(
    weights: PyTree, x: Array, y: Array, alpha: Array, steps: int
) -> tuple[Array, PyTree, Array]:
    """Full-batch descent until the loss is low or the steps are over, as `descend_until`."""

    def loss(w: PyTree) -> Array:
        return jnp.mean((fully_connected(w, x)[:, 0] / alpha - y) ** 2) / 2

    return descend_until(loss, weights, RATE, DONE, steps)


def rows(study: Study) -> Rows:
    """A row for each setting, width, seed and time."""
    settings = {f"c = {c:g}": c for c in POWERS} | {LAZY: np.nan}
    for case in grid(setting=settings, m=WIDTHS, seed=range(SEEDS)):
        setting, width, seed = case.values()
        lazy, c = setting == LAZY, settings[setting]
        std, alpha = (1.0, width**0.5) if lazy else (float(width) ** -c, 1.0)
        train, test = split(study, SIDE, seed)
        x, y = (jnp.asarray(each[:POINTS], jnp.float32) for each in train)
        first, ball = jax.random.split(jax.random.fold_in(jax.random.key(seed), width))
        model = fully_connected_network(first, SIDE**2, width, 1, 2, (std, std, std), alpha=alpha)
        kernel = expected_hidden_kernel(train.x[:POINTS], width, std, alpha)
        sizes = TwoLayer(POINTS, width, std, std, float(np.linalg.eigvalsh(kernel)[0]), alpha)
        residual = float(jnp.linalg.norm(model.apply(model.params, x)[:, 0] - y))
        for when, steps in (("start", 0), ("early", EARLY), ("end", MOST)):
            taken, w, value = trained(model.params, x, y, jnp.float32(alpha), steps)
            moved = displacements(partial(model.apply, w), jnp.float32(test.x), ball)
            layers = hidden, output = travel(model.params, w)
            largest = float(jnp.max(jnp.abs(model.apply(w, x))))
            begun, ended = output.start**2 - hidden.start**2, output.end**2 - hidden.end**2
            # A step of descent on the mean is RATE/n of the flow's time on the sum.
            time = float(taken) * RATE / POINTS
            converged = when != "end" or float(value) <= DONE
            yield {
                "setting": setting,
                "c": c,
                "m": width,
                "seed": seed,
                "time": when,
                "status": "ok" if converged else "not_converged",
                "steps": int(taken),
                "P/ε": float(jnp.mean(moved)),
                "κ of W": hidden.relative,
                "κ of a": output.relative,
                "drift": abs(ended - begun) / max(output.end, hidden.end) ** 2,
                "excess": min(hidden.end, output.end) - least_norm(layers, largest, alpha),
                "bound": sizes.stability_bound(time, residual).value,
                "t*/t": sizes.time(residual) / time if time else np.inf,
            }


def run(study: Study) -> Outcome:
    """Slopes in the width early and at the end of training."""
    frame = pd.DataFrame(rows(study))
    findings = Findings()
    for name, part in frame[frame["setting"] != LAZY].groupby("setting", sort=False):
        c = part["c"].iloc[0]
        finished = part[part["time"] == "end"]
        early, end = (slope(at, "m", "P/ε") for at in (part[part["time"] == "early"], finished))
        by_width = finished.pivot(index="seed", columns="m", values="P/ε")
        last = ratio(by_width, WIDTHS[-1], WIDTHS[0])
        findings.measure(
            f"{name}: 𝒫 falls with the width after {EARLY} steps (theorem 3)",
            "as −(c − ½) or faster",
            early,
            -np.inf,
            0.5 - c,
            "slope of log 𝒫 in log m",
        )
        findings.measure(
            f"{name}: width helps in non-lazy training",
            "𝒫 falls",
            last,
            -np.inf,
            1,
            f"𝒫 at m = {WIDTHS[-1]} over that at {WIDTHS[0]}, at loss {DONE:g}; slope in m {end}. "
            "The decay is of the time before anything is learned",
        )
        findings.add(
            f"{name}: ‖a‖² − ‖W‖² stays",
            "always, in gradient flow",
            f"at most {finished['drift'].max():.1%}",
            (finished["drift"] < DRIFT).all(),
            f"of the larger norm's square, below {DRIFT:.0%}",
        )
        findings.add(
            f"{name}: every layer's norm is at least (α|f|)^½ less the mean at the start "
            "(equation 15)",
            "always, in gradient flow",
            f"{(finished['excess'] < -FLOWS).sum()} of {len(finished)} below",
            not (finished["excess"] < -FLOWS).any(),
            f"by more than {FLOWS:g} at the end of training, |f| the largest at a training point",
        )
        left = finished[["κ of W", "κ of a"]].min().min() > 1
        asked = (2 * min(WIDTHS) ** (1.5 - c)) ** 2 < 1  # α = 1 > (m^1.5 Σβ)^L, L = 2
        findings.add(
            f"{name}: both layers leave their start behind (theorem 2)",
            "κ > 1",
            f"W {finished['κ of W'].min():.2f}, a {finished['κ of a'].min():.2f} and more",
            verdict(left) if asked else "not decidable",
            "smallest over widths and seeds"
            + ("" if asked else "; α > (m^1.5 Σβ)^L, which the theorem asks for, does not hold"),
        )
    contrast = frame[(frame["setting"] == LAZY) & (frame["time"] == "end")]
    for m, part in contrast.groupby("m"):
        findings.measure(
            f"α = √m, β = 1, m = {m}: W stays near its start",
            "lazy",
            over_seeds(part["κ of W"].to_numpy(), np.mean),
            0,
            0.1,
            "κ, relative",
        )
    figure, axes = panels(3, 0.8, together=True)
    titles = {"start": "at the start", "early": f"after {EARLY} steps", "end": f"at loss {DONE:g}"}
    for axis, (when, title) in zip(axes, titles.items(), strict=True):
        for colour, (name, one) in enumerate(
            frame[frame["time"] == when].groupby("setting", sort=False)
        ):
            curve(axis, one.groupby("m")["P/ε"].mean(), str(name), colour)
            bounds = one.groupby("m")["bound"].mean()
            axis.loglog(bounds[np.isfinite(bounds)], ":", lw=0.8, color=COLOURS[colour])
        axis.set(title=title, xlabel="width m")
    axes[0].set_ylabel("P/ε on test points")
    axes[0].legend(fontsize="x-small")
    summary = frame.groupby(["setting", "m", "time"], sort=False)[
        ["P/ε", "steps", "κ of W", "κ of a", "drift", "bound", "t*/t"]
    ].mean()
    late = frame[(frame["time"] != "start") & (frame["t*/t"] < 1)]
    ended = frame[frame["time"] != "start"]
    return Outcome(
        frame,
        figure,
        {"d": SIDE**2, "n": POINTS, "seeds": SEEDS, "rate": RATE},
        (
            f"Zeros and ones of MNIST in {SIDE} × {SIDE} pixels, {POINTS} points of length 1; "
            "dotted: theorem 3 where it speaks, that is until t*. It does not for "
            f"{len(late)} of the {len(ended)} rows of trained networks: t* is over after "
            f"{ended['t*/t'].min():.0e} to {ended['t*/t'].max():.0e} of the time.",
            f"{(frame['status'] != 'ok').sum()} runs did not reach the loss {DONE:g} in {MOST} "
            "steps.",
        ),
        tuple(findings),
        summary.reset_index(),
    )
