"""Ranks of a cell under two metrics (Figure 3b) and on three data sets (Figure 3c)."""

from collections.abc import Iterator, Mapping

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS, metric_label
from experiments.study import DATASET, MEANS, Finding, Outcome, Study
from ntkscore.analysis.comparison import ROBUST_MEAN, table_scores
from ntkscore.analysis.correlation import spearman

METRICS = ("val_acc", "val_fgsm_8_acc", "val_pgd_8_acc")
BEST = 100
WELL = 0.8
"""A Spearman coefficient above which ranks correlate well."""
TICKS = {1: "1", 10: "10", 100: "100", 1000: "1k"}


def ranks(accuracies: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Rank of every cell under every column, 1 for the best, sorted by the reference's.

    Args:
        accuracies: a row per cell, a column per metric or data set.
        reference: the column to sort by.
    """
    places = accuracies.rank(ascending=False, method="min").astype(int)
    return places.sort_values(reference, kind="stable").reset_index()


def agreements(places: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Agreement of each column of ranks with the reference's, a row per column.

    Columns: `spearman` over all cells, `spearman_best` among the reference's best hundred, and
    `shared_best`, how many of these are also among the column's best hundred.
    """
    best = places[places[reference] <= BEST]
    others = places.columns.drop(["cell", reference])
    return pd.DataFrame(
        {
            "spearman": [spearman(places[reference], places[other]) for other in others],
            "spearman_best": [spearman(best[reference], best[other]) for other in others],
            "shared_best": [int((best[other] <= BEST).sum()) for other in others],
        },
        index=others,
    )


def draw(places: pd.DataFrame, reference: str, labels: dict[str, str], by: str) -> Figure:
    """A panel per column, a dot per cell over the reference's rank, on logarithmic axes.

    Args:
        places: ranks, as `ranks` returns them.
        reference: the column of the horizontal axes.
        labels: titles of the other columns, in the order of the panels.
        by: label of the horizontal axes.
    """
    statistics = agreements(places, reference)
    figure, axes = plt.subplots(
        1,
        len(labels),
        figsize=(COLUMN, 0.65 + 0.85 * COLUMN / len(labels)),
        sharex=True,
        sharey=True,
    )
    ends = [1, len(places)]
    for axis, colour, (column, label) in zip(axes, COLOURS, labels.items(), strict=False):
        dots = {"s": 1.5, "alpha": 0.4, "linewidths": 0, "rasterized": True}
        axis.scatter(places[reference], places[column], color=colour, **dots)
        axis.plot(ends, ends, color="black", linewidth=0.6)
        axis.set(xscale="log", yscale="log", box_aspect=1)
        axis.set_xticks(list(TICKS), TICKS.values(), size="small")
        axis.set_yticks(list(TICKS), TICKS.values(), size="small")
        axis.minorticks_off()
        axis.set_title(f"{label}\nSpearman {statistics.loc[column, 'spearman']:.3f}")
    figure.supxlabel(f"{by} (1 is best)", fontsize="medium")
    axes[0].set_ylabel("rank (1 is best)")
    return figure


def sentences(statistics: pd.DataFrame, labels: dict[str, str]) -> Iterator[str]:
    """A sentence for every row of `agreements`."""
    for column, row in statistics.iterrows():
        yield (
            f"{labels[str(column)]}: Spearman {row['spearman']:.3f} over all cells, "
            f"{row['spearman_best']:.3f} among the best {BEST}, of which "
            f"{row['shared_best']:.0f} are shared."
        )


def findings(statistics: pd.DataFrame, labels: dict[str, str]) -> Iterator[Finding]:
    """The statement that ranks correlate well, for every row of `agreements`."""
    for column, row in statistics.iterrows():
        yield Finding(
            f"Ranks by {labels[str(column)]} correlate well with the reference",
            "well",
            f"Spearman {row['spearman']:.3f}",
            "reproduced" if row["spearman"] > WELL else "not reproduced",
            f"well: above {WELL}",
        )


def compare_ranks(
    accuracies: pd.DataFrame,
    reference: str,
    labels: dict[str, str],
    configuration: Mapping[str, object],
) -> Outcome:
    """Figure, remarks and findings for ranks by several columns of accuracies.

    Args:
        accuracies: a row per cell, a column per metric or data set.
        reference: the column that the others are compared with.
        labels: titles of the other columns.
        configuration: settings to record.
    """
    places = ranks(accuracies, reference)
    statistics = agreements(places, reference)
    by = f"rank by mean robust accuracy on {DATASET_LABELS[DATASET]}"
    return Outcome(
        places,
        draw(places, reference, labels, by),
        {**configuration, "best": BEST},
        (*sentences(statistics, labels), MEANS),
        (*findings(statistics, labels),),
    )


def by_metric(study: Study) -> Outcome:
    """Ranks by clean, FGSM and PGD accuracy over the rank by mean robust accuracy."""
    accuracies = table_scores(study.table, DATASET)[[ROBUST_MEAN, *METRICS]]
    labels = {metric: metric_label(metric) for metric in METRICS}
    configuration = {"table": study.table.name, "dataset": DATASET}
    return compare_ranks(accuracies, ROBUST_MEAN, labels, configuration)


def across_datasets(study: Study) -> Outcome:
    """Ranks on the other data sets over the rank on CIFAR-10, by mean robust accuracy."""
    robust = {name: table_scores(study.table, name)[ROBUST_MEAN] for name in study.table.datasets}
    labels = {name: DATASET_LABELS[name] for name in robust if name != DATASET}
    configuration = {"table": study.table.name, "metric": ROBUST_MEAN}
    return compare_ranks(pd.DataFrame(robust), DATASET, labels, configuration)
