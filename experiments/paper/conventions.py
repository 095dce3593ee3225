"""The same scores under other conventions: which matter, and which turn the sign.

Every BN mode, output, parameter set, attack and initialiser alone against the default, BN mode and
initialiser together, and presets that do what their sources' code does; what a source leaves open
is as in the default. A seeded sample of cells, one seed.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments import recordings
from experiments.data import BENCHMARK, METRIC, bootstrap
from experiments.frame import Claim, Interval, Study, Within
from experiments.plotting import annotate, metric_label, panels, points, score_label
from experiments.statistics import spearman_interval
from ntkscore.analysis.correlation import spearman
from ntkscore.analysis.frames import score_table
from ntkscore.analysis.paired import difference

SCORES = (
    "clean.frobenius",
    "robust.frobenius",
    "robust.lambda_min",
    "robust.lambda_min_normalized",
    "clean.condition",
)
CHOICES = ("bn", "init", "output", "parameters", "attack")
SHIFT = 0.05
"""Change of a Spearman coefficient that matters if the whole interval lies beyond."""
KINDS = {"turns the sign": "C1", "moves it by more than 0.05": "C0", "neither": "0.6"}
_HARDLY = Within(-SHIFT, SHIFT)
CLAIMS = {
    "--bn init": ("initial statistics lower the coefficient of", Within(high=-SHIFT)),
    "--bn instance": ("each image's own statistics raise the coefficient of", Within(SHIFT)),
    "--attack pgd": ("PGD in place of FGSM hardly moves the coefficient of", _HARDLY),
    "--attack apgd": ("APGD in place of FGSM hardly moves the coefficient of", _HARDLY),
}


def options(configuration: dict[str, Any], usual: dict[str, Any]) -> str:
    """A convention as the options of `ntkscore score` that differ from the default's."""
    different = [name for name in CHOICES if configuration[name] != usual[name]]
    return " ".join(f"--{name} {configuration[name]}" for name in different) or "default"


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """By convention and score: the coefficient, and how the scores differ from the default's."""
    runs = {name: at.data.result_set(name) for name in (*at.recordings, *at.bases)}
    rows = {name: run.read() for name, run in runs.items()}
    if at.alike is not None:
        pairs = rows[at.alike][["cell", "seed"]].drop_duplicates()
        rows = {name: each.merge(pairs) for name, each in rows.items()}
    tables = {name: score_table(each) for name, each in rows.items()}
    for recording in at.recordings:
        name = recording.removeprefix("conventions/")
        base = next((base for base in at.bases if recording.startswith(base)), at.bases[0])
        title = options(runs[recording].configuration, runs[base].configuration)
        title = title if base == at.bases[0] else f"tiny: {title}"
        for score in at.scores:
            both = pd.concat([tables[recording][score], tables[base][score]], axis=1).dropna()
            values, before = both.to_numpy().T
            accuracy, how = at.data.accuracy(both.index), bootstrap(both.index)
            now, then = (spearman_interval(s, accuracy, both.index) for s in (values, before))
            gap = difference(values, before, accuracy, **how)
            yield {
                "convention": f"{name}: {title}" if name in recordings.PRESETS else title,
                "score": score,
                "cells": len(both),
                "failed": int(tables[recording][score].isna().sum()),
                **now._asdict(),
                "change": gap.value,
                "change_low": gap.low,
                "change_high": gap.high,
                "ratio": np.median(values / before),
                "agreement": spearman(values, before),
                "kind": kind(now, then, Interval(gap.value, gap.low, gap.high)),
            }


def kind(now: Interval, then: Interval, change: Interval) -> str:
    """What a convention does to a coefficient, beyond doubt."""
    turned, moved, neither = KINDS
    if (now.low > 0 and then.high < 0) or (now.high < 0 and then.low > 0):
        return turned
    return moved if change.low > SHIFT or change.high < -SHIFT else neither


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What conventions do to the norm and to λ_min of the kernel at attacked images."""
    for convention, (what, rule) in CLAIMS.items():
        if convention not in set(frame["convention"]):
            continue
        for score in ("robust.frobenius", "robust.lambda_min"):
            (row,) = frame[(frame["convention"] == convention) & (frame["score"] == score)].iloc
            found = Interval(*row[["change", "change_low", "change_high"]])
            yield Claim(f"{convention}: {what} {score_label(score)}", "", found, rule, ours=True)


def figure(frame: pd.DataFrame) -> Figure:
    """A panel per score: coefficients with intervals by convention."""
    names = sorted(
        frame["convention"].unique(), key=lambda n: ("tiny" in n, ": " in n, n.count("--"), n)
    )
    scores = frame["score"].unique()
    drawn, axes = panels(len(scores), 0.48, together=True)
    drawn.set_figheight(0.9 + 0.15 * len(names))
    for axis, score in zip(axes, scores, strict=True):
        part = frame[frame["score"] == score].set_index("convention")
        axis.axvline(0, color="0.8", linewidth=0.8)
        axis.axvline(part.loc["default", "value"], color="C2", linewidth=0.8, linestyle=":")
        for what, colour in KINDS.items():
            rows = part[part["kind"] == what]
            style = {"fmt": "x" if colour == "C1" else "o", "markersize": 3, "color": colour}
            heights = [names.index(name) for name in rows.index]
            points(axis, heights, rows, label=what, across=True, **style)
        axis.set_title(score_label(score), fontsize=7)
        axis.set_xlim(-1, 1)
    axes[0].set_yticks(range(len(names)), names, fontsize=6)
    axes[0].invert_yaxis()
    annotate(drawn, axes[0], f"Spearman with {metric_label(METRIC)} accuracy", 3)
    return drawn


CONVENTIONS = Study(
    "The same scores under other conventions",
    measure,
    fixed={
        "recordings": tuple(recordings.CONVENTIONS),
        "bases": ("conventions/default", "conventions/tiny"),
        "alike": None,
        "scores": SCORES,
    },
    claims=claims,
    figure=figure,
    note="Dotted: the default. What turns or moves a coefficient does so beyond doubt, by the "
    "interval of the difference; tiny is a smaller fidelity, compared with its own default.",
    needs=(BENCHMARK,),
)

ATTACKS = replace(
    CONVENTIONS,
    title="The same scores under stronger attacks",
    fixed={
        "recordings": ("space", "space-pgd", "space-apgd"),
        "bases": ("space",),
        "alike": "space-apgd",
        "scores": (*SCORES[1:4], "twice.frobenius", "twice.lambda_min_normalized"),
    },
    note="The default is FGSM; PGD takes 7 steps, APGD 100 and follows the log-odds. 200 cells, "
    "the same images and weights, two seeds of the three that were planned.",
)
