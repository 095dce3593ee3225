"""Distribution of the accuracies of the benchmark's cells (Figure 3a)."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS, metric_label
from experiments.study import DATASET, MEANS, Finding, Outcome, Study
from ntkscore.data.tables import Table

WIDTH = 0.01
BINS = 50
"""Number of bins over each metric's own range, for the second reading of the peaks."""
RADII = {"3/255": COLOURS[0], "8/255": COLOURS[1]}


def histogram(table: Table, dataset: str = DATASET, width: float = WIDTH) -> pd.DataFrame:
    """Share of the cells in each bin of accuracy, a row per metric and bin.

    Args:
        table: the benchmark table.
        dataset: data set of the accuracies.
        width: width of a bin, a fraction that divides 1.
    """
    edges = np.linspace(0, 1, round(1 / width) + 1)
    bins = []
    for metric in table.metrics(dataset):
        accuracy = table.accuracies(dataset, metric)
        share = np.histogram(accuracy, edges)[0] / len(accuracy)
        ends = {"low": edges[:-1], "high": edges[1:]}
        bins.append(pd.DataFrame({"metric": metric, **ends, "share": share}))
    return pd.concat(bins, ignore_index=True)


def peaks(table: Table, dataset: str = DATASET) -> pd.DataFrame:
    """Share of the cells in the fullest bin, by metric, for two kinds of bins.

    `equal` has bins of `WIDTH` for every metric, `scaled` has `BINS` over the metric's range.
    """
    equal = histogram(table, dataset).groupby("metric", sort=False)["share"].max()
    accuracies = {metric: table.accuracies(dataset, metric) for metric in equal.index}
    scaled = [np.histogram(values, BINS)[0].max() / len(values) for values in accuracies.values()]
    return pd.DataFrame({"equal": equal, "scaled": scaled})


def draw(frame: pd.DataFrame) -> Figure:
    """Step curves of the shares, by metric."""
    figure, axis = plt.subplots(figsize=(COLUMN, 0.85 * COLUMN))
    for metric, part in frame.groupby("metric", sort=False):
        edges = [*part["low"], part["high"].iloc[-1]]
        label = metric_label(str(metric))
        attack, _, radius = label.partition(" ")
        colour = RADII.get(radius, COLOURS[2] if label == "AutoAttack" else COLOURS[6])
        style = "--" if attack == "FGSM" else "-"
        axis.stairs(part["share"], edges, color=colour, linestyle=style, linewidth=1.1, label=label)
    filled = frame[frame["share"] > 0]
    axis.set_xlim(filled["low"].min(), filled["high"].max())
    axis.set_ylim(bottom=0)
    axis.set_xlabel(f"accuracy on {DATASET_LABELS[DATASET]} (fraction)")
    axis.set_ylabel(f"share of the cells per {WIDTH:g}")
    axis.legend(loc="upper left")
    return figure


def run(study: Study) -> Outcome:
    """Histograms of every accuracy on CIFAR-10."""
    frame = histogram(study.table)
    remarks = ["The paper calls the peak of the clean accuracy the most notable."]
    for kind, bins in (
        ("equal", f"width {WIDTH:g}"),
        ("scaled", f"1/{BINS} of the metric's range"),
    ):
        fullest = peaks(study.table)[kind].rename(metric_label)
        shares = ", ".join(f"{name} {share:.3f}" for name, share in fullest.items())
        remarks.append(
            f"With bins of {bins} {fullest.idxmax()} has the highest peak; "
            f"share of the cells in the fullest bin: {shares}."
        )
    configuration = {"table": study.table.name, "dataset": DATASET, "bin_width": WIDTH}
    clean = [peaks(study.table)[kind].rename(metric_label).idxmax() for kind in ("equal", "scaled")]
    finding = Finding(
        "The clean accuracy has the most notable peak",
        "clean",
        f"{clean[0]} with equal bins, {clean[1]} with bins of each metric's own range",
        "reproduced" if set(clean) == {"clean"} else "not decidable",
        "both ways to bin agree"
        if set(clean) == {"clean"}
        else "bins, which the paper does not give, decide",
    )
    return Outcome(frame, draw(frame), configuration, (*remarks, MEANS), (finding,))
