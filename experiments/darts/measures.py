"""Every train-free measure of 223 DARTS cells against their accuracy, and given counts.

Kendall's τ-b with an interval from a bootstrap over cells; the partial Spearman coefficient given
counts, `experiments.ours.equal_counts.partials`; and τ within tenths of the cells by size, among
networks of nearly equal parameters.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import kendalltau, spearmanr

from cells.darts import Darts
from experiments.ours.equal_counts import pairs_of, partials, taus, with_interval
from experiments.plotting import COLOURS, COLUMN, annotate, score_label
from experiments.study import (
    DARTS_TABLE,
    DATASET,
    METRIC,
    OURS,
    Finding,
    Outcome,
    Study,
    single_seeds,
)
from ntkscore.analysis.correlation import draws
from ntkscore.analysis.frames import network_table
from ntkscore.analysis.score_names import ScoreSum, sum_asked
from ntkscore.config import Config
from ntkscore.data.tables import Table, load_table
from ntkscore.kernels.joint import JOINT

SPACE = Darts()
_ONE = SPACE.parse("DARTS")
COUNTED = {*SPACE.costs(_ONE), *SPACE.structure(_ONE)}
TRAINED = "darts/trained"
SIZES = {
    "darts/trained": "C = 16, L = 8",
    "darts/small": "C = 8, L = 8",
    "darts/shallow": "C = 8, L = 5",
}
"""Recordings, and the sizes of their networks."""
HELD_EQUAL = ("params", "layers", "n_sep", "n_dil", "n_pool", "n_skip", "depth", "field")
"""Counts that the partial correlation holds equal, by their ranks and the squares of these."""
TENTHS = 10
RESAMPLES = 500
PERMUTATIONS = 200
PRINTED = {
    "network.synflow": 0.233,
    "clean.grad_norm": 0.174,
    "clean.snip": 0.171,
    "clean.jacov": -0.027,
}
"""Kendall's τ of published proxies with PGD-7 accuracy, as the table's authors print it."""
LAST = "val_pgd_8_acc_last"
SHOWN = 30


@cache
def table_of(study: Study) -> Table:
    """Tiny-RobustBench."""
    return load_table(study.data_dir / DARTS_TABLE)


def accuracy_of(study: Study, cells: Sequence[Any], metric: str = METRIC) -> np.ndarray:
    """Accuracies of genotypes."""
    return table_of(study).accuracies(DATASET, metric, list(cells))


def by_cell(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds of every measure, and costs and counts; a row per genotype."""
    return network_table(rows[~rows["kernel"].isin(JOINT) | (rows["beta"] == 0.5)], SPACE)


def sum_named(name: str) -> ScoreSum:
    """The score, cost or count of DARTS that a text names, or the sum of several."""
    found = sum_asked(name, SPACE, _ONE, Config(proxies=True))
    assert found is not None
    return found


def kendall(
    values: Float[np.ndarray, " cells"], accuracy: Float[np.ndarray, " cells"], seed: int = 0
) -> tuple[float, float, float]:
    """Kendall's τ-b, and its 95 % interval from a bootstrap over cells."""
    every = [kendalltau(values, accuracy)[0]]
    every += [
        kendalltau(values[cells], accuracy[cells])[0]
        for cells in draws(len(values), RESAMPLES, seed)
    ]
    return with_interval(np.array(every))


def examine(study: Study) -> Iterator[dict[str, object]]:
    """A row for each size of network and measure."""
    for recording, label in SIZES.items():
        rows = study.rows(recording)
        scores = by_cell(rows)
        accuracy = accuracy_of(study, scores.index)
        given = scores[list(HELD_EQUAL)].to_numpy(float)
        measures = [name for name in map(str, scores) if name not in COUNTED]
        beside = partials(scores[measures].to_numpy(float), accuracy, given, RESAMPLES, study.seed)
        tenth = pd.qcut(scores["params"].rank(method="first"), TENTHS, labels=False)
        pairs = pairs_of(scores.assign(tenth=tenth), ["tenth"], RESAMPLES, study.seed)
        seeds = [by_cell(part) for part in single_seeds(rows).values()]
        for name in map(str, scores):
            values = scores[name].to_numpy(float)
            tau, low, high = kendall(values, accuracy, study.seed)
            near, near_low, near_high = with_interval(taus(values, accuracy, pairs))
            row = {
                "networks": label,
                "measure": name,
                "cells": len(values),
                "kendall": tau,
                "low": low,
                "high": high,
                "spearman": float(spearmanr(values, accuracy)[0]),
                "least_seed": min(kendalltau(one[name], accuracy)[0] for one in seeds),
                "most_seed": max(kendalltau(one[name], accuracy)[0] for one in seeds),
                "equal_size": near,
                "equal_size_low": near_low,
                "equal_size_high": near_high,
            }
            if name in measures:
                place = measures.index(name)
                part = with_interval(beside[:, place])
                row |= dict(zip(("beside", "beside_low", "beside_high"), part, strict=True))
            yield row


def chance(study: Study) -> float:
    """The largest |partial coefficient| of all measures that one permutation of the accuracies in
    twenty exceeds."""
    scores, rng = by_cell(study.rows(TRAINED)), np.random.default_rng(study.seed)
    measures = [name for name in map(str, scores) if name not in COUNTED]
    values, given = (scores[[*names]].to_numpy(float) for names in (measures, HELD_EQUAL))
    accuracy = accuracy_of(study, scores.index)
    largest = [
        np.nanmax(np.abs(partials(values, rng.permutation(accuracy), given)))
        for _ in range(PERMUTATIONS)
    ]
    return float(np.quantile(largest, 0.95))


