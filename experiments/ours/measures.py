"""Every train-free measure against every accuracy of the table, and given counts.

The partial correlation holds equal what one can count on a cell without any network: parameters,
layers, paths, poolings and convolutions on them, depth and receptive field. It is the answer to
"does this know more than counting?".
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells import Cell
from cells.space import Space
from experiments.plotting import (
    COLOURS,
    COLUMN,
    DATASET_LABELS,
    annotate,
    metric_label,
    score_label,
)
from experiments.recordings import PROXIES
from experiments.study import (
    METRIC,
    METRICS,
    SPACE,
    Outcome,
    Study,
    functions_of,
    interval,
    single_seeds,
    sum_named,
)
from ntkscore.analysis.agreement import agreement_table
from ntkscore.analysis.frames import network_table
from ntkscore.analysis.paired import partial_spearman
from ntkscore.analysis.score_names import COSTS, DEFAULT
from ntkscore.kernels.joint import JOINT
from ntkscore.measures.declaration import direction_of

RECORDINGS = ("space", *PROXIES)
"""Recordings of the same networks: measures beside the kernels, and those with other passes."""
RESAMPLES = 200
HELD_EQUAL = (
    "params",
    "layers",
    "paths",
    "path_convs",
    "path_pools",
    "shortest_path",
    "longest_path",
    "field",
)
"""Counts that the partial correlation holds equal, by their ranks and the squares of these."""
SUMS = {
    "params+layers+path_pools+field": "four counts",
    str(DEFAULT): "the default",
    "params+path_pools+field+clean.vkdnw": "chosen with --proxies",
    "params+path_pools+field+network.synflow+clean.lambda_min_normalized": "the default of 0.3",
    "params+path_pools+field+robust.expressivity+clean.vkdnw": "with VKDNW and expressivity",
}
"""Sums that stand beside the measures, here and in `docs/ranking.md`, and their labels."""
PUBLISHED = {
    "flops+clean.expressivity+clean.progressivity+clean.trainability": "AZ-NAS",
    "clean.vkdnw+flops+clean.expressivity+clean.trainability+clean.jacov": "VKDNW's sum",
}
"""Sums that others have published."""
LABELS = PUBLISHED | SUMS
COLUMNS = {
    "cells": "n",
    "failed": "excluded",
    "spearman": "spearman",
    "low": "spearman_low",
    "high": "spearman_high",
    "kendall": "kendall",
    "top10": "spearman_top10",
    "top30": "spearman_top30",
    "ndcg": "ndcg",
}
"""Columns of the data, and their names in `agreement_table`."""
SHOWN = 24
"""Measures in the report's table and in the figure."""


def with_counts(rows: pd.DataFrame, space: Space = SPACE) -> pd.DataFrame:
    """Means over the seeds of every measure, and costs and counts; a row per network."""
    return network_table(rows[~rows["kernel"].isin(JOINT) | (rows["beta"] == 0.5)], space)


def settings(study: Study) -> dict[str, object]:
    """Recordings and table that the numbers depend on."""
    return {"recordings": study.configurations(RECORDINGS), "table": study.table.name}


def recorded(study: Study) -> pd.DataFrame:
    """Rows of every measure that the whole table is recorded with."""
    return pd.concat([study.rows(name) for name in RECORDINGS], ignore_index=True)


def measured(study: Study) -> pd.DataFrame:
    """Means over the seeds of every measure, costs and counts, and all sums; a row per cell."""
    return with_sums(with_counts(recorded(study)))


def measured_by_seed(study: Study) -> list[pd.DataFrame]:
    """Every measure, costs, counts and sums: means over the seeds, then every seed alone."""
    rows = recorded(study)
    return [with_sums(with_counts(part)) for part in (rows, *single_seeds(rows))]


