"""Correlation of kernel scores with every accuracy (Figures 5 and 6).

The paper's three findings are about the Frobenius norm, its NTK-score. They are tested under our
default convention and under that of KNAS, which the paper says it follows, there with two
initialisers: on all cells of the table at 8/255 under the default convention, on a seeded sample
of them otherwise.
"""

from collections.abc import Iterator
from itertools import pairwise

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.paper.contrasts import NTK_SCORE, Correlation, RecordedScores
from experiments.plotting import COLUMN, metric_label, score_label
from experiments.recordings import CALIBRATED_SUM, DRAWN, FINDINGS, HE_FAN_OUT, INSTANCE_LOSS
from experiments.study import (
    DATASET,
    FIRST,
    KERNELS,
    METRIC,
    METRICS,
    OURS,
    RESAMPLES,
    SECOND,
    SPACE,
    THIRD,
    Finding,
    Outcome,
    Study,
    interval,
)
from ntkscore.analysis.correlation import spearman
from ntkscore.analysis.frames import cost_table
from ntkscore.analysis.paired import partial_spearman
from ntkscore.api.accuracies import correlate
from ntkscore.text import format_rho

ALL_CELLS = ("space", 8), ("space-pgd", 8)
TESTED = (*ALL_CELLS, *((name, level) for name in FINDINGS for level in (3, 8)))
RECORDINGS = (*TESTED, ("radii", 3))
"""Recordings and radii, in grey levels, of the scores."""
PAIRS = (
    ALL_CELLS,
    *(
        ((f"findings/{convention}-fgsm", level), (f"findings/{convention}-pgd", level))
        for convention in (CALIBRATED_SUM, INSTANCE_LOSS, HE_FAN_OUT)
        for level in (3, 8)
    ),
)
"""Those of FGSM beside those of PGD, settings equal otherwise."""
_INITIALISERS = HE_FAN_OUT, INSTANCE_LOSS


def correlations(scores: RecordedScores) -> Iterator[pd.DataFrame]:
    """Agreement of every score with every metric, with the range over single seeds."""
    means = scores.means
    params = cost_table(means.index, SPACE)["params"]
    for metric in METRICS:
        accuracy = scores.study.accuracy(means.index, metric)
        how = {"space": SPACE, "resamples": RESAMPLES}
        frame = correlate(means, scores.study.table, DATASET, metric, **how)
        single = pd.DataFrame(
            [{name: spearman(table[name], accuracy) for name in table} for table in scores.by_seed]
        )
        partial = {name: partial_spearman(means[name], accuracy, params) for name in means}
        yield frame.assign(
            lowest_seed=frame["score"].map(single.min()),
            highest_seed=frame["score"].map(single.max()),
            given_params=frame["score"].map(partial),
            recording=scores.recording,
            convention=scores.convention,
            fidelity=scores.fidelity,
            attack=scores.attack,
            rho=scores.rho,
            metric=metric,
        )


