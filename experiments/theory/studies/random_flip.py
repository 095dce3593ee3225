"""L1: random two-layer networks: how short a step flips them, and the lemmas' bounds."""

import numpy as np
import pandas as pd
from scipy.special import erf

from experiments.plotting import panels
from experiments.study import Outcome, Study
from experiments.theory.lazy import (
    Flip,
    changes_bound,
    flip_along_gradient,
    gates_bound,
    gradient_bound,
    may_change,
    output_bound,
)
from experiments.theory.seeds import over_seeds
from experiments.theory.studies.setting import Rows, grid, lines
from experiments.theory.studies.statistics import INVERSE_ROOT, Findings, slope

DIMENSIONS = (25, 100, 400, 784)
WIDTH, DRAWS, GAMMA, DEVIATION = 1000, 2000, 0.05, 10.0
MEDIAN, WITHIN = 0.674, 0.10
"""The median of |Z|, Z ~ N(0, 1), which ‖δ‖ √d approaches, and the distance allowed from it."""
LEAST = 100
"""Dimension from which the limit is expected."""
CONE = 4.0
"""A factor of all weights, which takes them out of the ball and not out of its cone."""
FULL = {"WIDTH": 100_000, "DRAWS": 10_000}


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
            **perturbed(w, x, rng),
            **in_cone(w, a, x, flip),
        }


