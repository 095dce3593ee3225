"""The order of cells that counting cannot tell apart, by every train-free measure.

Cells of equal counts are a group. A measure's τ within groups is Kendall's τ-b over the pairs of
cells of the same group: Σ s(x)s(a) / √(Σ s(x)² Σ s(a)²), s the sign of a pair's difference in the
measure and in accuracy. Its interval is by bootstrap over groups. A count that the groups hold
equal has no τ.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.ours.measures import HELD_EQUAL, LABELS, measured, settings
from experiments.plotting import COLUMN, DATASET_LABELS, annotate, metric_label, score_label
from experiments.study import DATASET, METRIC, Outcome, Study
from ntkscore.measures.declaration import direction_of

GROUPINGS = {
    "equal size": ("params", "layers", "path_pools"),
    "equal counts": HELD_EQUAL,
}
"""Counts that the cells of a group share, by the grouping's name."""
DATASETS = (DATASET, "imagenet16-120")
RESAMPLES = 1000
SHOWN = 20
"""Measures in the report's table and in the figure."""


class Pairs(NamedTuple):
    """All pairs of cells of the same group.

    Attributes:
        first, second: places of the cells.
        group: number of the pair's group.
        weights: how often each group counts: once, and then as resampled.
    """

    first: Int[np.ndarray, " pairs"]
    second: Int[np.ndarray, " pairs"]
    group: Int[np.ndarray, " pairs"]
    weights: Int[np.ndarray, "resamples groups"]


def pairs_of(scores: pd.DataFrame, counts: Sequence[str], resamples: int, seed: int) -> Pairs:
    """The pairs of cells that have the same counts, and bootstrap samples of the groups."""
    places = [p for p in scores.groupby(list(counts)).indices.values() if len(p) > 1]
    upper = [np.triu_indices(len(p), 1) for p in places]
    groups = len(places)
    resampled = np.random.default_rng(seed).multinomial(
        groups, np.full(groups, 1 / groups), resamples
    )
    return Pairs(
        np.concatenate([p[i] for p, (i, _) in zip(places, upper, strict=True)]),
        np.concatenate([p[j] for p, (_, j) in zip(places, upper, strict=True)]),
        np.repeat(np.arange(groups), [len(i) for i, _ in upper]),
        np.concatenate([np.ones((1, groups), int), resampled]),
    )


def within(
    values: Float[np.ndarray, " cells"], accuracy: Float[np.ndarray, " cells"], pairs: Pairs
) -> tuple[float, float, float]:
    """τ within groups and its 95 % interval; NaN where no pair differs.

    Pairs with a cell whose value is not finite are left out.
    """
    known = np.isfinite(values)[pairs.first] & np.isfinite(values)[pairs.second]
    first, second, group = (of[known] for of in (pairs.first, pairs.second, pairs.group))
    x, a = (np.sign(of[first] - of[second]) for of in (values, accuracy))
    sums = [np.bincount(group, of, pairs.weights.shape[1]) for of in (x * a, x * x, a * a)]
    agreeing, moved, apart = (pairs.weights @ of for of in sums)
    if not moved[0]:
        return np.nan, np.nan, np.nan
    taus = agreeing / np.sqrt(np.maximum(moved * apart, 1))
    low, high = np.quantile(taus[1:], (0.025, 0.975))
    return float(taus[0]), float(low), float(high)


def examine(study: Study, scores: pd.DataFrame) -> Iterator[dict[str, object]]:
    """A row for each grouping, data set and measure: τ within groups in the better direction."""
    accuracies = study.accuracies(scores.index)
    for grouping, counts in GROUPINGS.items():
        pairs = pairs_of(scores, counts, RESAMPLES, study.seed)
        for measure in (name for name in scores if name not in (*HELD_EQUAL, "flops")):
            values = scores[measure].to_numpy(float) * (direction_of(str(measure)) or 1)
            for dataset in DATASETS:
                tau, low, high = within(values, accuracies[dataset], pairs)
                yield {
                    "grouping": grouping,
                    "groups": pairs.weights.shape[1],
                    "pairs": len(pairs.group),
                    "measure": measure,
                    "dataset": dataset,
                    "tau": tau,
                    "low": low,
                    "high": high,
                }


def leading(frame: pd.DataFrame) -> list[str]:
    """Measures by their mean τ over groupings and data sets, the largest first."""
    means = frame.groupby("measure")["tau"].mean()
    return [str(name) for name in means.sort_values(ascending=False).index]


def table(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """A row for each measure, groupings and data sets side by side."""
    found = frame.set_index(["measure", "grouping", "dataset"])
    rows = []
    for name in names:
        row = {"measure": name}
        for grouping in GROUPINGS:
            for dataset in DATASETS:
                one = found.loc[(name, grouping, dataset)]
                text = f"{one['tau']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"
                row[f"{grouping}: {DATASET_LABELS[dataset]}"] = "" if np.isnan(one["tau"]) else text
        rows.append(row)
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame, names: Sequence[str]) -> Figure:
    """τ of the leading measures within groups, with intervals."""
    size = (2.2 * COLUMN, 0.8 + 0.17 * len(names))
    figure, axes = plt.subplots(1, len(GROUPINGS), figsize=size, sharey=True)
    heights = np.arange(len(names))
    for axis, (grouping, part) in zip(axes, frame.groupby("grouping", sort=False), strict=True):
        for shift, dataset in zip((-0.15, 0.15), DATASETS, strict=True):
            one = part[part["dataset"] == dataset].set_index("measure").loc[list(names)]
            sides = [one["tau"] - one["low"], one["high"] - one["tau"]]
            label = DATASET_LABELS[dataset]
            axis.errorbar(one["tau"], heights + shift, xerr=sides, fmt="o", ms=3, label=label)
        axis.axvline(0, color="black", linewidth=0.5)
        first = part.iloc[0]
        axis.set_title(f"{grouping}: {first['groups']:,} groups, {first['pairs']:,} pairs")
    axes[0].set_yticks(heights, [LABELS.get(n) or score_label(n) for n in names], fontsize=7)
    axes[0].invert_yaxis()
    text = f"Kendall's τ with {metric_label(METRIC)} accuracy within groups"
    annotate(figure, axes[0], text, 2)
    return figure


def run(study: Study) -> Outcome:
    """Every measure's order within groups of cells of equal counts."""
    scores = measured(study)
    frame = pd.DataFrame(examine(study, scores))
    names = leading(frame)
    kernel = next(name for name in names if "lambda_min" in name and "+" not in name)
    counts = "; ".join(f"{name}: {', '.join(terms)}" for name, terms in GROUPINGS.items())
    return Outcome(
        frame,
        draw(frame, names[:SHOWN]),
        settings(study) | {"groupings": GROUPINGS, "resamples": RESAMPLES},
        (
            f"Cells of a group share counts ({counts}). Intervals of 95 %, by bootstrap over "
            "groups.",
            f"The {SHOWN} measures with the largest mean τ; the data file has all {len(names)}. "
            f"The first smallest eigenvalue of a kernel is {kernel}, in place "
            f"{1 + names.index(kernel)}.",
        ),
        summary=table(frame, [*names[:SHOWN], kernel, "robust.frobenius"]),
    )
