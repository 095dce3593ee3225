"""L1: random two-layer networks: how short a step flips them, and the lemmas' bounds."""

import numpy as np
import pandas as pd
from scipy.special import erf

from experiments.plotting import panels
from experiments.study import Outcome, Study
from experiments.theory.lazy import (
    changes_bound,
    flip_along_gradient,
    gradient_bound,
    output_bound,
)
from experiments.theory.seeds import over_seeds
from experiments.theory.studies.setting import Rows, grid, lines
from experiments.theory.studies.statistics import Findings, slope

DIMENSIONS = (25, 100, 400, 784)
WIDTH, DRAWS, GAMMA, DEVIATION = 1000, 400, 0.05, 10.0
MEDIAN, WITHIN = 0.674, 0.10
"""The median of |Z|, Z ~ N(0, 1), which ‖δ‖ √d approaches, and the distance allowed from it."""
LEAST = 100
"""Dimension from which the limit is expected."""
FULL = {"WIDTH": 100_000, "DRAWS": 2000}


def rows() -> Rows:
    """A row for each dimension and draw of weights and point."""
    radius = DEVIATION / WIDTH**0.5
    for case in grid(d=DIMENSIONS, seed=range(DRAWS)):
        d, rng = case["d"], np.random.default_rng(list(case.values()))
        w, a = rng.standard_normal((WIDTH, d)), rng.choice([-1.0, 1.0], WIDTH)
        x = rng.standard_normal(d)
        x /= np.linalg.norm(x)
        flip = flip_along_gradient(w, a, x)
        yield case | {
            "status": flip.status,
            "output": abs(flip.output),
            "gradient": flip.gradient,
            "length": flip.length,
            "scaled": flip.length * d**0.5,
            "over linear": flip.length / flip.linear,
            "changes": int((np.abs(w @ x) <= radius).sum()),
        }


def run(study: Study) -> Outcome:
    """Medians and slopes of the flipping step, and how often each bound is violated."""
    frame = pd.DataFrame(rows())
    radius = DEVIATION / WIDTH**0.5
    by_d = frame.groupby("d")
    medians = by_d["scaled"].median()
    fitted = slope(frame[frame["d"] >= LEAST], "d", "length")
    exact = WIDTH * erf(radius / 2**0.5)
    counts = by_d["changes"].agg(["mean", "std"])
    off = (counts["mean"] - exact).abs() / (counts["std"] / DRAWS**0.5)
    stuck = int((frame["status"] != "ok").sum())
    findings = Findings()
    findings.measure(
        f"‖δ‖ √d of the smallest flipping step, median, d ≥ {LEAST}",
        f"{MEDIAN} in the limit",
        {
            f"d = {d}": over_seeds(part["scaled"].to_numpy(), np.nanmedian)
            for d, part in frame[frame["d"] >= LEAST].groupby("d")
        },
        MEDIAN - WITHIN,
        MEDIAN + WITHIN,
        f"over draws; {stuck} of {len(frame)} never flip",
    )
    findings.measure(
        f"its length falls as 1/√d, d ≥ {LEAST}", "−1/2", fitted, -0.6, -0.4, "slope in d"
    )
    findings.add(
        "neurons that the ball lets change their sign",
        f"{exact:.1f} on average",
        ", ".join(f"d = {d}: {value:.1f}" for d, value in counts["mean"].items()),
        (off <= 3).all(),
        "Binomial(m, erf(V/√2)); within three standard errors",
    )
    lower = {d: gradient_bound(GAMMA, d, WIDTH, 0.0) for d in DIMENSIONS}
    violated = {
        "|f| (lemma 4.1)": (frame["output"] > output_bound(GAMMA, WIDTH, 0.0)).mean(),
        "sign changes (lemma 4.3)": (frame["changes"] > changes_bound(GAMMA, WIDTH, radius)).mean(),
        "‖∇f‖ (lemma 4.2)": (
            frame["gradient"] < frame["d"].map({d: bound.value for d, bound in lower.items()})
        ).mean(),
    }
    words = [f"d = {d}: {bound.value:.2f} ({bound.status})" for d, bound in lower.items()]
    for what, share in violated.items():
        findings.add(
            f"bound on {what}",
            f"violated in a share of at most {GAMMA:g}",
            f"{share:.3f}",
            share <= GAMMA,
            f"of {len(frame)} random networks"
            + (f"; bound {', '.join(words)}" if "∇" in what else ""),
        )
    figure, axes = panels(2, 1.0)
    lines(axes[0], frame, "d", "length", "smallest flipping step", 0)
    axes[0].loglog(
        medians.index, 0.798 / medians.index.to_numpy() ** 0.5, "--", color="grey", label="0.798/√d"
    )
    axes[0].set(xlabel="dimension d", ylabel="‖δ‖ / ‖x‖")
    axes[0].legend(fontsize="x-small")
    for d, part in by_d:
        axes[1].hist(part["scaled"].dropna(), 30, histtype="step", density=True, label=f"d = {d}")
    axes[1].set(xlabel="‖δ‖ √d", ylabel="density")
    axes[1].legend(fontsize="x-small")
    summary = by_d[["output", "gradient", "length", "scaled", "over linear", "changes"]].mean()
    return Outcome(
        frame,
        figure,
        {"m": WIDTH, "draws": DRAWS, "gamma": GAMMA, "deviation": DEVIATION},
        (
            f"{DRAWS} random networks and points of length 1 for each d, m = {WIDTH}; the step is "
            "along the gradient, and exact: f is piecewise linear there.",
        ),
        tuple(findings),
        summary.round(3).reset_index(),
    )