def perturbed(w: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """Neurons that change at x + δ, ‖δ‖ = 1/√d, beside what is expected or bounds them."""
    m, d = w.shape
    radius, reach = DEVIATION / m**0.5, d**-0.5
    delta, r = (each / np.linalg.norm(each) for each in rng.standard_normal((2, d)))
    z = x + reach * delta
    length = float(np.linalg.norm(z))
    turned, at_z = (w @ x > 0) != (w @ z > 0), np.abs(w @ z) <= radius * length
    share = np.arccos(x @ z / length) / np.pi
    # No row of the ball separates x from z if its start does not and is far from both.
    separable = turned | at_z | (np.abs(w @ x) <= radius)
    return {
        "turned, errors": float((turned.sum() - m * share) / (m * share * (1 - share)) ** 0.5),
        "at x + δ": int(at_z.sum()),
        "at any x + δ": int(may_change(w, x, radius, reach).sum()),
        "around x + δ": float(may_change(w, z, radius, d**-1.5).mean()),
        "gates": float((np.abs(w @ r) + radius)[separable].sum() / m**0.5),
    }


def in_cone(w: np.ndarray, a: np.ndarray, x: np.ndarray, flip: Flip) -> dict[str, float]:
    """The flip of scaled weights: its length over theirs, and whether the printed step flips too.

    That step is C₂/‖∇f‖² with the C₂ that flips the weights themselves by a quarter more.
    """
    scaled = flip_along_gradient(CONE * w, a, x)
    printed = 1.25 * abs(flip.output) / scaled.gradient**2
    return {"cone": scaled.length / flip.length, "cone, printed": float(printed >= scaled.step)}


def of_perturbed(findings: Findings, frame: pd.DataFrame) -> None:
    """Lemmas B.4, second half, B.6 and B.8; the remark on the cone."""
    radius, d = DEVIATION / WIDTH**0.5, frame["d"]
    bound = changes_bound(GAMMA, WIDTH, radius) * (1 + d**-0.5)
    gap = d**-1.5
    fourth = 2 * gap * (d**0.5 + 2 * (d * np.log(2 / gap)) ** 0.5) + (1 + d**-0.5 + gap) * radius
    gates = d.map(lambda d: gates_bound(GAMMA, d, WIDTH, DEVIATION, d**-0.5))
    least = (gates / frame["gates"]).min()
    for what, where in (("one x + δ", "at x + δ"), ("any x + δ (as printed)", "at any x + δ")):
        violated = float((frame[where] > bound).mean())
        findings.add(
            f"neurons that the ball lets change at {what}, ‖δ‖ ≤ 1/√d (lemma B.4)",
            f"violated in a share of at most {GAMMA:g}",
            f"{violated:.3f}",
            violated <= GAMMA,
            f"{frame[where].mean():.0f} of {WIDTH} on average, bound {bound.mean():.0f}",
        )
    off = frame.groupby("d")["turned, errors"].mean().abs().max() * DRAWS**0.5
    findings.add(
        "a neuron's sign changes from x to x + δ with probability ∠/π (lemma B.6, equation 3)",
        "at most R √(2 log d) + 1/d",
        f"at most {off:.1f} standard errors off",
        off <= 3,
        "exact; at ‖δ‖ = R it is below R/2, 3 allowed in each d",
    )
    found = frame.groupby("d")["around x + δ"].mean()
    findings.add(
        "the share that changes within d^−3/2 of x + δ, anywhere in the ball (equation 4)",
        "at most its bound",
        ", ".join(f"d = {d}: {value:.2f}" for d, value in found.items()),
        (found <= fourth.groupby(d).first()).all(),
        "bounds "
        + ", ".join(f"{value:.2f}" for value in fourth.groupby(d).first())
        + "; a probability",
    )
    findings.add(
        "r·(∇f(x) − ∇f(x + δ)), anywhere in the ball (lemma B.8)",
        "at most its bound",
        f"bound {least:.0f} times an upper estimate and more",
        least >= 1,
        "a random r and δ each; every neuron that some row of the ball lets separate x and x + δ",
    )
    known = frame[frame["status"] == "ok"]
    findings.add(
        f"in the cone, weights times {CONE:g}: as short a step flips",
        "theorem 3.1",
        f"{known['cone'].min():.6f} to {known['cone'].max():.6f} times ‖δ‖",
        np.allclose(known["cone"], 1, rtol=1e-6),
        "homogeneity",
    )
    findings.add(
        f"in the cone, weights times {CONE:g}: the step C₂/‖∇f‖² flips",
        "theorem 3.1",
        f"{known['cone, printed'].mean():.1%}",
        known["cone, printed"].all(),
        "f and ∇f grow alike, so that the step shrinks by the factor: it must be "
        "C |f|/‖∇f‖²; C₂ is what flips the unscaled weights by a quarter more",
    )


def run(study: Study) -> Outcome:
    """Medians and slopes of the flipping step, and how often each bound is violated."""
    frame = pd.DataFrame(rows())
    radius = DEVIATION / WIDTH**0.5
    by_d = frame.groupby("d")
    medians = by_d["scaled"].median()
    fitted = slope(frame[frame["d"] >= LEAST], "d", "length")
    exact = WIDTH * erf(radius / 2**0.5)
    counts = by_d["changes"].agg(["mean", "sem"])
    off = (counts["mean"] - exact).abs() / counts["sem"]
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
        f"its length falls as 1/√d, d ≥ {LEAST}", "−1/2", fitted, *INVERSE_ROOT, "slope in d"
    )
    findings.add(
        "neurons that the ball lets change their sign",
        f"{exact:.1f} on average",
        ", ".join(f"d = {d}: {value:.1f}" for d, value in counts["mean"].items()),
        (off <= 3).all(),
        "Binomial(m, erf(V/√2)); within three standard errors",
    )
    lower = {d: gradient_bound(GAMMA, d, WIDTH, 0.0) for d in DIMENSIONS}
    least = frame["d"].map({d: b.value for d, b in lower.items() if b.status == "ok"}).dropna()
    words = ", ".join(f"d = {d}: {bound.value:.2f} ({bound.status})" for d, bound in lower.items())
    for what, broken, at in (
        ("|f| (lemma 4.1)", frame["output"] > output_bound(GAMMA, WIDTH, 0.0), "0"),
        (
            "sign changes (lemma 4.3)",
            frame["changes"] > changes_bound(GAMMA, WIDTH, radius),
            f"{DEVIATION:g}",
        ),
        ("‖∇f‖ (lemma 4.2)", frame["gradient"][least.index] < least, f"0; bound {words}"),
    ):
        findings.add(
            f"bound on {what}",
            f"violated in a share of at most {GAMMA:g}",
            f"{broken.mean():.3f}",
            broken.mean() <= GAMMA,
            f"of {len(broken)} random networks, C₀ = {at}",
        )
    of_perturbed(findings, frame)
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
