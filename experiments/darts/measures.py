"""Every train-free measure of 223 DARTS cells against their accuracy, and given counts.

Kendall's τ-b with an interval from a bootstrap over cells; the partial Spearman coefficient given
counts, `experiments.ours.equal_counts.partials`; and τ within tenths of the cells by size, over the
pairs of cells of the same tenth, whose bootstrap resamples the cells of each tenth.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import kendalltau, rankdata, spearmanr

from cells.darts import Darts
from cells.darts.counts import DILATED, POOLS, SEPARABLE
from cells.darts.genotype import SKIP
from experiments.ours.equal_counts import partials, with_interval
from experiments.ours.measures import with_counts
from experiments.plotting import COLOURS, COLUMN, annotate, score_label
from experiments.study import (
    DATASET,
    METRIC,
    OURS,
    Finding,
    Outcome,
    Study,
    interval,
    single_seeds,
    verdict,
)
from ntkscore.analysis.correlation import draws
from ntkscore.analysis.paired import left_by
from ntkscore.errors import InputError
from ntkscore.measures.declaration import direction_of

SPACE = Darts()
_ONE = SPACE.parse("DARTS")
COUNTED = {*SPACE.costs(_ONE), *SPACE.structure(_ONE)}
TRAINED = "darts/trained"
SIZES = {
    "darts/trained": "C = 16, L = 8",
    "darts/small": "C = 8, L = 8",
    "darts/shallow": "C = 8, L = 5",
}
"""Recordings, and the sizes of their networks."""
KINDS = {"sep": SEPARABLE, "dil": DILATED, "pool": POOLS, "skip": (SKIP,)}
NORMAL = {f"normal_{name}": kinds for name, kinds in KINDS.items()}
"""Operations of the normal cell alone; `n_sep` and the others count both cells."""
HELD_EQUAL = (
    "params",
    "flops",
    "layers",
    *(f"n_{name}" for name in KINDS),
    *NORMAL,
    "depth",
    "field",
)
"""Counts that the partial correlation holds equal, by their ranks and the squares of these."""
TENTHS = 10
RESAMPLES = 500
PERMUTATIONS = 200
TOLERANCE = 0.03
"""Difference from a printed τ that the draw of weights and images explains."""
PRINTED = {
    "network.synflow": 0.233,
    "clean.grad_norm": 0.174,
    "clean.snip": 0.171,
    "clean.jacov": -0.027,
}
"""Kendall's τ of published proxies with PGD-7 accuracy, as the table's authors print it."""
LAST = "val_pgd_8_acc_last"
SHOWN = 30


def accuracy_of(study: Study, cells: Sequence[Any], metric: str = METRIC) -> np.ndarray:
    """Accuracies of genotypes."""
    return study.darts.accuracies(DATASET, metric, cells)


def with_normal(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores, and as further columns the counts of the normal cell's operations."""
    operations = [[o for o, _ in SPACE.parse(key).normal] for key in scores.index]
    counted = {
        name: [sum(o in kinds for o in cell) for cell in operations]
        for name, kinds in NORMAL.items()
    }
    return scores.assign(**counted)


def beside_counts(scores: pd.DataFrame) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of the measures that are no counts, their values, and the counts to hold equal."""
    measures = [name for name in map(str, scores) if name not in COUNTED]
    values, given = scores[measures], with_normal(scores)[list(HELD_EQUAL)]
    return measures, values.to_numpy(float), given.to_numpy(float)


def refuse_missing(scores: pd.DataFrame) -> None:
    """Refuse scores of which one failed: each number here is of all cells."""
    if failed := [name for name in map(str, scores) if scores[name].isna().any()]:
        raise InputError(
            f"expected every score of every cell, but {', '.join(failed)} failed for some; record "
            "them again"
        )


def taus(
    values: Float[np.ndarray, " cells"], accuracy: Float[np.ndarray, " cells"], seed: int = 0
) -> Float[np.ndarray, " resamples"]:
    """Kendall's τ-b: first of all cells, then of cells drawn with replacement."""
    drawn = (np.arange(len(values)), *draws(len(values), RESAMPLES, seed))
    return np.array([kendalltau(values[cells], accuracy[cells])[0] for cells in drawn])


def within_tenths(
    values: Float[np.ndarray, " cells"],
    accuracy: Float[np.ndarray, " cells"],
    params: Float[np.ndarray, " cells"] | Int[np.ndarray, " cells"],
    seed: int = 0,
) -> tuple[float, float, float]:
    """τ over the pairs of cells of the same tenth by size, and its 95 % interval."""
    rng, sums = np.random.default_rng(seed), np.zeros((3, RESAMPLES + 1))
    for tenth in np.array_split(np.argsort(params, kind="stable"), TENTHS):
        x, a = (np.sign(np.subtract.outer(of[tenth], of[tenth])) for of in (values, accuracy))
        drawn = rng.multinomial(len(tenth), np.full(len(tenth), 1 / len(tenth)), RESAMPLES)
        weights = np.vstack([np.ones(len(tenth)), drawn])
        for k, products in enumerate((x * a, x * x, a * a)):
            sums[k] += np.einsum("ri,ij,rj->r", weights, products, weights, optimize=True)
    return with_interval(sums[0] / np.sqrt(np.maximum(sums[1] * sums[2], 1)))


