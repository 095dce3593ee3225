"""L3: how the flipping step grows with the ball that training may reach."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from experiments.plotting import panels
from experiments.study import Outcome, Study
from experiments.theory.seeds import over_seeds
from experiments.theory.studies.digits import split
from experiments.theory.studies.lazy_flip import QUANTITIES, error, flips, trained
from experiments.theory.studies.setting import grid, lines
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
LEAST = 100


def rows(study: Study) -> Iterator[pd.DataFrame]:
    """Rows of test images for each dimension, seed and ball, of one run by seed."""
    for case in grid(side=SIDES, seed=range(SEEDS)):
        side, seed = case.values()
        train, test = split(study, side, seed)
        run, a = trained(train, WIDTH, seed, DEVIATIONS, "sum")
        for place, asked in enumerate(DEVIATIONS):
            w = np.asarray(run.weights[place], float)
            yield flips(w, a, test.x[:IMAGES]).assign(
                d=side**2,
                seed=seed,
                C0=asked,
                reached=float(run.deviation[place]),
                left=run.status[place],
                steps=int(run.steps[place]),
                error=error(w, a, test),
            )


def run(study: Study) -> Outcome:
    """Ratios between the largest and the smallest ball, paired by seed."""
    frame = pd.concat(rows(study), ignore_index=True)
    findings = Findings()
    figure, axes = panels(3, 0.8)
    for place, (name, (sign, *_)) in enumerate(QUANTITIES.items()):
        told, all_above = [], True
        for colour, (d, part) in enumerate(frame.groupby("d")):
            by = part.pivot_table(index="seed", columns="C0", values=name).to_numpy()
            ratio = over_seeds(
                np.log(by[:, -1] / by[:, 0]), lambda logs: float(np.exp(logs.mean()))
            )
            told.append(f"d = {d}: {ratio}")
            all_above &= int(str(d)) < LEAST or ratio.low > 1
            lines(axes[place], part, "C0", name, f"d = {d}", colour)
        axes[place].set(title=sign, xlabel="C₀")
        findings.add(
            f"{sign} grows with the ball",
            "grows",
            "; ".join(told),
            all_above,
            f"ratio of C₀ = {DEVIATIONS[-1]:g} to {DEVIATIONS[0]:g}, paired by seed; "
            f"above 1 at every d ≥ {LEAST}",
        )
    axes[0].legend(fontsize="x-small")
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