def leading(frame: pd.DataFrame) -> list[str]:
    """The measures that agree best at the trained size, by |τ|."""
    part = frame[frame["networks"] == SIZES[TRAINED]]
    return list(part.set_index("measure")["kendall"].abs().sort_values(ascending=False).index)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """The leading measures and the printed ones: a row each."""
    parts = {
        label: frame[frame["networks"] == label].set_index("measure") for label in SIZES.values()
    }
    first, names = parts[SIZES[TRAINED]], leading(frame)
    rows = []
    for name in [*names[:SHOWN], *(name for name in PRINTED if name not in names[:SHOWN])]:
        one = first.loc[name]
        row: dict[str, object] = {"measure": name, "τ": _interval(one, "kendall", "low", "high")}
        for label, part in parts.items():
            if label != SIZES[TRAINED]:
                row[f"τ, {label}"] = f"{part.loc[name, 'kendall']:.3f}"
        row["ρ"] = f"{one['spearman']:.3f}"
        row["τ of the seeds"] = f"{one['least_seed']:.3f} to {one['most_seed']:.3f}"
        row["ρ beside counts"] = _interval(one, "beside", "beside_low", "beside_high")
        row["τ at equal size"] = _interval(one, "equal_size", "equal_size_low", "equal_size_high")
        row["printed τ"] = f"{PRINTED[name]:.3f}" if name in PRINTED else ""
        rows.append(row)
    return pd.DataFrame(rows)


def _interval(row: pd.Series, *columns: str) -> str:
    value, low, high = (float(row[column]) for column in columns)
    return "" if np.isnan(value) else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def draw(frame: pd.DataFrame) -> Figure:
    """A row per measure: τ at every size of networks, and the partial coefficient."""
    names = leading(frame)[:SHOWN]
    figure, axes = plt.subplots(1, 2, figsize=(2.4 * COLUMN, 0.6 + 0.17 * len(names)), sharey=True)
    for colour, label in zip(COLOURS, SIZES.values(), strict=False):
        part = frame[frame["networks"] == label].set_index("measure").reindex(names)
        axes[0].plot(
            part["kendall"].abs(), range(len(names)), "o", color=colour, markersize=3, label=label
        )
        if label == SIZES[TRAINED]:
            ends = part[["beside_low", "beside_high"]].to_numpy().T
            axes[1].hlines(range(len(names)), *ends, color=colour, linewidth=0.8)
            axes[1].plot(part["beside"], range(len(names)), "o", color=colour, markersize=3)
    axes[0].set_title("|τ| with accuracy")
    axes[1].set_title("Spearman beside counts")
    axes[1].axvline(0, color="black", linewidth=0.5)
    for axis in axes:
        axis.grid(axis="y", linewidth=0.3)
    axes[0].set_xlim(0, None)
    axes[0].set_yticks(range(len(names)), map(score_label, names), fontsize=7)
    axes[0].invert_yaxis()
    annotate(figure, axes[0], "223 DARTS cells, PGD-7 accuracy of the best epoch", 3)
    return figure


def findings(frame: pd.DataFrame, study: Study) -> tuple[Finding, ...]:
    """What the authors of the table print, beside ours; and whether anything beats counting."""
    part = frame[frame["networks"] == SIZES[TRAINED]].set_index("measure")
    rows = []
    for name, printed in PRINTED.items():
        one = part.loc[name]
        low, high = float(one["low"]), float(one["high"])
        rows.append(
            Finding(
                f"Kendall's τ of {score_label(name)} with PGD-7 accuracy",
                f"{printed:.3f}",
                _interval(one, "kendall", "low", "high"),
                "reproduced" if low <= printed <= high else "not reproduced",
                "reproduced where the printed number lies in our interval",
            )
        )
    bound, beside = chance(study), part["beside"].dropna()
    best = str(beside.abs().idxmax())
    one = part.loc[best]
    sure = (part["beside_low"] > 0) | (part["beside_high"] < 0)
    rows.append(
        Finding(
            "some measure agrees with accuracy beside counts",
            OURS,
            f"largest: {score_label(best)}, {_interval(one, 'beside', 'beside_low', 'beside_high')}"
            f"; {int(sure.sum())} of {len(beside)} intervals leave 0 out",
            "reproduced" if abs(float(one["beside"])) > bound else "not reproduced",
            f"reproduced where the largest of the {len(beside)} exceeds {bound:.3f}, the 95th "
            f"percentile of the largest over {PERMUTATIONS} permutations of the accuracies",
        )
    )
    return tuple(rows)


def run(study: Study) -> Outcome:
    """The table of all measures of the DARTS cells."""
    frame = pd.DataFrame(examine(study))
    cells = by_cell(study.rows(TRAINED)).index
    noise = kendalltau(*(accuracy_of(study, cells, metric) for metric in (METRIC, LAST)))[0]
    return Outcome(
        frame,
        draw(frame),
        {"recordings": study.configurations(SIZES), "table": table_of(study).name}
        | {"held_equal": HELD_EQUAL, "resamples": RESAMPLES, "permutations": PERMUTATIONS},
        (
            f"{len(cells)} genotypes of Tiny-RobustBench, each trained once; means of three seeds "
            f"of weights and images. τ between accuracies of the best and of the last epoch is "
            f"{noise:.3f}: no measure can be expected to exceed that.",
            f"Beside counts: the partial Spearman coefficient given {', '.join(HELD_EQUAL)}. At "
            "equal size: τ over the pairs of cells within the same tenth by parameters. All "
            "intervals are of 95 %, by bootstrap over cells (over tenths for the last).",
        ),
        findings=findings(frame, study),
        summary=table(frame),
        kept=True,
    )