def examine(study: Study) -> Iterator[dict[str, object]]:
    """A row for each size of network and measure."""
    for recording, label in SIZES.items():
        rows = study.rows(recording)
        scores = with_counts(rows, SPACE)
        refuse_missing(scores)
        accuracy = accuracy_of(study, scores.index)
        measures, asked, given = beside_counts(scores)
        beside = partials(asked, accuracy, given, RESAMPLES, study.seed)
        seeds = [with_counts(part, SPACE) for part in single_seeds(rows)]
        for name in map(str, scores):
            values = scores[name].to_numpy(float)
            tau, low, high = with_interval(taus(values, accuracy, study.seed))
            alone = [kendalltau(one[name], accuracy)[0] for one in seeds]
            near, near_low, near_high = within_tenths(
                values, accuracy, scores["params"].to_numpy(), study.seed
            )
            row = {
                "networks": label,
                "measure": name,
                "cells": len(values),
                "kendall": tau,
                "low": low,
                "high": high,
                "spearman": float(spearmanr(values, accuracy)[0]),
                "least_seed": min(alone),
                "most_seed": max(alone),
                "equal_size": near,
                "equal_size_low": near_low,
                "equal_size_high": near_high,
            }
            if name in measures:
                place = measures.index(name)
                part = with_interval(beside[:, place])
                row |= zip(("beside", "beside_low", "beside_high"), part, strict=True)
            yield row


def chance(study: Study) -> float:
    """The 95th percentile of the largest |partial coefficient| of all measures by chance.

    What the counts leave of the accuracies' ranks is permuted; what they explain stays.
    """
    scores, rng = with_counts(study.rows(TRAINED), SPACE), np.random.default_rng(study.seed)
    _, values, given = beside_counts(scores)
    ranks = rankdata(accuracy_of(study, scores.index))
    others = rankdata(given, axis=0).T
    others -= others.mean(1, keepdims=True)
    (left,) = left_by(others, ranks[None], squares=True)
    largest = [
        np.abs(partials(values, ranks - left + rng.permutation(left), given)).max()
        for _ in range(PERMUTATIONS)
    ]
    return float(np.quantile(largest, 0.95))


def leading(frame: pd.DataFrame) -> list[str]:
    """The measures that agree best at the trained size, by |τ|."""
    part = frame[frame["networks"] == SIZES[TRAINED]]
    return list(part.set_index("measure")["kendall"].abs().sort_values(ascending=False).index)


def table(frame: pd.DataFrame) -> Iterator[dict[str, object]]:
    """The leading measures and the printed ones: a row each."""
    parts = {
        label: frame[frame["networks"] == label].set_index("measure") for label in SIZES.values()
    }
    first, names = parts[SIZES[TRAINED]], leading(frame)
    for name in [*names[:SHOWN], *(name for name in PRINTED if name not in names[:SHOWN])]:
        one = first.loc[name]
        row: dict[str, object] = {
            "measure": name,
            "τ": interval_text(one, "kendall", "low", "high"),
        }
        for label, part in parts.items():
            if label != SIZES[TRAINED]:
                row[f"τ, {label}"] = f"{part.loc[name, 'kendall']:.3f}"
        row["ρ"] = f"{one['spearman']:.3f}"
        row["τ of the seeds"] = f"{one['least_seed']:.3f} to {one['most_seed']:.3f}"
        row["ρ beside counts"] = interval_text(one, "beside", "beside_low", "beside_high")
        row["τ within tenths by size"] = interval_text(
            one, "equal_size", "equal_size_low", "equal_size_high"
        )
        row["printed τ"] = f"{PRINTED[name]:.3f}" if name in PRINTED else ""
        yield row


def interval_text(row: Any, *columns: str) -> str:
    """A value and its interval, from three columns of a row; "" where it is not a number."""
    value, low, high = (float(row[column]) for column in columns)
    return "" if np.isnan(value) else interval(value, low, high)


