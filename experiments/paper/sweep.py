"""Joint kernels over β and ρ: how far their correlation moves from the clean kernel's.

K̃_all (equation 5) stands beside a robust accuracy, K_all (equation 4) beside the clean one. Any own
run will do: `ntkscore score distinct --beta 0 --beta 1 --rho 8/255 …`, then `--results RUN`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.data import BENCHMARK, METRIC
from experiments.frame import Claim, Interval, Stronger, Study, Within
from experiments.paper.contrasts import NOTABLE, SEEDS, by_seed, coefficients, reach, sure_interval
from experiments.plotting import annotate, grey_band, metric_label, panels, points, score_label
from experiments.recordings import JOINT_SCORES
from ntkscore.text import format_rho

RULES = {
    "best joint kernel ({}) is above": Stronger(NOTABLE),
    "worst joint kernel ({}) is below": Within(high=-NOTABLE),
}
SYMBOLS = {"joint_clean": "K_all", "joint_robust": "K̃_all"}


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """By score, ρ and β: the coefficient less that of the clean kernel, which is K_all at β = 0."""
    kernel = "joint_clean" if at.metric == "val_acc" else "joint_robust"
    rows = pd.concat([at.data.rows(run) for run in at.runs], ignore_index=True)
    for score in at.scores:
        part = rows[(rows["score"] == score) & rows["kernel"].isin([kernel, "clean"])]
        clean = part["kernel"] == "clean"
        part = part.assign(rho=part["rho"].mask(clean, 0.0), beta=part["beta"].mask(clean, 0.0))
        scores = by_seed(part, "rho", "beta")
        found = coefficients(scores, at.data.accuracy(scores.index, at.metric))
        for (rho, beta), samples in found.items():
            yield {
                "kernel": kernel if rho else "clean",
                "metric": at.metric,
                "score": score,
                "rho": rho,
                "beta": beta,
                "cells": len(scores),
                "seeds": scores.columns.unique("seed").size,
                "spearman": samples[0],
                **sure_interval(samples - found[0.0, 0.0])._asdict(),
            }


def best_and_worst(frame: pd.DataFrame) -> Iterator[tuple[str, pd.Series, pd.Series]]:
    """Of each score, the settings with the highest and the lowest coefficient."""
    for score, part in frame[frame["rho"] > 0].groupby("score", sort=False):
        yield str(score), *(part.loc[at] for at in (part["value"].idxmax(), part["value"].idxmin()))


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Whether the best of all settings is better than the clean kernel, and the worst worse."""
    for score, *ends in best_and_worst(frame[frame["seeds"] >= SEEDS]):
        for row, (which, rule) in zip(ends, RULES.items(), strict=True):
            at = f"β = {row['beta']:g}, ρ = {format_rho(row['rho'])}"
            text = f"{score_label(score)}: the {which} the clean one".format(at)
            yield Claim(text, "", Interval(*row[[*Interval._fields]]), rule, ours=True)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """The clean kernel's coefficient, and the settings with the highest and the lowest."""
    clean = frame[frame["rho"] == 0].set_index("score")["spearman"]
    return pd.DataFrame(
        {"score": score, "clean": clean[score]}
        | {
            name: f"{row['spearman']:.3f} (β = {row['beta']:g}, ρ = {format_rho(row['rho'])})"
            for name, row in (("highest", best), ("lowest", worst))
        }
        for score, best, worst in best_and_worst(frame)
    )


def figure(frame: pd.DataFrame) -> Figure:
    """A panel for each score: over β a curve for each ρ, with intervals at 8/255 or the largest."""
    metric, cells, seeds = frame.iloc[0][["metric", "cells", "seeds"]]
    joint = frame[frame["rho"] > 0]
    radii = np.sort(joint["rho"].unique())
    shown = radii[np.abs(radii - 8 / 255).argmin()]
    shades = plt.get_cmap("viridis_r")(np.linspace(0.1, 1, len(radii)))
    colours = dict(zip(radii, shades, strict=True))
    scores = list(joint.groupby("score", sort=False))
    drawn, axes = panels(len(scores), 0.7, together=True)
    for axis, (score, part) in zip(axes, scores, strict=True):
        grey_band(axis, NOTABLE)
        for rho, curve in part.groupby("rho"):
            style = {"color": colours[rho], "linewidth": 1}
            axis.plot(curve["beta"], curve["value"], label=f"ρ = {format_rho(rho)}", **style)
            if rho == shown:
                points(axis, curve["beta"], curve, fmt="o", markersize=2, **style)
        axis.set_title(score_label(str(score)))
    axes[0].set_ylim(-reach(joint), reach(joint))
    of = f"Spearman of {SYMBOLS[joint['kernel'].iloc[0]]} less clean"
    axes[0].set_ylabel(f"{of},\n{metric_label(metric)} accuracy")
    below = f"β, weight of adversarial training ({cells:,} cells, seeds: {seeds})"
    annotate(drawn, axes[0], below, 4)
    return drawn


SWEEP = Study(
    "Joint kernels over β and ρ",
    measure,
    fixed={"runs": ("radii",), "scores": JOINT_SCORES, "metric": METRIC},
    claims=claims,
    figure=figure,
    table=table,
    note="An interval holds every seed's own difference; fewer than three decide nothing. The best "
    "and the worst setting are those of all that were tried, which favours them. "
    "`metric=val_acc` asks for clean accuracy.",
    needs=(BENCHMARK,),
)
