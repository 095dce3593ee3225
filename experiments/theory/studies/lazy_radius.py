"""L3: how the flipping step grows with the ball that training may reach."""

import numpy as np
import pandas as pd

from experiments.plotting import panels
from experiments.study import Outcome, Study
from experiments.theory.seeds import over_seeds
from experiments.theory.studies.lazy_flip import SYMBOLS, flip_rows
from experiments.theory.studies.setting import grid, lines_by_group
from experiments.theory.studies.statistics import Findings

SIDES, WIDTH = (10, 20), 1000
DEVIATIONS = (5.0, 10.0, 15.0, 20.0)
SEEDS, IMAGES = 5, 60
FULL = {
    "SIDES": (5, 7, 10, 14, 20, 25, 28),
    "WIDTH": 100_000,
    "DEVIATIONS": (10.0, 20.0, 30.0, 40.0),
    "IMAGES": 10_000,
}


def run(study: Study) -> Outcome:
    """Ratios between the largest and the smallest ball, paired by seed."""
    cases = grid(scale=("unit",), side=SIDES, m=(WIDTH,), seed=range(SEEDS))
    frame = pd.concat(flip_rows(study, cases, DEVIATIONS, "sum", IMAGES), ignore_index=True)
    findings = Findings()
    for name, sign in SYMBOLS.items():
        ratios = {}
        for d, part in frame.groupby("d"):
            by = part.pivot_table(index="seed", columns="C0", values=name).to_numpy()
            ratios[f"d = {d}"] = over_seeds(
                np.log(by[:, -1] / by[:, 0]), lambda logs: float(np.exp(logs.mean()))
            )
        findings.measure(
            f"{sign} grows with the ball",
            "grows",
            ratios,
            1,
            np.inf,
            f"ratio of C₀ = {DEVIATIONS[-1]:g} to {DEVIATIONS[0]:g}, paired by seed",
        )
    figure, axes = panels(3, 0.8)
    lines_by_group(axes, frame, ["d"], "C0", SYMBOLS, "d = {}".format, "C₀")
    runs = frame.groupby(["d", "C0", "seed"])[["reached", "left", "steps", "error"]].first()
    inside = int((runs["left"] == "inside").sum())
    means = frame.groupby(["d", "C0"])[["length", "gradient", "step", "over linear"]].mean()
    summary = means.join(runs[["reached", "steps", "error"]].groupby(["d", "C0"]).mean())
    return Outcome(
        frame,
        figure,
        {"m": WIDTH, "seeds": SEEDS, "images": IMAGES},
        (
            f"Zeros and ones of MNIST, m = {WIDTH}; one run by seed, in batches of 8 whose losses "
            f"are summed, gives the last weights inside every ball. {inside} of {len(runs)} balls "
            "were not left; their runs count with the C₀ that they reached.",
        ),
        tuple(findings),
        summary.round(4).reset_index(),
    )
