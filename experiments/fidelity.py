"""Agreement, sign and cost of cheaper settings: which rank as full fidelity does.

A seeded sample of cells. Full fidelity is 50 images, C = 16 and five cells per stage.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.contrasts import Pair, single_seeds
from experiments.recordings import FIDELITIES, seconds_per_cell
from experiments.study import Outcome, Study
from experiments.style import COLUMN, metric_label, score_label
from ntkscore.agreement import agreement
from ntkscore.ranking import DEFAULT, combined, direction_of
from ntkscore.selection import score_table, with_baselines

DATASET = "cifar10"
METRIC = "val_pgd_8_acc"
BASE = "full"
SCORES = (
    "robust.frobenius",
    "robust.lambda_min",
    "robust.lambda_min_normalized",
    DEFAULT,
)
ENOUGH = 0.95
RESAMPLES = 500
TICKS = (0.2, 0.5, 1, 2)


def values(rows: pd.DataFrame) -> pd.DataFrame:
    """The scores of `SCORES`, a line per cell, means over the seeds in the rows."""
    scores = with_baselines(score_table(rows))
    return scores.assign(**{DEFAULT: combined(scores, DEFAULT.split("+"))})[list(SCORES)]


def spearman(a: pd.Series, b: pd.Series) -> float:
    """Over the cells that both have."""
    both = pd.concat([a, b], axis=1).dropna().to_numpy()
    return float(Pair(both[:, 0], both[:, 1]).spearman())


def agreement_interval(a: pd.Series, b: pd.Series, seed: int) -> tuple[float, float]:
    """95 % of `spearman` over resampled cells."""
    both = pd.concat([a, b], axis=1).dropna().to_numpy()
    drawn = np.random.default_rng(seed).integers(len(both), size=(RESAMPLES, len(both)))
    low, high = np.quantile(Pair(both[:, 0], both[:, 1]).spearman(drawn), [0.025, 0.975])
    return float(low), float(high)


def between_seeds(rows: pd.DataFrame) -> dict[str, float]:
    """How well one seed's ranking agrees with another's at full fidelity, on average."""
    alone = [values(part) for part in single_seeds(rows).values()]
    pairs = list(combinations(alone, 2))
    return {
        name: float(np.mean([spearman(a[name], b[name]) for a, b in pairs])) if pairs else np.nan
        for name in SCORES
    }


def compare(study: Study) -> Iterator[dict[str, Any]]:
    """A line per setting, number of seeds and score."""
    full_rows = study.rows(f"fidelity/{BASE}")
    full, limits = values(full_rows), between_seeds(full_rows)
    for recording in FIDELITIES:
        result_set = study.result_set(recording)
        rows, configuration = study.rows(recording), result_set.configuration
        seeds = sorted(single_seeds(rows))
        cost = seconds_per_cell(result_set)
        for count in range(1, len(seeds) + 1):
            found = values(rows[rows["seed"].isin(seeds[:count])])
            for name in SCORES:
                own = found[name].dropna()
                accuracy = study.table.accuracies(DATASET, METRIC, [int(c) for c in own.index])
                held = agreement(own, accuracy, direction_of(name), seed=study.seed)
                line = {"setting": recording.removeprefix("fidelity/"), "seeds": count}
                line |= {
                    key: configuration[key] for key in ("samples", "channels", "cells_per_stage")
                }
                low, high = agreement_interval(own, full[name], study.seed)
                line |= {"score": name, "cells": len(own), "agreement": spearman(own, full[name])}
                line |= {"agreement_low": low, "agreement_high": high}
                line |= {"between_seeds": limits[name], "spearman": held.spearman}
                line |= {"spearman_low": held.spearman_low, "spearman_high": held.spearman_high}
                yield line | {"seconds": cost * count}


def draw(frame: pd.DataFrame) -> Figure:
    """A panel per score: agreement with full fidelity over seconds per cell, a mark per setting."""
    figure, axes = plt.subplots(
        1, len(SCORES), figsize=(2.4 * COLUMN, 0.95 * COLUMN), sharex=True, sharey=True
    )
    most = frame["seeds"].max()
    shown = frame[(frame["seeds"] == most) & (frame["setting"] != BASE)]
    for axis, score in zip(axes, SCORES, strict=True):
        axis.axhline(ENOUGH, color="0.7", linewidth=0.8, linestyle=":")
        axis.axhline(
            frame.loc[frame["score"] == score, "between_seeds"].iloc[0], color="0.85", linewidth=2
        )
        for place, (setting, line) in enumerate(shown[shown["score"] == score].groupby("setting")):
            marker = "osD^vPX<>*h"[place % 11]
            axis.plot(line["seconds"], line["agreement"], marker, markersize=5, label=setting)
        axis.set_xscale("log")
        axis.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        axis.set_xticks([], minor=True)
        axis.set_title(score_label(score), fontsize=7)
    axes[0].set_ylabel("Spearman with full fidelity")
    figure.supxlabel(f"seconds per cell, {most} seeds together", fontsize="medium")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=7)
    return figure


def remarks(frame: pd.DataFrame) -> Iterator[str]:
    """The cheapest setting that agrees, for every score; and what limits agreement."""
    most = frame["seeds"].max()
    yield (
        f"{frame['cells'].max()} cells; agreement is Spearman of the mean over some seeds with "
        f"full fidelity's mean over all {most}; grey bands: one full-fidelity seed with another. "
        "A setting's images are the first of the full set's. The sum's agreement is helped by the "
        "parameter count, which is the same on both sides."
    )
    for score in SCORES:
        part = frame[(frame["score"] == score) & (frame["setting"] != BASE)]
        full = frame[(frame["score"] == score) & (frame["setting"] == BASE)]
        good = part[(part["agreement"] >= ENOUGH) & part["seconds"].notna()]
        best = part.loc[part["agreement"].idxmax()]
        between = part["between_seeds"].iloc[0]
        if len(good):
            cheap = good.loc[good["seconds"].idxmin()]
            found = (
                f"cheapest with at least {ENOUGH}: {cheap['setting']}, {cheap['seeds']} seeds, "
                f"{cheap['seconds']:.2f} s per cell ({cheap['agreement']:.3f} "
                f"[{cheap['agreement_low']:.3f}, {cheap['agreement_high']:.3f}])"
            )
        else:
            found = (
                f"no cheaper setting reaches {ENOUGH}; the nearest is {best['setting']}, "
                f"{best['seeds']} seeds ({best['agreement']:.3f} "
                f"[{best['agreement_low']:.3f}, {best['agreement_high']:.3f}])"
            )
        signs = part[(part["seeds"] == most)]
        side = np.sign(full["spearman"].iloc[-1])
        wrong = signs[(signs[["spearman_low", "spearman_high"]] * side < 0).all(axis=1)]
        flipped = ", ".join(wrong["setting"]) or "none"
        yield (
            f"{score}: {found}; one seed of full fidelity agrees "
            f"with another at {between:.2f}; Spearman with {metric_label(METRIC)} accuracy at "
            f"full fidelity {full['spearman'].iloc[-1]:+.2f}, the other sign beyond doubt at: "
            f"{flipped}."
        )


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A line per setting with all its seeds: agreement and correlation of every score, and cost."""
    most = frame[frame["seeds"] == frame["seeds"].max()]
    keys = ["setting", "samples", "channels", "cells_per_stage", "seconds"]
    wide = most.pivot(index=keys, columns="score", values=["agreement", "spearman"])
    wide.columns = [
        score if kind == "agreement" else f"{score}, {metric_label(METRIC)}"
        for kind, score in wide.columns
    ]
    return wide.reset_index().sort_values("seconds", ascending=False)


def run(study: Study) -> Outcome:
    """Hold cheaper settings against full fidelity."""
    frame = pd.DataFrame(compare(study))
    configuration = {
        "dataset": DATASET,
        "metric": METRIC,
        "recordings": study.configurations(FIDELITIES),
    }
    return Outcome(frame, draw(frame), configuration, tuple(remarks(frame)), summary=summary(frame))
