"""Agreement, sign and cost of cheaper settings, compared with full fidelity.

A seeded sample of cells. Full fidelity is 50 images, C = 16 and five cells per stage.
"""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from experiments.ours.measures import with_counts
from experiments.plotting import COLUMN, annotate, metric_label, score_label
from experiments.recordings import FIDELITIES, seconds_per_cell
from experiments.study import (
    DATASET,
    METRIC,
    Outcome,
    Study,
    bootstrap,
    interval,
    single_seeds,
)
from ntkscore.analysis.agreement import Agreement, agreement
from ntkscore.analysis.correlation import spearman
from ntkscore.analysis.frames import score_table
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.measures.declaration import direction_of

BASE, NTK_SCORE = "full", "robust.frobenius"
SCORES = (
    NTK_SCORE,
    "robust.lambda_min",
    "robust.lambda_min_normalized",
    str(DEFAULT),
)
SIZES = ("samples", "channels", "cells_per_stage")
ENOUGH = 0.95
"""Agreement with full fidelity that is called enough."""
TICKS = (0.2, 0.5, 1, 2)


def values(rows: pd.DataFrame) -> pd.DataFrame:
    """The scores of `SCORES`, means over the seeds in the rows, a row per cell."""
    scores = with_counts(rows)
    return scores.assign(**{str(DEFAULT): DEFAULT.of(scores)})[list(SCORES)]


def between_seeds(rows: pd.DataFrame) -> dict[str, float]:
    """Mean agreement between the rankings of two single seeds, by score."""
    alone = [values(part) for part in single_seeds(rows)]
    pairs = list(combinations(alone, 2))
    return {
        name: float(np.mean([spearman(a[name], b[name]) for a, b in pairs])) if pairs else np.nan
        for name in SCORES
    }


def ranked(
    scores: ArrayLike, accuracy: ArrayLike, cells: pd.Index, seed: int, direction: int = +1
) -> Agreement:
    """Agreement over some cells, with an interval over the functions that they compute."""
    return agreement(scores, accuracy, direction, **bootstrap(cells, seed))


def compare(study: Study) -> Iterator[dict[str, object]]:
    """Agreement with full fidelity and with accuracy, a row per setting, seed count and score."""
    full_rows = study.rows(f"fidelity/{BASE}")
    full, limits = values(full_rows), between_seeds(full_rows)
    for recording in FIDELITIES:
        result_set = study.result_set(recording)
        rows, configuration = study.rows(recording), result_set.configuration
        seeds = sorted(rows["seed"].unique())
        cost = seconds_per_cell(result_set)
        for count in range(1, len(seeds) + 1):
            means = values(rows[rows["seed"].isin(seeds[:count])])
            for name in SCORES:
                scores = means[name].dropna()
                both = pd.concat([scores, full[name]], axis=1).dropna()
                # Full fidelity takes the place of the accuracy.
                ranking = ranked(both.iloc[:, 0], both.iloc[:, 1], both.index, study.seed)
                accuracy = study.accuracy(scores.index)
                result = ranked(scores, accuracy, scores.index, study.seed, direction_of(name))
                yield {
                    "setting": recording.removeprefix("fidelity/"),
                    "seeds": count,
                    **{key: configuration[key] for key in SIZES},
                    "score": name,
                    "cells": len(scores),
                    "agreement": ranking.spearman,
                    "agreement_low": ranking.spearman_low,
                    "agreement_high": ranking.spearman_high,
                    "between_seeds": limits[name],
                    "spearman": result.spearman,
                    "spearman_low": result.spearman_low,
                    "spearman_high": result.spearman_high,
                    "seconds": cost * count,
                }


