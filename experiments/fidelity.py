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
from ntkscore.selection import baselines, score_table

DATASET = "cifar10"
METRIC = "val_pgd_8_acc"
FULL = "full"
SCORES = (
    "robust.frobenius",
    "robust.lambda_min",
    "robust.lambda_min_normalized",
    DEFAULT,
)
ENOUGH = 0.95


def values(rows: pd.DataFrame) -> pd.DataFrame:
    """The scores of `SCORES`, a line per cell, means over the seeds in the rows."""
    scores = score_table(rows)
    scores = scores.join(baselines(list(scores.index)))
    return scores.assign(**{DEFAULT: combined(scores, DEFAULT.split("+"))})[list(SCORES)]


def spearman(a: pd.Series, b: pd.Series) -> float:
    """Over the cells that both have."""
    both = pd.concat([a, b], axis=1).dropna().to_numpy()
    return float(Pair(both[:, 0], both[:, 1]).spearman())


def ceiling(rows: pd.DataFrame) -> dict[str, float]:
    """How well one seed's ranking agrees with another's at full fidelity, on average."""
    alone = [values(part) for part in single_seeds(rows).values()]
    pairs = list(combinations(alone, 2))
    return {
        name: float(np.mean([spearman(a[name], b[name]) for a, b in pairs])) if pairs else np.nan
        for name in SCORES
    }


def compare(study: Study) -> Iterator[dict[str, Any]]:
    """A line per setting, number of seeds and score."""
    full_rows = study.rows(f"fidelity/{FULL}")
    full, limits = values(full_rows), ceiling(full_rows)
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
                line |= {"score": name, "cells": len(own), "agreement": spearman(own, full[name])}
                line |= {"seed_ceiling": limits[name], "spearman": held.spearman}
                line |= {"spearman_low": held.spearman_low, "spearman_high": held.spearman_high}
                yield line | {"seconds": cost * count}


def draw(frame: pd.DataFrame) -> Figure:
    """A panel per score: agreement with full fidelity over seconds per cell, a mark per setting."""
    figure, axes = plt.subplots(
        1, len(SCORES), figsize=(2.4 * COLUMN, 0.95 * COLUMN), sharex=True, sharey=True
    )
    most = frame["seeds"].max()
    shown = frame[(frame["seeds"] == most) & (frame["setting"] != FULL)]
    for axis, score in zip(axes, SCORES, strict=True):
        axis.axhline(ENOUGH, color="0.7", linewidth=0.8, linestyle=":")
        axis.axhline(
            frame.loc[frame["score"] == score, "seed_ceiling"].iloc[0], color="0.85", linewidth=2
        )
        for place, (setting, line) in enumerate(shown[shown["score"] == score].groupby("setting")):
            marker = "osD^vPX<>*h"[place % 11]
            axis.plot(line["seconds"], line["agreement"], marker, markersize=5, label=setting)
        axis.set_xscale("log")
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
        f"{frame['cells'].max()} cells; agreement is of the means over {most} seeds with full "
        f"fidelity's means over the same seeds; grey bands: full fidelity's single seeds among "
        "themselves. Images differ between settings only in number: a setting's are the first of "
        "the full set's."
    )
    for score in SCORES:
        part = frame[(frame["score"] == score) & (frame["setting"] != FULL)]
        full = frame[(frame["score"] == score) & (frame["setting"] == FULL)]
        good = part[(part["agreement"] >= ENOUGH) & part["seconds"].notna()]
        best = part.loc[part["agreement"].idxmax()]
        ceiling_text = (
            f"one seed of full fidelity agrees with another at {part['seed_ceiling'].iloc[0]:.2f}"
        )
        if len(good):
            cheap = good.loc[good["seconds"].idxmin()]
            found = (
                f"cheapest with at least {ENOUGH}: {cheap['setting']}, {cheap['seeds']} seeds, "
                f"{cheap['seconds']:.2f} s per cell ({cheap['agreement']:.3f})"
            )
        else:
            found = (
                f"no cheaper setting reaches {ENOUGH}; the nearest is {best['setting']}, "
                f"{best['seeds']} seeds ({best['agreement']:.3f})"
            )
        signs = part[(part["seeds"] == most)]
        wrong = signs[np.sign(signs["spearman"]) != np.sign(full["spearman"].iloc[-1])]
        flipped = ", ".join(wrong["setting"]) or "none"
        yield (
            f"{score}: {found}; {ceiling_text}; Spearman with {metric_label(METRIC)} accuracy at "
            f"full fidelity {full['spearman'].iloc[-1]:+.2f}, another sign at: {flipped}."
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
        "recordings": {name: study.result_set(name).configuration for name in FIDELITIES},
    }
    return Outcome(frame, draw(frame), configuration, tuple(remarks(frame)), summary=summary(frame))
