"""How scores of clean, robust and twice-perturbed kernels follow each accuracy (Figures 5 and 6).

Needs the rows of a run over the table's cells: `--results DIR`.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import rankdata, spearmanr

from experiments.study import Outcome, Study
from experiments.style import COLUMN, metric_label
from ntkscore.comparison import correlate
from ntkscore.config import format_rho
from ntkscore.selection import baselines, pick_rho, score_table

DATASET = "cifar10"
METRICS = (
    "val_acc",
    "val_fgsm_3_acc",
    "val_pgd_3_acc",
    "val_fgsm_8_acc",
    "val_pgd_8_acc",
    "autoattack",
)
KERNELS = ("clean", "robust", "twice")
DRAWN = ("frobenius", "trace", "lambda_min_normalized")
RESAMPLES = 1000


def partial_spearman(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> float:
    """Spearman of x and y at equal `given`: the correlation of what ranks of it leave over."""
    x, y, z = (rankdata(values) for values in (x, y, given))
    xy, xz, yz = (np.corrcoef(a, b)[0, 1] for a, b in ((x, y), (x, z), (y, z)))
    return float((xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2)))


def difference(
    a: np.ndarray, b: np.ndarray, accuracy: np.ndarray, seed: int, resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """Spearman of a less that of b, and the 95 % interval of the difference, paired by cell.

    Args:
        a, b: two scores of the same cells, shape (cells,).
        accuracy: theirs, a fraction.
        seed: of the bootstrap over cells.
        resamples: of it.
    """

    def gap(cells: np.ndarray) -> float:
        of = lambda score: spearmanr(score[cells], accuracy[cells]).statistic  # noqa: E731
        return float(of(a) - of(b))

    generator = np.random.default_rng(seed)
    n = len(accuracy)
    drawn = [gap(generator.integers(n, size=n)) for _ in range(resamples)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return gap(np.arange(n)), float(low), float(high)


def correlations(study: Study, rows: pd.DataFrame, rho: float) -> Iterator[pd.DataFrame]:
    """Agreement of every score at one radius with every metric, and what its seeds vary by."""
    part = pick_rho(rows, rho)
    scores = score_table(part)
    by_seed = {seed: score_table(group) for seed, group in part.groupby("seed")}
    params = baselines(list(scores.index))["params"]
    for metric in METRICS:
        frame = correlate(scores, study.table, DATASET, metric, RESAMPLES).set_index("score")
        accuracy = pd.Series(study.table.accuracies(DATASET, metric, list(scores.index)))
        accuracy.index = scores.index
        single = pd.DataFrame(
            {seed: alone.corrwith(accuracy, method="spearman") for seed, alone in by_seed.items()}
        )
        frame["lowest_seed"], frame["highest_seed"] = single.min(axis=1), single.max(axis=1)
        known = {name: values.dropna() for name, values in scores.items()}
        frame["given_params"] = pd.Series(
            {
                name: partial_spearman(values, accuracy[values.index], params[values.index])
                for name, values in known.items()
                if values.nunique() > 1
            }
        )
        yield frame.reset_index().assign(rho=rho, metric=metric)


def draw(frame: pd.DataFrame) -> Figure:
    """A row of panels per radius, a panel per score, a line per kernel over the metrics."""
    radii = sorted(frame["rho"].unique())
    figure, axes = plt.subplots(
        len(radii),
        len(DRAWN),
        figsize=(2 * COLUMN, 0.75 * COLUMN * len(radii)),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    places = range(len(METRICS))
    for line, rho in zip(axes, radii, strict=True):
        for axis, score in zip(line, DRAWN, strict=True):
            at = frame[frame["rho"] == rho].set_index(["score", "metric"])
            for kernel, marker in zip(KERNELS, "os^", strict=True):
                shown = at.loc[f"{kernel}.{score}"].loc[list(METRICS)]
                reach = [
                    shown["spearman"] - shown["spearman_low"],
                    shown["spearman_high"] - shown["spearman"],
                ]
                axis.errorbar(
                    places, shown["spearman"], reach, marker=marker, markersize=4, label=kernel
                )
            params = at.loc["params"].loc[list(METRICS)]
            axis.plot(places, params["spearman"], color="0.5", linestyle=":", label="parameters")
            axis.set_title(score)
            axis.set_xticks(places, [metric_label(metric) for metric in METRICS], rotation=40)
            axis.axhline(0, color="0.8", linewidth=0.6, zorder=0)
        line[0].set_ylabel(f"Spearman with accuracy\nkernels at ρ = {format_rho(rho)}")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def remarks(study: Study, rows: pd.DataFrame) -> Iterator[str]:
    """The paper's findings on the Frobenius norm, each with its measured difference."""
    yield f"{rows['cell'].nunique()} cells, seeds {sorted(rows['seed'].unique().tolist())}"
    for rho in sorted(rows["rho"].unique()):
        scores = score_table(pick_rho(rows, rho)).dropna()
        accuracy = {
            metric: study.table.accuracies(DATASET, metric, list(scores.index))
            for metric in METRICS
        }
        for metric in METRICS[1:]:
            robust, clean = (scores[f"{kernel}.frobenius"].to_numpy() for kernel in KERNELS[1::-1])
            gap, low, high = difference(robust, clean, accuracy[metric], study.seed)
            yield (
                f"ρ = {format_rho(rho)}, {metric_label(metric)}: the robust kernel's Frobenius "
                f"norm correlates by {gap:+.4f} [{low:+.4f}, {high:+.4f}] more than the clean one's"
            )


def run(study: Study) -> Outcome:
    """Correlate every score of the study's rows with every metric of CIFAR-10."""
    rows = study.rows
    frames = [
        frame for rho in sorted(rows["rho"].unique()) for frame in correlations(study, rows, rho)
    ]
    frame = pd.concat(frames, ignore_index=True)
    first = ["rho", "metric", "score"]
    return Outcome(
        frame[[*first, *frame.columns.drop(first)]],
        draw(frame),
        {"dataset": DATASET, "resamples": RESAMPLES, **study.run},
        tuple(remarks(study, rows)),
    )