def draw(frame: pd.DataFrame) -> Figure:
    """A panel per score: agreement with full fidelity over seconds per cell, by setting."""
    size = (2.4 * COLUMN, 0.95 * COLUMN)
    figure, axes = plt.subplots(1, len(SCORES), figsize=size, sharex=True, sharey=True)
    most = frame["seeds"].max()
    between = frame.groupby("score")["between_seeds"].first()
    cheaper = frame[(frame["seeds"] == most) & (frame["setting"] != BASE)]
    for axis, score in zip(axes, SCORES, strict=True):
        axis.axhline(ENOUGH, color="0.7", linewidth=0.8, linestyle=":")
        axis.axhline(between[score], color="0.85", linewidth=2)
        part = cheaper[cheaper["score"] == score]
        for place, (setting, mark) in enumerate(part.groupby("setting")):
            marker = "osD^vPX<>*h"[place % 11]
            axis.plot(mark["seconds"], mark["agreement"], marker, markersize=5, label=setting)
        axis.set_xscale("log")
        axis.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        axis.set_xticks([], minor=True)
        axis.set_title(score_label(score), fontsize=7)
    axes[0].set_ylabel("Spearman with full fidelity")
    annotate(figure, axes[0], f"seconds per cell, {most} seeds together", 5, fontsize=7)
    return figure


def remarks(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the cheapest setting that agrees, and on the sign, for every score."""
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
        between = part["between_seeds"].iloc[0]
        if len(good):
            one = good.loc[good["seconds"].idxmin()]
            reach, cost = f"cheapest with at least {ENOUGH}:", f", {one['seconds']:.2f} s per cell"
        else:
            one = part.loc[part["agreement"].idxmax()]
            reach, cost = f"no cheaper setting reaches {ENOUGH}; the nearest is", ""
        agreed = interval(*one[["agreement", "agreement_low", "agreement_high"]])
        setting_text = f"{reach} {one['setting']}, {one['seeds']} seeds{cost} ({agreed})"
        signs = part[part["seeds"] == most]
        side = np.sign(full["spearman"].iloc[-1])
        wrong = signs[(signs[["spearman_low", "spearman_high"]] * side < 0).all(axis=1)]
        flipped = ", ".join(wrong["setting"]) or "none"
        yield (
            f"{score}: {setting_text}; one seed of full fidelity agrees "
            f"with another at {between:.2f}; Spearman with {metric_label(METRIC)} accuracy at "
            f"full fidelity {full['spearman'].iloc[-1]:+.2f}; with these cells the other sign is "
            f"beyond doubt at: {flipped}."
        )


def sign_at_small_fidelity(study: Study) -> str:
    """A sentence on the NTK-score's sign at one and at five cells per stage, on more cells."""
    small, deep = (
        score_table(rows[rows["kernel"] == "robust"])[NTK_SCORE]
        for rows in (study.rows("signs"), study.rows("space"))
    )
    small = small.dropna()
    cells = small.index.intersection(deep.dropna().index)
    accuracy = study.accuracy(cells)
    one, five = (ranked(scores[cells], accuracy, cells, study.seed) for scores in (small, deep))
    at_one, at_five = (
        interval(of.spearman, of.spearman_low, of.spearman_high, "+.3f") for of in (one, five)
    )
    return (
        f"On {len(cells)} cells {NTK_SCORE} has Spearman {at_one} with {metric_label(METRIC)} "
        f"accuracy at the small setting, of one cell per stage, and {at_five} with five cells per "
        "stage: the depth of the scored network decides the sign."
    )


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Agreement and correlation of every score, and cost, a row per setting with all its seeds."""
    most = frame[frame["seeds"] == frame["seeds"].max()]
    keys = ["setting", *SIZES, "seconds"]
    wide = most.pivot(index=keys, columns="score", values=["agreement", "spearman"])
    wide.columns = [
        score if kind == "agreement" else f"{score}, {metric_label(METRIC)}"
        for kind, score in wide.columns
    ]
    return wide.reset_index().sort_values("seconds", ascending=False)


def run(study: Study) -> Outcome:
    """Compare cheaper settings with full fidelity on one sample of cells."""
    frame = pd.DataFrame(compare(study))
    configuration = {
        "dataset": DATASET,
        "metric": METRIC,
        "recordings": study.configurations((*FIDELITIES, "signs", "space")),
    }
    sentences = (*remarks(frame), sign_at_small_fidelity(study))
    return Outcome(frame, draw(frame), configuration, sentences, summary=summary(frame))
