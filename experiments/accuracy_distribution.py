"""How the accuracies of the benchmark's cells are distributed (Figure 3a)."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.study import MEANS, Finding, Outcome, Study
from experiments.style import COLOURS, COLUMN, DATASET_LABELS, metric_label
from ntkscore.tables import Table

DATASET = "cifar10"
WIDTH = 0.01
BINS = 50
"""Over each metric's own range, for the second reading of the peaks."""
RADII = {"3/255": COLOURS[0], "8/255": COLOURS[1]}


def histogram(table: Table, dataset: str = DATASET, width: float = WIDTH) -> pd.DataFrame:
    """A line per metric and bin: its ends, as accuracies, and the share of the cells in it.

    Args:
        table: with the accuracies.
        dataset: of the table.
        width: of a bin, as a fraction that divides 1.
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
    """The share of the cells in a metric's fullest bin, by metric, for two kinds of bins.

    `equal` has bins of `WIDTH` for every metric, `own` has `BINS` bins over the metric's range.
    """
    equal = histogram(table, dataset).groupby("metric", sort=False)["share"].max()
    accuracies = {metric: table.accuracies(dataset, metric) for metric in equal.index}
    own = [np.histogram(values, BINS)[0].max() / len(values) for values in accuracies.values()]
    return pd.DataFrame({"equal": equal, "own": own})


def draw(frame: pd.DataFrame) -> Figure:
    """A step line per metric."""
    figure, axis = plt.subplots(figsize=(COLUMN, 0.85 * COLUMN))
    for metric, own in frame.groupby("metric", sort=False):
        edges = [*own["low"], own["high"].iloc[-1]]
        label = metric_label(str(metric))
        attack, _, radius = label.partition(" ")
        colour = RADII.get(radius, COLOURS[2] if label == "AutoAttack" else COLOURS[6])
        line = "--" if attack == "FGSM" else "-"
        axis.stairs(own["share"], edges, color=colour, linestyle=line, linewidth=1.1, label=label)
    shown = frame[frame["share"] > 0]
    axis.set_xlim(shown["low"].min(), shown["high"].max())
    axis.set_ylim(bottom=0)
    axis.set_xlabel(f"accuracy on {DATASET_LABELS[DATASET]} (fraction)")
    axis.set_ylabel(f"share of the cells per {WIDTH:g}")
    axis.legend(loc="upper left")
    return figure


def run(study: Study) -> Outcome:
    """Histograms of every accuracy on CIFAR-10."""
    frame = histogram(study.table)
    remarks = ["The paper calls the peak of the clean accuracy the most notable."]
    for kind, bins in (("equal", f"width {WIDTH:g}"), ("own", f"1/{BINS} of the metric's range")):
        fullest = peaks(study.table)[kind].rename(metric_label)
        shares = ", ".join(f"{name} {share:.3f}" for name, share in fullest.items())
        remarks.append(
            f"With bins of {bins} {fullest.idxmax()} has the highest peak; "
            f"share of the cells in the fullest bin: {shares}."
        )
    configuration = {"table": study.table.name, "dataset": DATASET, "bin_width": WIDTH}
    clean = [peaks(study.table)[kind].rename(metric_label).idxmax() for kind in ("equal", "own")]
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
