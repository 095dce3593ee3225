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
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from experiments.data import BENCHMARK, DEFAULT, METRIC
from experiments.frame import Claim, Interval, Study, Within
from experiments.paper.contrasts import by_seed
from experiments.paper.measures import with_counts
from experiments.plotting import annotate, mark_values, metric_label, panels, points, score_label
from experiments.recordings import FIDELITIES, seconds_per_cell
from experiments.statistics import spearman_interval
from ntkscore.analysis.correlation import spearman

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
    alone = [values(part) for _, part in rows["fidelity/full"].groupby("seed")]
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
    by_depth = {}
    for name in at.depths:
        part = at.data.rows(name)
        part = part[part["kernel"] + "." + part["score"] == NTK_SCORE]
        by_depth[name] = by_seed(part, "score").mean(axis=1)
    scores = pd.concat(by_depth, axis=1, join="inner")
    for name in at.depths:
        about = {"setting": name, "score": NTK_SCORE, "cells": len(scores), "what": "depth"}
        yield about | ranked(scores[name], at.data.accuracy(scores.index))


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What few images and small networks keep of the order, and depth's part in the sign."""
    enough, negative, positive = Within(ENOUGH), Within(high=0), Within(0)
    asked = [
        (f"8 of 50 images keep the order by {label}", "agreement", "samples-8", score, enough)
        for score, label in SCORES.items()
    ]
    text = "half the width and a third of the images keep the NTK-score's order"
    asked.append((text, "agreement", "moderate", NTK_SCORE, enough))
    text = "with one cell per stage the NTK-score's correlation is negative"
    asked.append((text, "depth", "signs", NTK_SCORE, negative))
    text = "with five, on the same cells, it is positive"
    asked.append((text, "depth", "space", NTK_SCORE, positive))
    found = frame.set_index(["what", "setting", "score"])[[*Interval._fields]]
    for text, *place, rule in asked:
        yield Claim(text, "", Interval(*found.loc[tuple(place)]), rule, ours=True)


def figure(frame: pd.DataFrame) -> Figure:
    """A panel per score: agreement with full fidelity over seconds per cell, by setting."""
    drawn, axes = panels(len(SCORES), 0.6, together=True)
    cheaper = frame[(frame["what"] == "agreement") & (frame["setting"] != "full")]
    for axis, (score, label) in zip(axes, SCORES.items(), strict=True):
        part = cheaper[cheaper["score"] == score]
        axis.axhline(ENOUGH, color="0.7", linewidth=0.8, linestyle=":")
        axis.axhline(part["between_seeds"].iloc[0], color="0.85", linewidth=2)
        for mark, (setting, row) in zip("osD^vPX<>*", part.groupby("setting"), strict=False):
            points(axis, row["seconds"], row, label=setting, fmt=mark, ms=4, elinewidth=0.6)
        axis.set(xscale="log", title=label)
        mark_values(axis, (0.2, 0.5, 1, 2, 5))
    axes[0].set_ylabel("Spearman with full fidelity")
    annotate(drawn, axes[0], "seconds per cell, all seeds together", 5, fontsize=7)
    return drawn


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
