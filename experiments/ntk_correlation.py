"""How scores of clean, robust and twice-perturbed kernels follow each accuracy (Figures 5 and 6).

The paper's three findings are about the Frobenius norm, its NTK-score. All cells of the table at
FGSM 8/255; a seeded sample of them for FGSM at 3/255 and for PGD.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.contrasts import Contrast, Pair, contrast, partial_spearman, single_seeds
from experiments.study import Finding, Outcome, Study
from experiments.style import COLUMN, metric_label, score_label
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
ROBUST = METRICS[1:]
KERNELS = ("clean", "robust", "twice")
DRAWN = ("frobenius", "lambda_min", "lambda_min_normalized")
NTK_SCORE = "frobenius"
RESAMPLES = 500
FIRST = "robust NTKs correlate more with accuracy than the clean NTK"
SECOND = "the correlation grows with the radius of the accuracy metric"
THIRD = "FGSM kernels correlate more than PGD kernels"
RECORDINGS = (("space", 8), ("radii", 3), ("radii", 8), ("pgd-3", 3), ("pgd-8", 8))
"""Where scores come from, and at which radius in grey levels."""


@dataclass(frozen=True)
class Measured:
    """The scores of one recording at one radius, and the accuracies of the same cells."""

    study: Study
    recording: str
    rho: float

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Tidy rows, the joint kernels left out."""
        rows = pick_rho(self.study.rows(self.recording), self.rho)
        return rows[rows["kernel"].isin(KERNELS)]

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A line per cell, means over the seeds; NaN where one failed."""
        return score_table(self.rows)

    @cached_property
    def by_seed(self) -> list[pd.DataFrame]:
        """The same, a seed at a time."""
        tables = (score_table(rows) for rows in single_seeds(self.rows).values())
        return [table.reindex(self.scores.index) for table in tables]

    @cached_property
    def measured(self) -> pd.Index:
        """The cells whose NTK-scores did not fail with any seed."""
        names = [f"{kernel}.{NTK_SCORE}" for kernel in KERNELS]
        return self.scores[names].dropna().index

    def pairs(self, score: str, metric: str, cells: pd.Index) -> list[Pair]:
        """The score against the metric: means over the seeds, then every seed alone."""
        accuracy = self.study.table.accuracies(DATASET, metric, list(cells))
        tables = (self.scores, *self.by_seed)
        return [Pair(table.loc[cells, score].to_numpy(), accuracy) for table in tables]

    @property
    def title(self) -> str:
        """Attack, radius, number of cells and of seeds."""
        attack = self.rows["attack"].iloc[0].upper()
        seeds = "1 seed" if len(self.by_seed) == 1 else f"{len(self.by_seed)} seeds"
        return f"{attack} {format_rho(self.rho)}, {len(self.measured):,} cells, {seeds}"


def compare(first: tuple[Measured, str, str], second: tuple[Measured, str, str]) -> Contrast:
    """Of two (scores, name, metric) with the same seeds, on the cells that both have."""
    (a, *_), (b, *_) = first, second
    cells = a.measured.intersection(b.measured)
    (mean, *alone), (other, *other_alone) = (
        scores.pairs(name, metric, cells) for scores, name, metric in (first, second)
    )
    seeds = list(zip(alone, other_alone, strict=True))
    return contrast(mean, other, seeds, a.study.seed, RESAMPLES)


def correlations(measured: Measured) -> Iterator[pd.DataFrame]:
    """Agreement of every score with every metric, and what its seeds vary by."""
    scores = measured.scores
    params = baselines(list(scores.index))["params"].to_numpy()
    for metric in METRICS:
        accuracy = measured.study.table.accuracies(DATASET, metric, list(scores.index))
        frame = correlate(scores, measured.study.table, DATASET, metric, RESAMPLES)
        frame = frame.set_index("score")
        target = pd.Series(accuracy, index=scores.index)
        single = pd.DataFrame([t.corrwith(target, method="spearman") for t in measured.by_seed])
        frame["lowest_seed"], frame["highest_seed"] = single.min(), single.max()
        given = {}
        for name, values in scores.items():
            known = values.notna().to_numpy()
            given[name] = partial_spearman(values[known], accuracy[known], params[known])
        frame["given_params"] = pd.Series(given)
        head = {"recording": measured.recording, "attack": measured.rows["attack"].iloc[0]}
        head |= {"rho": measured.rho, "metric": metric}
        yield frame.reset_index().assign(**head)


def draw(frame: pd.DataFrame, titles: list[str]) -> Figure:
    """A row of panels per recording and radius, a panel per score, a line per kernel."""
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
    for line, title, (_, group) in zip(axes, titles, groups, strict=True):
        at = group.set_index(["score", "metric"])
        for axis, score in zip(line, DRAWN, strict=True):
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
            axis.set_xticks(places, [metric_label(metric) for metric in METRICS], rotation=40)
            axis.axhline(0, color="0.8", linewidth=0.6, zorder=0)
        line[0].set_ylabel(f"Spearman\n{title}".replace(", ", "\n"))
    for axis, score in zip(axes[0], DRAWN, strict=True):
        axis.set_title(score_label(score))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def robust_above_clean(measured: Measured) -> Iterator[Finding]:
    """The first finding, for every robust metric."""
    for metric in ROBUST:
        found = compare(
            (measured, f"robust.{NTK_SCORE}", metric), (measured, f"clean.{NTK_SCORE}", metric)
        )
        yield found.finding(
            f"Robust NTK above clean NTK, {metric_label(metric)} accuracy ({measured.title})",
            "above",
            FIRST,
        )


def grows_with_radius(measured: Measured) -> Iterator[Finding]:
    """The second finding: from the clean metric to 3/255 to 8/255, for the robust kernel."""
    steps = (
        ("val_fgsm_3_acc", "val_acc"),
        ("val_fgsm_8_acc", "val_fgsm_3_acc"),
        ("val_pgd_3_acc", "val_acc"),
        ("val_pgd_8_acc", "val_pgd_3_acc"),
    )
    for larger, smaller in steps:
        score = f"robust.{NTK_SCORE}"
        found = compare((measured, score, larger), (measured, score, smaller))
        yield found.finding(
            f"Correlation grows from {metric_label(smaller)} to {metric_label(larger)} accuracy "
            f"({measured.title})",
            "grows",
            SECOND,
        )


def fgsm_above_pgd(fgsm: Measured, pgd: Measured) -> Iterator[Finding]:
    """The third finding."""
    for kernel in KERNELS[1:]:
        score = f"{kernel}.{NTK_SCORE}"
        for metric in ("val_pgd_3_acc", "val_pgd_8_acc"):
            found = compare((fgsm, score, metric), (pgd, score, metric))
            yield found.finding(
                f"FGSM above PGD, {kernel} NTK at {format_rho(fgsm.rho)}, {metric_label(metric)} "
                f"accuracy ({len(pgd.measured):,} cells)",
                "above",
                THIRD,
            )


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A line per recording and kernel: the NTK-score's coefficients, and what its seeds span."""
    part = frame[frame["score"].isin([f"{kernel}.{NTK_SCORE}" for kernel in KERNELS])]
    cells = [
        f"{line.spearman:.3f} [{line.spearman_low:.3f}, {line.spearman_high:.3f}]"
        + f", seeds {line.lowest_seed:.3f} to {line.highest_seed:.3f}"
        * bool(line.lowest_seed < line.highest_seed)
        for line in part.itertuples()
    ]
    part = part.assign(shown=cells, metric=part["metric"].map(metric_label))
    part = part.assign(attack=part["attack"].str.upper() + " " + part["rho"].map(format_rho))
    wide = part.pivot(index=["attack", "score", "n"], columns="metric", values="shown")
    return wide[[metric_label(metric) for metric in METRICS]].reset_index()


def run(study: Study) -> Outcome:
    """Correlate every recorded score with every metric of CIFAR-10, and test the findings."""
    found = {(name, level): Measured(study, name, level / 255) for name, level in RECORDINGS}
    frames = [frame for measured in found.values() for frame in correlations(measured)]
    frame = pd.concat(frames, ignore_index=True)
    space = found["space", 8]
    findings = (
        *robust_above_clean(space),
        *robust_above_clean(found["pgd-3", 3]),
        *robust_above_clean(found["pgd-8", 8]),
        *grows_with_radius(space),
        *grows_with_radius(found["pgd-8", 8]),
        *fgsm_above_pgd(found["radii", 3], found["pgd-3", 3]),
        *fgsm_above_pgd(space, found["pgd-8", 8]),
    )
    first = ["recording", "attack", "rho", "metric", "score"]
    return Outcome(
        frame[[*first, *frame.columns.drop(first)]],
        draw(frame, [measured.title for measured in found.values()]),
        {
            "dataset": DATASET,
            "resamples": RESAMPLES,
            "recordings": study.configurations(dict(RECORDINGS)),
        },
        (),
        findings,
        summary(frame),
    )