def draw(frame: pd.DataFrame, titles: list[str]) -> Figure:
    """Panels by recording and score: coefficients over the metrics, a curve per kernel."""
    figure, axes = plt.subplots(
        len(titles),
        len(DRAWN),
        figsize=(2 * COLUMN, 0.55 * COLUMN * len(titles)),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    places = range(len(METRICS))
    groups = frame.groupby(["recording", "rho"], sort=False)
    for row, title, (_, group) in zip(axes, titles, groups, strict=True):
        by_score = group.set_index(["score", "metric"])
        for axis, score in zip(row, DRAWN, strict=True):
            for kernel, marker in zip(KERNELS, "os^", strict=True):
                curve = by_score.loc[f"{kernel}.{score}"].loc[list(METRICS)]
                reach = [
                    curve["spearman"] - curve["spearman_low"],
                    curve["spearman_high"] - curve["spearman"],
                ]
                axis.errorbar(
                    places, curve["spearman"], reach, marker=marker, markersize=4, label=kernel
                )
            params = by_score.loc["params"].loc[list(METRICS)]
            axis.plot(places, params["spearman"], color="0.5", linestyle=":", label="parameters")
            axis.set_xticks(places, [metric_label(metric) for metric in METRICS], rotation=40)
            axis.axhline(0, color="0.8", linewidth=0.6, zorder=0)
        row[0].set_ylabel(f"Spearman\n{title}".replace(", ", "\n"))
    for axis, score in zip(axes[0], DRAWN, strict=True):
        axis.set_title(score_label(score))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def robust_above_clean(scores: RecordedScores) -> Iterator[Finding]:
    """Parts of the first finding, one for every attacked kernel and robust metric."""
    for kernel, named in (("robust", "Robust"), ("twice", "Twice-perturbed")):
        for metric in METRICS[1:]:
            first, clean = (Correlation(scores, name, metric) for name in (kernel, "clean"))
            what = f"{named} NTK above clean NTK, {metric_label(metric)} accuracy ({scores.title})"
            yield first.exceeds(clean, what, "above", FIRST)


def grows_with_radius(scores: RecordedScores) -> Iterator[Finding]:
    """Parts of the second finding: from the clean metric to 3/255 to 8/255, robust kernel."""
    for attack in ("fgsm", "pgd"):
        for smaller, larger in pairwise(("val_acc", f"val_{attack}_3_acc", f"val_{attack}_8_acc")):
            less, more = (Correlation(scores, "robust", name) for name in (smaller, larger))
            what = (
                f"Correlation grows from {metric_label(smaller)} to {metric_label(larger)} "
                f"accuracy ({scores.title})"
            )
            by_size = (spearman_of_size(scores.study, scores.cells, m) for m in (smaller, larger))
            rival = "parameter count: {:.3f} to {:.3f}".format(*by_size)
            yield more.exceeds(less, what, "grows", SECOND, rival)


def spearman_of_size(study: Study, cells: pd.Index, metric: str) -> float:
    """Spearman of the parameter count with a metric, on some cells."""
    return spearman(cost_table(cells, SPACE)["params"], study.accuracy(cells, metric))


def fgsm_above_pgd(fgsm: RecordedScores, pgd: RecordedScores) -> Iterator[Finding]:
    """Parts of the third finding, by kernel and metric."""
    for kernel in KERNELS[1:]:
        for metric in ("val_pgd_3_acc", "val_pgd_8_acc"):
            first, second = (Correlation(scores, kernel, metric) for scores in (fgsm, pgd))
            what = (
                f"FGSM above PGD, {kernel} NTK at {format_rho(fgsm.rho)}, {metric_label(metric)} "
                f"accuracy ({len(pgd.cells):,} cells, {pgd.convention})"
            )
            yield first.exceeds(second, what, "above", THIRD)


def across_initialisers(drawn: RecordedScores, usual: RecordedScores) -> Finding:
    """The robust kernel of He's weights against the clean one of PyTorch's, on the same cells."""
    robust, clean = (
        Correlation(scores, kernel, METRIC)
        for scores, kernel in ((drawn, "robust"), (usual, "clean"))
    )
    what = (
        f"Robust NTK of He's weights above clean NTK of PyTorch's, {metric_label(METRIC)} accuracy "
        f"({drawn.title})"
    )
    return robust.exceeds(clean, what, OURS, "")


def coefficient_text(row: pd.Series) -> str:
    """A coefficient with its interval, and the range over single seeds if they differ."""
    text = interval(*row[["spearman", "spearman_low", "spearman_high"]])
    if row["lowest_seed"] < row["highest_seed"]:
        text += f", seeds {row['lowest_seed']:.3f} to {row['highest_seed']:.3f}"
    return text


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """The NTK-score's coefficients, a row per recording and kernel."""
    part = frame[frame["score"].isin([f"{kernel}.{NTK_SCORE}" for kernel in KERNELS])]
    part = part.assign(
        coefficient=part.apply(coefficient_text, axis=1),
        metric=part["metric"].map(metric_label),
        attack=part["attack"].str.upper() + " " + part["rho"].map(format_rho),
    )
    wide = part.pivot(
        index=["convention", "attack", "fidelity", "score", "n"],
        columns="metric",
        values="coefficient",
    )
    return wide[[metric_label(metric) for metric in METRICS]].reset_index()


def run(study: Study) -> Outcome:
    """Correlations of every recorded score with every metric, and tests of the findings."""
    scores = {(name, level): RecordedScores(study, name, level / 255) for name, level in RECORDINGS}
    frames = [frame for recorded in scores.values() for frame in correlations(recorded)]
    frame = pd.concat(frames, ignore_index=True)
    tested = [scores[name] for name in TESTED]
    findings = (
        *(part for one in tested for part in robust_above_clean(one)),
        *(part for one in tested for part in grows_with_radius(one)),
        *(part for fgsm, pgd in PAIRS for part in fgsm_above_pgd(scores[fgsm], scores[pgd])),
        *(
            across_initialisers(*(scores[f"findings/{name}-{attack}", 8] for name in _INITIALISERS))
            for attack in ("fgsm", "pgd")
        ),
    )
    first = ["recording", "convention", "fidelity", "attack", "rho", "metric", "score"]
    return Outcome(
        frame[[*first, *frame.columns.drop(first)]],
        draw(frame, [recorded.title for recorded in scores.values()]),
        {
            "dataset": DATASET,
            "resamples": RESAMPLES,
            "recordings": study.configurations(dict(RECORDINGS)),
        },
        (),
        findings,
        summary(frame),
    )