def draw(frame: pd.DataFrame) -> Figure:
    """A row per measure: τ at every size of networks, and the partial coefficient."""
    names = leading(frame)[:SHOWN]
    figure, axes = plt.subplots(1, 2, figsize=(2.4 * COLUMN, 0.6 + 0.17 * len(names)), sharey=True)
    for colour, label in zip(COLOURS, SIZES.values(), strict=False):
        part = frame[frame["networks"] == label].set_index("measure").reindex(names)
        axes[0].plot(
            part["kendall"].abs(), range(len(names)), "o", color=colour, markersize=3, label=label
        )
        if label == SIZES[TRAINED]:
            ends = part[["beside_low", "beside_high"]].to_numpy().T
            axes[1].hlines(range(len(names)), *ends, color=colour, linewidth=0.8)
            axes[1].plot(part["beside"], range(len(names)), "o", color=colour, markersize=3)
    axes[0].set_title("|τ| with accuracy")
    axes[1].set_title("Spearman beside counts")
    axes[1].axvline(0, color="black", linewidth=0.5)
    for axis in axes:
        axis.grid(axis="y", linewidth=0.3)
    axes[0].set_xlim(0, None)
    axes[0].set_yticks(range(len(names)), map(score_label, names), fontsize=7)
    axes[0].invert_yaxis()
    annotate(figure, axes[0], "223 DARTS cells, PGD-7 accuracy of the best epoch", 3)
    return figure


def findings(frame: pd.DataFrame, study: Study) -> Iterator[Finding]:
    """What the authors of the table print, beside ours; and whether anything beats counting."""
    part = frame[frame["networks"] == SIZES[TRAINED]].set_index("measure")
    for name, printed in PRINTED.items():
        one = part.loc[name]
        low, high = (float(one[end]) for end in ("least_seed", "most_seed"))
        sure = float(one["low"]) > 0 or float(one["high"]) < 0
        near = low - TOLERANCE <= printed <= high + TOLERANCE
        outside = not float(one["low"]) <= printed <= float(one["high"])
        yield Finding(
            f"Kendall's τ of {score_label(name)} with PGD-7 accuracy",
            f"{printed:.3f}",
            f"{interval_text(one, 'kendall', 'low', 'high')}; seeds {low:.3f} to {high:.3f}",
            verdict(near and sure, wrong=outside and not near),
            f"reproduced within {TOLERANCE} of the range of our three seeds where our interval "
            "leaves 0 out; not reproduced outside of both range and interval",
        )
    bound, beside = chance(study), part["beside"].dropna()
    best = str(beside.abs().idxmax())
    one = part.loc[best]
    sure = (part["beside_low"] > 0) | (part["beside_high"] < 0)
    largest = interval_text(one, "beside", "beside_low", "beside_high")
    yield Finding(
        "some measure agrees with accuracy beside counts",
        OURS,
        f"largest: {score_label(best)}, {largest}; {int(sure.sum())} of {len(beside)} "
        f"intervals leave 0 out, about {len(beside) / 20:.0f} would by chance",
        verdict(abs(float(one["beside"])) > bound),
        f"reproduced where the largest of the {len(beside)} exceeds {bound:.3f}, the 95th "
        f"percentile of the largest over {PERMUTATIONS} permutations of what the counts leave "
        "of the accuracies' ranks",
    )


def reversed_signs(frame: pd.DataFrame) -> str:
    """A sentence on the measures that order these cells the other way than they claim to."""
    part = frame[frame["networks"] == SIZES[TRAINED]].set_index("measure").drop([*COUNTED])
    way = pd.Series({name: direction_of(str(name), SPACE.fewer) for name in part.index})
    wrong = part[((way > 0) & (part["high"] < 0)) | ((way < 0) & (part["low"] > 0))]
    names = ", ".join(score_label(str(name)) for name in wrong.index)
    return (
        f"{len(wrong)} of {len(part)} measures surely order these cells the other way than they "
        f"claim to: {names or 'none'}."
    )


def run(study: Study) -> Outcome:
    """The table of all measures of the DARTS cells."""
    frame = pd.DataFrame(examine(study))
    cells = study.rows(TRAINED)["genotype"].unique()
    noise = kendalltau(*(accuracy_of(study, cells, metric) for metric in (METRIC, LAST)))[0]
    return Outcome(
        frame,
        draw(frame),
        {"recordings": study.configurations(SIZES), "table": study.darts.name}
        | {"held_equal": HELD_EQUAL, "resamples": RESAMPLES, "permutations": PERMUTATIONS},
        (
            f"{len(cells)} genotypes of Tiny-RobustBench, means of three seeds of weights and "
            "images. Each genotype was trained once, so the noise of training is unknown. τ "
            "between accuracies of the best epoch, which the test images choose, and of the last "
            f"epoch of the same training is {noise:.3f}.",
            f"Beside counts: the partial Spearman coefficient given {', '.join(HELD_EQUAL)}. All "
            "intervals are of 95 %, by bootstrap over cells; within tenths by size, over the cells "
            "of each tenth.",
            reversed_signs(frame),
        ),
        findings=tuple(findings(frame, study)),
        summary=pd.DataFrame(table(frame)),
        kept=True,
    )
