"""Ranks of a cell under two metrics (Figure 3b) and on three data sets (Figure 3c)."""

from collections.abc import Mapping

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS, metric_label
from experiments.study import DATASET, MEANS, Finding, Outcome, Study, verdict
from ntkscore.analysis.comparison import ROBUST_MEAN, table_scores
from ntkscore.analysis.correlation import spearman

METRICS = ("val_acc", "val_fgsm_8_acc", "val_pgd_8_acc")
BEST = 100
WELL = 0.8
"""A Spearman coefficient above which ranks correlate well."""
TICKS = {1: "1", 10: "10", 100: "100", 1000: "1k"}


def ranks(accuracies: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Rank of every cell under every column, 1 for the best, sorted by the reference's."""
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


def draw(places: pd.DataFrame, reference: str, titles: Mapping[str, str]) -> Figure:
    """A panel per column, a dot per cell over the reference's rank, on logarithmic axes."""
    size = (COLUMN, 0.65 + 0.85 * COLUMN / len(titles))
    figure, axes = plt.subplots(1, len(titles), figsize=size, sharex=True, sharey=True)
    ends = [1, len(places)]
    for axis, colour, (column, title) in zip(axes, COLOURS, titles.items(), strict=False):
        dots = {"s": 1.5, "alpha": 0.4, "linewidths": 0, "rasterized": True}
        axis.scatter(places[reference], places[column], color=colour, **dots)
        axis.plot(ends, ends, color="black", linewidth=0.6)
        axis.set(xscale="log", yscale="log", box_aspect=1)
        axis.set_xticks(list(TICKS), TICKS.values(), size="small")
        axis.set_yticks(list(TICKS), TICKS.values(), size="small")
        axis.minorticks_off()
        axis.set_title(title)
    by = f"rank by mean robust accuracy on {DATASET_LABELS[DATASET]} (1 is best)"
    figure.supxlabel(by, fontsize="medium")
    axes[0].set_ylabel("rank (1 is best)")
    return figure


def compare_ranks(
    accuracies: pd.DataFrame,
    reference: str,
    labels: Mapping[str, str],
    configuration: Mapping[str, object],
) -> Outcome:
    """Figure, remarks and findings for ranks by several columns of accuracies.

    Args:
        accuracies: a row per cell, a column per metric or data set.
        reference: the column that the others are compared with.
        labels: names of the other columns, in the order of the panels.
        configuration: settings to record.
    """
    places = ranks(accuracies, reference)
    titles, remarks, findings = {}, [], []
    for column, row in agreements(places, reference).iterrows():
        label, all_cells = labels[str(column)], f"Spearman {row['spearman']:.3f}"
        titles[str(column)] = f"{label}\n{all_cells}"
        remarks.append(
            f"{label}: {all_cells} over all cells, {row['spearman_best']:.3f} among the best "
            f"{BEST}, of which {row['shared_best']:.0f} are shared."
        )
        findings.append(
            Finding(
                f"Ranks by {label} correlate well with the reference",
                "well",
                all_cells,
                verdict(row["spearman"] > WELL),
                f"well: above {WELL}",
            )
        )
    return Outcome(
        places,
        draw(places, reference, titles),
        {**configuration, "best": BEST},
        (*remarks, MEANS),
        tuple(findings),
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
