"""R2: a small cell's clean and robust accuracy, by β."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.plotting import COLOURS, panels
from experiments.study import Finding, Outcome, Study, interval, verdict
from experiments.training.gradients import Rights, sign_findings
from experiments.training.setting import SIZES, SmallTraining
from ntkscore.training.evaluation import rights

CELL, SEEDS, BETAS = "341231", (0, 1, 2), (0.0, 0.5, 1.0)
RADII = (3, 8, 32, 255)
"""Radii of PGD in grey levels."""
APART = 0.05
"""Least difference between PGD accuracy at β = 1 and at β = 0."""


def spread(values: pd.Series) -> str:
    """Mean, least and largest of the seeds."""
    return interval(values.mean(), values.min(), values.max())


def masks(study: Study) -> dict[tuple[float, int], Rights]:
    """Which test images are classified correctly, by β and seed."""
    images = SmallTraining(study)
    found = {}
    for beta in BETAS:
        fitted = images.fit(CELL, beta, SEEDS)
        for place, seed in enumerate(SEEDS):
            model = images.trained(CELL, fitted, place)
            found[beta, seed] = rights(model, *images.test, radii=RADII)
    return found


def by_beta(whole: pd.DataFrame, metric: str, levels: int) -> pd.DataFrame:
    """An accuracy at a radius in grey levels, a row per seed, a column per β."""
    there = whole[(whole["metric"] == metric) & (whole["levels"] == levels)]
    return there.pivot(index="seed", columns="beta", values="value")


def findings(clean: pd.DataFrame, robust: pd.DataFrame) -> Iterator[Finding]:
    """The signs of both accuracies' changes over β."""

    def compare(what: str, expected: str, table: pd.DataFrame, low: float, high: float) -> Finding:
        gain = table[max(BETAS)] - table[min(BETAS)]
        ours = ", ".join(f"β = {beta:g}: {spread(table[beta])}" for beta in BETAS)
        holds = ((gain > low) & (gain <= high)).all()
        return Finding(what, expected, ours, verdict(holds), f"differences {spread(gain)}")

    yield compare(
        "PGD 8/255 accuracy is larger at β = 1 than at β = 0",
        f"by more than {APART:g} in every seed",
        robust,
        APART,
        np.inf,
    )
    yield compare(
        "clean accuracy is not larger at β = 1 than at β = 0", "in every seed", clean, -np.inf, 0
    )


def draw(whole: pd.DataFrame, clean: pd.DataFrame, robust: pd.DataFrame) -> Figure:
    """PGD accuracy over the radius, and clean and PGD accuracy over β."""
    figure, axes = panels(2, 1.1)
    pgd = whole[whole["metric"] == "pgd"]
    for colour, beta in zip(COLOURS, BETAS, strict=False):
        means = pgd[pgd["beta"] == beta].groupby("levels")["value"].mean()
        shown = means[means.index <= 64]
        axes[0].plot(shown.index, shown, "o-", ms=3, color=colour, label=f"β = {beta:g}")
    for colour, label, table in zip(COLOURS, ("clean", "PGD 8/255"), (clean, robust), strict=False):
        long = table.melt(value_name="accuracy")
        axes[1].plot(long["beta"], long["accuracy"], "o", ms=3, color=colour, label=label)
    axes[0].set(xlabel="radius of PGD, grey levels", ylabel="accuracy")
    axes[1].set(xlabel="weight β of adversarial training")
    for axis in axes:
        axis.legend(fontsize="x-small")
    return figure


def run(study: Study) -> Outcome:
    """Accuracies by β, and the signs of masked gradients on the networks of the largest β."""
    networks = masks(study)
    defended = [found for (beta, _), found in networks.items() if beta == max(BETAS)]
    whole = pd.DataFrame(
        {"beta": beta, "seed": seed, "metric": metric, "levels": levels, "value": right.mean()}
        for (beta, seed), found in networks.items()
        for (metric, levels), right in found.items()
    )
    clean, robust = by_beta(whole, "clean", 0), by_beta(whole, "pgd", 8)
    summary = whole.pivot_table(index=["metric", "levels"], columns="beta", values="value")
    return Outcome(
        whole,
        draw(whole, clean, robust),
        {"cell": CELL, "betas": BETAS, "seeds": SEEDS, **SIZES},
        (
            f"Cell {CELL} with {SIZES['channels']} channels and one cell per stage, "
            f"{SIZES['train']} training and {SIZES['test']} test images of CIFAR-10, "
            f"{SIZES['epochs']} epochs: a sign, not the benchmark's accuracies. Signs of masked "
            f"gradients are of the {len(defended)} networks of β = {max(BETAS):g}: the paper's are "
            "trained adversarially.",
        ),
        (*findings(clean, robust), *sign_findings(defended)),
        summary.round(3).reset_index(),
    )
