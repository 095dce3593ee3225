"""Every train-free measure against every accuracy of the table, and given counts.

The partial correlation holds equal what one can count on a cell without any network: parameters,
layers, paths, poolings and convolutions on them, depth and receptive field. It is the answer to
"does this know more than counting?".
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.data import (
    BEFORE,
    BENCHMARK,
    DEFAULT,
    METRIC,
    METRICS,
    SPACE,
    Data,
    functions_of,
    sum_named,
)
from experiments.frame import Claim, Stronger, Study
from experiments.paper.contrasts import NOTABLE, intervals
from experiments.plotting import DATASET_LABELS, annotate, metric_label, panels, score_label
from experiments.recordings import PROXIES
from experiments.statistics import partial_spearman
from ntkscore.analysis.agreement import agreement_table
from ntkscore.analysis.frames import network_table
from ntkscore.analysis.paired import difference
from ntkscore.analysis.score_names import COSTS
from ntkscore.kernels.joint import JOINT
from ntkscore.measures.registry import direction_of
from ntkscore.space import Space

RECORDINGS = ("space", *PROXIES)
"""Recordings of the same networks: measures beside the kernels, and those with other passes."""
PATHS = "paths", "path_convs", "path_pools", "shortest_path", "longest_path"
HELD_EQUAL = "params", "layers", *PATHS, "field"
"""Counts that the partial correlation holds equal, by their ranks and the squares of these."""
SUMS = {
    "params+layers+path_pools+field": "four counts",
    str(DEFAULT): "the default",
    BEFORE: "the default before",
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
ASKED = {
    str(DEFAULT): "the default order",
    "params+layers+path_pools+field": "a sum of four counts",
    "clean.lambda_min_normalized": "the clean kernel's λ_min/trace",
    "robust.frobenius": "the NTK-score in our convention",
}
"""What is held against the parameter count."""


def with_counts(rows: pd.DataFrame, space: Space = SPACE) -> pd.DataFrame:
    """Means over the seeds of every measure, and costs and counts; a row per network."""
    return network_table(rows[~rows["kernel"].isin(JOINT) | (rows["beta"] == 0.5)], space)


def measured(data: Data, sums: Iterable[str] = ()) -> pd.DataFrame:
    """Means over the seeds of every measure, costs and counts, and sums; a row per cell.

    Args:
        data: has the recordings.
        sums: names of sums beside those that have labels.
    """
    rows = pd.concat([data.rows(name) for name in RECORDINGS], ignore_index=True)
    scores = with_counts(rows)
    others = [name for name in (*LABELS, *sums) if name not in scores]
    return scores.assign(**{name: sum_named(name).of(scores) for name in others})


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """A row for each measure (all, or those named), data set and metric."""
    scores = measured(at.data, at.measures)
    names = list(at.measures or map(str, scores))
    directions = {name: direction_of(name, SPACE.fewer) for name in names}
    counts = scores[[*HELD_EQUAL]]
    how = {"groups": functions_of(scores.index), "resamples": at.resamples}
    for dataset in at.data.table.datasets:
        for metric in at.metrics:
            accuracy = at.data.table.accuracies(dataset, metric, list(scores.index))
            found = agreement_table(scores[names], accuracy, directions, **how)
            for name, of in found.drop(columns="status").iterrows():
                values, less = scores[name], {}
                if name in ASKED and metric == METRIC:
                    gap = difference(values, scores["params"], accuracy, **how)
                    less = {"less_params": gap.value, "less_low": gap.low, "less_high": gap.high}
                beside = np.nan  # as for what is made of the counts themselves
                if not {*str(name).split("+")} <= {*HELD_EQUAL, *COSTS}:
                    beside = partial_spearman(values, accuracy, counts, squares=True)
                about = {"measure": name, "dataset": dataset, "metric": metric}
                yield about | of.to_dict() | {"beside_counts": beside} | less


def leading(frame: pd.DataFrame) -> list[str]:
    """The measures that agree best with PGD accuracy on all data sets, by mean |Spearman|."""
    part = frame[frame["metric"] == METRIC]
    strength = part.groupby("measure")["spearman"].agg(lambda values: values.abs().mean())
    return [str(name) for name in strength.sort_values(ascending=False).index]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What ranks better than the parameter count, on all data sets; of what was measured."""
    for name, label in ASKED.items():
        part = frame[(frame["measure"] == name) & (frame["metric"] == METRIC)]
        if part.empty:
            continue
        found = intervals(part, "less_params", "less_low", "less_high")
        text = f"{label} ranks better than the parameter count, on each data set"
        yield Claim(text, "", found, Stronger(NOTABLE), ours=True)


def figure(frame: pd.DataFrame) -> Figure:
    """The leading measures: agreement over all cells, and partial agreement given the counts."""
    names, part = leading(frame)[:24], frame[frame["metric"] == METRIC]
    drawn, axes = panels(2, 1.2, together=True)
    drawn.set_figheight(0.6 + 0.17 * len(names))
    titles = {"spearman": "Spearman with accuracy", "beside_counts": "the same beside counts"}
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        values = part.pivot(index="measure", columns="dataset", values=column).abs()
        for dataset, label in DATASET_LABELS.items():
            axis.plot(values.loc[names, dataset], range(len(names)), "o", ms=3, label=label)
        axis.set(title=title, xlim=(0, 1))
        axis.grid(axis="y", linewidth=0.3)
    falling = set(part.loc[part["spearman"] < 0, "measure"])
    labels = [(LABELS.get(n) or score_label(n)) + " (−)" * (n in falling) for n in names]
    axes[0].set_yticks(range(len(names)), labels, fontsize=7)
    axes[0].invert_yaxis()
    text = f"size of the correlation with {metric_label(METRIC)} accuracy; (−): it is negative"
    annotate(drawn, axes[0], text, 3)
    return drawn


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """The twelve leading measures, a row each: CIFAR-10 in full, the others' coefficients."""
    part = frame[frame["metric"] == METRIC].set_index(["dataset", "measure"])
    near, *others = (part.loc[dataset].loc[leading(frame)[:12]] for dataset in DATASET_LABELS)
    first, *labels = DATASET_LABELS.values()
    found = intervals(near, "spearman", "spearman_low", "spearman_high")
    of = {first: found, "top 10 %": near["spearman_top10"], "beside counts": near["beside_counts"]}
    of |= {label: one["spearman"] for label, one in zip(labels, others, strict=True)}
    return pd.DataFrame(of, near.index).reset_index()


MEASURES = Study(
    "Every train-free measure against every accuracy, beside counting",
    measure,
    fixed={"measures": (), "metrics": METRICS, "resamples": 200},
    claims=claims,
    figure=figure,
    table=table,
    note="With PGD 8/255 accuracy; scores are means of three seeds. Beside counts: the partial "
    f"Spearman coefficient given the ranks of {', '.join(HELD_EQUAL)} and their squares. "
    "The data has every measure, with every metric, Kendall's τ, nDCG, pick and first ten.",
    needs=(BENCHMARK,),
)
