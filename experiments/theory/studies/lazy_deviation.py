"""L5: how large the ball must be for adversarial training to succeed, by width and dimension."""

import numpy as np
import pandas as pd

from experiments.plotting import panels
from experiments.study import OURS, Outcome, Study
from experiments.theory.seeds import log_slope, over_seeds
from experiments.theory.studies.digits import split
from experiments.theory.studies.lazy_adversarial import defended
from experiments.theory.studies.setting import Rows, curve
from experiments.theory.studies.statistics import INVERSE_ROOT, Findings, crossings

RADIUS, SEEDS = 0.2, 5
WIDTHS, SIDE = (125, 500, 2000), 10
DEVIATIONS = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 14.0)
SIDES, WIDTH = (10, 20, 28), 500
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
"""C₀/√(2d)."""
FAILS, SUCCEEDS = 8.0, 25.0
"""C₀ at the largest dimension."""
ROBUST = 0.95
"""Robust accuracy from which a network counts as completely robust."""
FULL = {
    "WIDTHS": (250, 500, 1000, 2000, 4000, 8000, 16000),
    "SIDE": 28,
    "DEVIATIONS": (4.0, 8.0, 12.0, 16.0, 20.0, 25.0, 32.0, 48.0),
}


def rows(study: Study) -> Rows:
    """A row for each dimension, width, ball and seed."""
    settings = [("width", SIDE, width, C0) for width in WIDTHS for C0 in DEVIATIONS]
    settings += [
        ("dimension", side, WIDTH, share * (2 * side**2) ** 0.5)
        for side in SIDES
        for share in SHARES
    ]
    settings += [("ends", SIDES[-1], WIDTH, C0) for C0 in (FAILS, SUCCEEDS)]
    for part, side, width, C0 in settings:
        for seed in range(SEEDS):
            train, test = split(study, side, seed)
            found = defended(train, test, width, seed, RADIUS, C0)
            yield {"part": part, "d": side**2, "m": width, "C0": C0, "seed": seed} | found


def run(study: Study) -> Outcome:
    """The ball of half the accuracy, its slope in the width and its growth with the dimension."""
    frame = pd.DataFrame(rows(study))
    by_width, by_dimension = (frame[frame["part"] == part] for part in ("width", "dimension"))
    widths, values, crossed = crossings(by_width, "m", "C0", 0.5)
    found = crossed(values) / widths**0.5
    fitted = over_seeds(
        values, lambda drawn: log_slope(widths.astype(float), crossed(drawn) / widths**0.5)
    )
    dimensions, more, at_half = crossings(by_dimension, "d", "C0", 0.5)
    reached = at_half(more)
    growth = over_seeds(more, lambda drawn: float(np.divide(*at_half(drawn)[[-1, 0]])))
    d = SIDES[-1] ** 2
    findings = Findings()
    findings.measure(
        "the ball of half the accuracy shrinks with the width",
        "−1/2: V = 25/√m",
        fitted,
        *INVERSE_ROOT,
        f"slope of log V₅₀ in log m at d = {SIDE**2}; V₅₀ "
        + ", ".join(f"m = {m}: {v:.3f}" for m, v in zip(widths, found, strict=True)),
    )
    for deviation, words, low, high in (
        (SUCCEEDS, "completely robust", ROBUST, np.inf),
        (FAILS, "not robust", -np.inf, 1 - ROBUST),
    ):
        at = frame[(frame["part"] == "ends") & (frame["C0"] == deviation)]
        findings.measure(
            f"d = {d}: {words} at C₀ = {deviation:g}",
            "completely robust from C₀ = 25 on, and quickly 0 below",
            over_seeds(at.groupby("seed")["robust"].mean().to_numpy(), np.mean),
            low,
            high,
            "robust test accuracy",
        )
    findings.measure(
        "the deviation that robustness takes grows with the dimension",
        OURS,
        growth,
        1.5,
        np.inf,
        f"ratio of C₀ of half the accuracy, d = {d} to {SIDES[0] ** 2}; a constant gives 1, "
        "√d 2.8. C₀/√(2d) "
        + ", ".join(
            f"d = {each}: {c / (2 * each) ** 0.5:.2f}"
            for each, c in zip(dimensions, reached, strict=True)
        ),
    )
    figure, axes = panels(2, 1.0)
    for axis, part, name in ((axes[0], by_width, "m"), (axes[1], by_dimension, "d")):
        for colour, (value, one) in enumerate(part.groupby(name)):
            means = one.groupby("C0")["robust"].mean()
            at = means.index / ((2 * int(str(value))) ** 0.5 if name == "d" else 1)
            curve(axis, means.set_axis(at), f"{name} = {value}", colour, "plot")
        axis.set(xlabel="C₀" if name == "m" else "C₀/√(2d)", ylabel="robust test accuracy")
        axis.legend(fontsize="x-small")
    summary = frame.groupby(["d", "m", "C0"])[["clean", "robust", "training"]].mean()
    return Outcome(
        frame,
        figure,
        {"R": RADIUS, "seeds": SEEDS},
        (
            f"Zeros and ones of MNIST, R = {RADIUS:g}; training as in the experiment on radii "
            "(L4). Cancelling the initial gradient takes each neuron a way of about √(2d)/√m: "
            "the threshold is no constant of the theory.",
        ),
        tuple(findings),
        summary.round(3).reset_index(),
    )