def with_sums(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores by cell, and all sums as further columns."""
    return scores.assign(**{name: sum_named(name).of(scores) for name in LABELS})


def examine(
    study: Study,
    scores: pd.DataFrame,
    names: Sequence[str] | None = None,
    metrics: Sequence[str] = METRICS,
    resamples: int = RESAMPLES,
) -> Iterator[dict[str, object]]:
    """A row for each measure (all, or those named), data set and metric."""
    names = list(names or map(str, scores))
    counts = scores[list(HELD_EQUAL)].to_numpy()
    directions = {name: direction_of(name, SPACE.fewer) for name in names}
    for dataset in study.table.datasets:
        for metric in metrics:
            accuracy = study.table.accuracies(dataset, metric, list(scores.index))
            found = agreement_table(
                scores[names],
                pd.Series(accuracy, scores.index),
                directions,
                scores[[]],
                groups=functions_of(scores.index),
                resamples=resamples,
                seed=study.seed,
            )
            for measure in names:
                of, beside = found.loc[measure], np.nan
                if not {*measure.split("+")} <= {*HELD_EQUAL, *COSTS}:
                    beside = partial_spearman(scores[measure], accuracy, counts, squares=True)
                best = of["best_cell"]
                yield {
                    "measure": measure,
                    "dataset": dataset,
                    "metric": metric,
                    **{ours: of[column] for ours, column in COLUMNS.items()},
                    "best": "" if pd.isna(best) else Cell(int(best)).digits,
                    "best_accuracy": of["best_accuracy"],
                    "best_rank": of["best_accuracy_rank"],
                    "first_ten": of["first_ten_accuracy"],
                    "beside_counts": beside,
                }


def leading(frame: pd.DataFrame) -> list[str]:
    """The measures that agree best with PGD accuracy on all data sets, by mean |Spearman|."""
    part = frame[frame["metric"] == METRIC]
    strength = part.groupby("measure")["spearman"].agg(lambda values: values.abs().mean())
    return [str(name) for name in strength.sort_values(ascending=False).index]


def draw(frame: pd.DataFrame) -> Figure:
    """A row per measure: agreement over all cells, and partial agreement given the counts."""
    names, part = leading(frame)[:SHOWN], frame[frame["metric"] == METRIC]
    panels = {"spearman": "Spearman with accuracy", "beside_counts": "the same beside counts"}
    size = (2.4 * COLUMN, 0.6 + 0.17 * len(names))
    figure, axes = plt.subplots(1, len(panels), figsize=size, sharey=True)
    for axis, (column, title) in zip(axes, panels.items(), strict=True):
        for colour, (dataset, label) in zip(COLOURS, DATASET_LABELS.items(), strict=False):
            values = part[part["dataset"] == dataset].set_index("measure")[column].reindex(names)
            axis.plot(values.abs(), range(len(names)), "o", color=colour, markersize=3, label=label)
        axis.set_title(title)
        axis.set_xlim(0, 1)
        axis.grid(axis="y", linewidth=0.3)
    falling = set(part.loc[part["spearman"] < 0, "measure"])
    labels = [
        f"{LABELS.get(name) or score_label(name)}{' (−)' if name in falling else ''}"
        for name in names
    ]
    axes[0].set_yticks(range(len(names)), labels, fontsize=7)
    axes[0].invert_yaxis()
    text = f"size of the correlation with {metric_label(METRIC)} accuracy; (−): it is negative"
    annotate(figure, axes[0], text, 3)
    return figure


def table(frame: pd.DataFrame) -> Iterator[dict[str, object]]:
    """The leading measures: a row each, the data sets side by side."""
    part = frame[frame["metric"] == METRIC].set_index(["measure", "dataset"])
    for name in leading(frame)[:SHOWN]:
        row: dict[str, object] = {"measure": name}
        for dataset, label in DATASET_LABELS.items():
            one = part.loc[(name, dataset)]
            row[label] = interval(*one[["spearman", "low", "high"]])
            row[f"{label}: top 10 %"] = f"{one['top10']:.3f}"
            partial = one["beside_counts"]
            row[f"{label}: beside counts"] = "" if np.isnan(partial) else f"{partial:.3f}"
        yield row


def run(study: Study) -> Outcome:
    """The table of all measures, and the figure of the leading ones."""
    scores = measured(study)
    frame = pd.DataFrame(examine(study, scores, resamples=RESAMPLES))
    seeds = recorded(study)["seed"].nunique()
    return Outcome(
        frame,
        draw(frame),
        settings(study) | {"held_equal": HELD_EQUAL, "resamples": RESAMPLES},
        (
            f"Means of {seeds} seeds over {len(scores):,} cells; the {SHOWN} measures of "
            f"{scores.shape[1]} with the largest mean |Spearman| over the three data sets. The "
            "data file has them all, with every metric, Kendall's τ, nDCG, pick and first ten.",
            "Beside counts: the partial Spearman given the ranks of "
            f"{', '.join(HELD_EQUAL)}, and their squares. It is empty for counts themselves.",
        ),
        summary=pd.DataFrame(table(frame)),
        kept=True,
    )
