"""Agreement, sign and cost of cheaper settings, compared with full fidelity.

A seeded sample of cells. Full fidelity is 50 images, C = 16 and five cells per stage; a setting's
images are the first of the full set's. Agreement is Spearman's coefficient of a setting's mean over
its seeds with full fidelity's mean. On more cells: the NTK-score's sign by depth.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from experiments.data import BENCHMARK, METRIC, single_seeds
from experiments.frame import Claim, Interval, Study, Within
from experiments.paper.contrasts import by_seed
from experiments.paper.measures import with_counts
from experiments.plotting import COLUMN, annotate, metric_label, points, score_label
from experiments.recordings import FIDELITIES, seconds_per_cell
from experiments.statistics import spearman_interval
from ntkscore.analysis.correlation import spearman
from ntkscore.analysis.score_names import DEFAULT

NTK_SCORE = "robust.frobenius"
SCORES = {
    NTK_SCORE: score_label(NTK_SCORE),
    "robust.lambda_min": score_label("robust.lambda_min"),
    "robust.lambda_min_normalized": score_label("robust.lambda_min_normalized"),
    str(DEFAULT): "the default",
}
SIZES = {"samples": "images", "channels": "C", "cells_per_stage": "cells per stage"}
ENOUGH = 0.95
"""Agreement with full fidelity that is called enough."""


def values(rows: pd.DataFrame) -> pd.DataFrame:
    """The scores of `SCORES`, means over the seeds in the rows, a row per cell."""
    scores = with_counts(rows)
    return scores.assign(**{str(DEFAULT): DEFAULT.of(scores)})[list(SCORES)]


def ranked(scores: pd.Series, target: ArrayLike) -> dict[str, Any]:
    """Spearman coefficient with an accuracy, or with full fidelity in its place."""
    return spearman_interval(scores, target, scores.index)._asdict()


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """By setting and score: agreement with full fidelity, and correlation with accuracy."""
    rows = {name: at.data.rows(name) for name in at.recordings}
    full = values(rows["fidelity/full"])
    alone = [values(part) for part in single_seeds(rows["fidelity/full"])]
    for name, part in rows.items():
        result_set, means = at.data.result_set(name), values(part)
        about = {SIZES[key]: result_set.configuration[key] for key in SIZES}
        about |= {"setting": name.removeprefix("fidelity/"), "seeds": part["seed"].nunique()}
        about["seconds"] = seconds_per_cell(result_set) * about["seeds"]
        for score in SCORES:
            both = pd.concat([means[score], full[score]], axis=1).dropna()
            pairs = combinations(alone, 2)
            between = np.mean([spearman(a[score], b[score]) for a, b in pairs])
            about |= {"score": score, "cells": len(both), "between_seeds": between}
            yield about | {"what": "agreement"} | ranked(both.iloc[:, 0], both.iloc[:, 1])
            scored = means[score].dropna()
            accuracy = at.data.accuracy(scored.index)
            yield about | {"what": "accuracy"} | ranked(scored, accuracy)
    kernel, _, score = NTK_SCORE.partition(".")
    by_depth = []
    for rows in map(at.data.rows, at.depths):
        part = rows[(rows["kernel"] == kernel) & (rows["score"] == score)]
        by_depth.append(by_seed(part, "score").mean(axis=1))
    small, deep = by_depth
    cells = small.index.intersection(deep.index)
    for name, scores in zip(at.depths, (small, deep), strict=True):
        found = ranked(scores[cells], at.data.accuracy(cells))
        about = {"setting": name, "score": NTK_SCORE, "cells": len(cells), "what": "depth"}
        yield about | found


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What few images and small networks keep of the order, and depth's part in the sign."""

    def found(what: str, setting: str, score: str = NTK_SCORE) -> Interval:
        rows = frame[(frame["what"] == what) & (frame["setting"] == setting)]
        return Interval(*rows.set_index("score").loc[score, [*Interval._fields]])

    for score, label in SCORES.items():
        text = f"8 of 50 images keep the order by {label}"
        yield Claim(text, "", found("agreement", "samples-8", score), Within(ENOUGH), ours=True)
    text = "half the width and a third of the images keep the NTK-score's order"
    yield Claim(text, "", found("agreement", "moderate"), Within(ENOUGH), ours=True)
    for setting, text, rule in (
        (
            "signs",
            "with one cell per stage the NTK-score's correlation is negative",
            Within(high=0),
        ),
        ("space", "with five, on the same cells, it is positive", Within(0)),
    ):
        yield Claim(text, "", found("depth", setting), rule, ours=True)


def figure(frame: pd.DataFrame) -> Figure:
    """A panel per score: agreement with full fidelity over seconds per cell, by setting."""
    size = (2.4 * COLUMN, 1.1 * COLUMN)
    figure, axes = plt.subplots(1, len(SCORES), figsize=size, sharex=True, sharey=True)
    cheaper = frame[(frame["what"] == "agreement") & (frame["setting"] != "full")]
    for axis, (score, label) in zip(axes, SCORES.items(), strict=True):
        part = cheaper[cheaper["score"] == score]
        axis.axhline(ENOUGH, color="0.7", linewidth=0.8, linestyle=":")
        axis.axhline(part["between_seeds"].iloc[0], color="0.85", linewidth=2)
        for place, (setting, row) in enumerate(part.groupby("setting")):
            style = {"fmt": "osD^vPX<>*"[place], "markersize": 4, "elinewidth": 0.6}
            points(axis, row["seconds"], row, label=setting, **style)
        axis.set_xscale("log")
        axis.set_xticks((0.2, 0.5, 1, 2, 5), ("0.2", "0.5", "1", "2", "5"))
        axis.set_xticks([], minor=True)
        axis.set_title(label)
    axes[0].set_ylabel("Spearman with full fidelity")
    annotate(figure, axes[0], "seconds per cell, all seeds together", 5, fontsize=7)
    return figure


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """By setting, its cost and the agreement of every score, the dearest first."""
    part = frame[frame["what"] == "agreement"]
    keys = ["setting", *SIZES.values(), "seconds"]
    wide = part.pivot(index=keys, columns="score", values="value")[list(SCORES)]
    wide = wide.rename(columns=SCORES).reset_index().sort_values("seconds", ascending=False)
    return wide.astype(dict.fromkeys(SIZES.values(), int))


FIDELITY = Study(
    "Cheaper settings against full fidelity: agreement, sign and cost",
    measure,
    fixed={"recordings": tuple(FIDELITIES), "depths": ("signs", "space")},
    claims=claims,
    figure=figure,
    table=table,
    note="Dotted: .95; grey: one seed of full fidelity with another. The default's agreement is "
    "helped by the parameter count, the same on both sides. The depth of the scored network "
    f"decides the sign of the NTK-score's correlation with {metric_label(METRIC)} accuracy.",
    needs=(BENCHMARK,),
)
