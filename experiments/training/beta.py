"""R2: a small cell's clean and robust accuracy, by β."""

from collections.abc import Iterator

import jax
import pandas as pd

from experiments.plotting import COLOURS, panels
from experiments.study import Finding, Outcome, Study, verdict
from experiments.training.setting import SIZES, SmallTraining
from ntkscore.training.evaluation import CHECKS, evaluate

CELL, SEEDS, BETAS = "341231", (0, 1, 2), (0.0, 0.5, 1.0)
RADII = (3, 8, 32, 255)
"""Of PGD, in grey levels."""
APART = 0.05
"""By which PGD accuracy at β = 1 is to exceed that at β = 0."""


def interval(values: pd.Series) -> str:
    """Mean, least and largest of the seeds."""
    return f"{values.mean():.3f} [{values.min():.3f}, {values.max():.3f}]"


def rows(study: Study) -> Iterator[pd.DataFrame]:
    """All accuracies of each β and seed on the test images."""
    images = SmallTraining(study)
    for beta in BETAS:
        fitted = images.fit(CELL, beta, SEEDS)
        for place, seed in enumerate(SEEDS):
            state = jax.tree.map(lambda leaf, place=place: leaf[place], fitted.state)
            model = images.space.trained_model(CELL, state.params, state.statistics)
            yield evaluate(model, *images.test, radii=RADII).assign(beta=beta, seed=seed)


def run(study: Study) -> Outcome:
    """Accuracies by β, and the signs of masked gradients on every network."""
    frame = pd.concat(rows(study), ignore_index=True)
    whole = frame[frame["class"] == -1]
    whole = whole.assign(levels=(whole["rho"] * 255).round())
    clean, robust = (
        whole[(whole["metric"] == metric) & (whole["levels"] == levels)].pivot(
            index="seed", columns="beta", values="value"
        )
        for metric, levels in (("clean", 0), ("pgd", 8))
    )
    low, high = min(BETAS), max(BETAS)
    gain, cost = robust[high] - robust[low], clean[high] - clean[low]
    clean_text, robust_text = (
        ", ".join(f"β = {beta:g}: {interval(table[beta])}" for beta in BETAS)
        for table in (clean, robust)
    )
    findings = [
        Finding(
            "PGD 8/255 accuracy is larger at β = 1 than at β = 0",
            f"by more than {APART:g} in every seed",
            robust_text,
            verdict((gain > APART).all()),
            f"differences {interval(gain)}",
        ),
        Finding(
            "clean accuracy is not larger at β = 1 than at β = 0",
            "in every seed",
            clean_text,
            verdict((cost <= 0).all()),
            f"differences {interval(cost)}",
        ),
    ]
    for name, text in CHECKS.items():
        holds = whole[whole["metric"] == name]["value"]
        if len(holds):
            findings.append(
                Finding(
                    text,
                    "holds (Table 4)",
                    f"in {int(holds.sum())} of {len(holds)} networks",
                    verdict(holds.all()),
                    "test images",
                )
            )
    figure, axes = panels(2, 1.1)
    pgd = whole[whole["metric"] == "pgd"]
    for colour, beta in enumerate(BETAS):
        means = pgd[pgd["beta"] == beta].groupby("rho")["value"].mean()
        shown = means[means.index <= 64.5 / 255]
        label = f"β = {beta:g}"
        axes[0].plot(shown.index * 255, shown, "o-", ms=3, color=COLOURS[colour], label=label)
    for colour, (label, table) in enumerate((("clean", clean), ("PGD 8/255", robust))):
        long = table.melt(value_name="accuracy")
        axes[1].plot(long["beta"], long["accuracy"], "o", ms=3, color=COLOURS[colour], label=label)
    axes[0].set(xlabel="radius of PGD, grey levels", ylabel="accuracy")
    axes[1].set(xlabel="weight β of adversarial training")
    for axis in axes:
        axis.legend(fontsize="x-small")
    summary = whole.pivot_table(index=["metric", "levels"], columns="beta", values="value")
    return Outcome(
        frame,
        figure,
        {"cell": CELL, "betas": BETAS, "seeds": SEEDS, **SIZES},
        (
            f"Cell {CELL} with {SIZES['channels']} channels and one cell per stage, "
            f"{SIZES['train']} training and {SIZES['test']} test images of CIFAR-10, "
            f"{SIZES['epochs']} epochs: a sign, not the benchmark's accuracies.",
        ),
        tuple(findings),
        summary.round(3).reset_index(),
    )
