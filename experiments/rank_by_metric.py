"""Where a cell stands under one metric and under another (Figure 3b)."""

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.study import MEANS, Finding, Outcome, Study
from experiments.style import COLOURS, COLUMN, DATASET_LABELS, metric_label
from ntkscore.comparison import ROBUST_MEAN, table_scores

DATASET = "cifar10"
REFERENCE = ROBUST_MEAN
METRICS = ("val_acc", "val_fgsm_8_acc", "val_pgd_8_acc")
BEST = 100
WELL = 0.8
"""A Spearman coefficient above which ranks correlate well."""
TICKS = {1: "1", 10: "10", 100: "100", 1000: "1k"}


def ranks(accuracies: pd.DataFrame, reference: str) -> pd.DataFrame:
    """The place of every cell under every column, 1 for the best, sorted by the reference's.

    Args:
        accuracies: a line per cell, a column per metric or data set.
        reference: the column to sort by.
    """
    places = accuracies.rank(ascending=False, method="min").astype(int)
    return places.sort_values(reference, kind="stable").reset_index()


def agreements(places: pd.DataFrame, reference: str) -> pd.DataFrame:
    """How each column of places follows the reference's: over all cells, and among the best.

    Columns: `spearman` over all cells, `spearman_best` among the reference's best hundred, and
    `shared_best`, how many of these are also among the column's best hundred.
    """
    best = places[places[reference] <= BEST]
    others = places.columns.drop(["cell", reference])
    return pd.DataFrame(
        {
            "spearman": [places[reference].corr(places[o], "spearman") for o in others],
            "spearman_best": [best[reference].corr(best[o], "spearman") for o in others],
            "shared_best": [int((best[o] <= BEST).sum()) for o in others],
        },
        index=others,
    )


def draw(places: pd.DataFrame, reference: str, labels: dict[str, str], by: str) -> Figure:
    """A panel per column, a dot per cell over the reference's rank, on logarithmic axes.

    Args:
        places: as `ranks` gives them.
        reference: the column of the horizontal axes.
        labels: of the other columns, in the order of the panels.
        by: what the horizontal axes are called.
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


def spoken(statistics: pd.DataFrame, labels: dict[str, str]) -> tuple[str, ...]:
    """A sentence for every line of `agreements`."""
    return tuple(
        f"{labels[str(column)]}: Spearman {line['spearman']:.3f} over all cells, "
        f"{line['spearman_best']:.3f} among the best {BEST}, of which "
        f"{line['shared_best']:.0f} are shared."
        for column, line in statistics.iterrows()
    )


def findings(statistics: pd.DataFrame, labels: dict[str, str]) -> tuple[Finding, ...]:
    """That ranks correlate well, for every line of `agreements`."""
    return tuple(
        Finding(
            f"Ranks by {labels[str(column)]} correlate well with the reference",
            "well",
            f"Spearman {line['spearman']:.3f}",
            "reproduced" if line["spearman"] > WELL else "not reproduced",
            f"well: above {WELL}",
        )
        for column, line in statistics.iterrows()
    )


def run(study: Study) -> Outcome:
    """Ranks by clean, FGSM and PGD accuracy over the rank by mean robust accuracy."""
    accuracies = table_scores(study.table, DATASET)[[REFERENCE, *METRICS]]
    places = ranks(accuracies, REFERENCE)
    labels = {metric: metric_label(metric) for metric in METRICS}
    by = f"rank by mean robust accuracy on {DATASET_LABELS[DATASET]}"
    remarks = (*spoken(agreements(places, REFERENCE), labels), MEANS)
    configuration = {"table": study.table.name, "dataset": DATASET, "best": BEST}
    found = findings(agreements(places, REFERENCE), labels)
    return Outcome(places, draw(places, REFERENCE, labels, by), configuration, remarks, found)
