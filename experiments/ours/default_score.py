"""The default score, by a protocol that was written down before it was run.

1. Candidates are all sums of log-ranks of one to five of `TERMS`.
2. A random half of the table's cells chooses the one with the largest sum of two Spearman
   coefficients with PGD 8/255 accuracy on CIFAR-10: over all cells of the half, and in its top
   10 %.
3. The other half, and the other data sets' accuracies of the other half, say what it is worth.
   Ranks are those among the cells of a half.
4. `SPLITS` such splits. The default is the sum that is chosen most often, the better one on its
   choosing halves if several are.
5. The same with fewer terms to choose from, by `FAMILIES`, so that one sees what kernels add.

Measures of the weights' gradients were recorded when the default had been chosen; they are a family
of their own, which has all terms beside them.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import rankdata

from experiments.ours.measures import measured, recorded, settings, with_counts
from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS, metric_label
from experiments.study import DATASET, METRIC, Outcome, Study, single_seeds, sum_named
from ntkscore.analysis.agreement import agreement
from ntkscore.analysis.correlation import centred_ranks, rank_codes
from ntkscore.analysis.score_names import DEFAULT

COUNTED = ("params", "layers", "path_convs", "path_pools", "longest_path", "field")
PROXIES = (
    "network.synflow",
    "clean.naswot",
    "clean.expressivity",
    "robust.expressivity",
    "clean.jacov",
    "robust.jacov",
    "clean.epe_nas",
    "clean.trainability",
)
OF_KERNELS = (
    "clean.lambda_min_normalized",
    "robust.lambda_min_normalized",
    "clean.effective_rank",
)
TERMS = COUNTED + PROXIES + OF_KERNELS
OF_WEIGHTS = ("clean.vkdnw", "clean.fisher_entropy", "clean.zico")
MOST_TERMS = 5
SPLITS = 20
TOP = 0.1
FAMILIES = {
    "any terms": TERMS,
    "without kernels": COUNTED + PROXIES,
    "kernels and counts": COUNTED + OF_KERNELS,
    "counts alone": COUNTED,
    "any and the weights' gradients": TERMS + OF_WEIGHTS,
}
FIXED = {
    "parameter count": "params",
    "the default": str(DEFAULT),
    "the default before": "params+flops+clean.lambda_min_normalized",
}
AT_ONCE = 256
"""Sums that are ranked at once."""


class Half(NamedTuple):
    """Some cells: log-ranks of all terms among them (cells, terms), and accuracies by data set."""

    log_ranks: np.ndarray
    accuracies: dict[str, np.ndarray]


def direct(scores: pd.DataFrame, terms: Sequence[str]) -> pd.DataFrame:
    """The terms' columns, larger for a better cell."""
    return pd.DataFrame({term: sum_named(term).of(scores) for term in terms})


def half_of(values: pd.DataFrame, accuracies: dict[str, np.ndarray], cells: np.ndarray) -> Half:
    """The half with these cells, by position."""
    ranks = rankdata(values.to_numpy()[cells], axis=0)
    return Half(np.log(ranks), {name: column[cells] for name, column in accuracies.items()})


def sums_of(terms: Sequence[str], among: Sequence[str]) -> np.ndarray:
    """All sums of up to `MOST_TERMS` terms, a column each of zeros and ones (terms, sums).

    The rows are all terms; those in `among` may be added up.
    """
    places = [list(terms).index(term) for term in among]
    counts = range(1, MOST_TERMS + 1)
    chosen = [sum_ for count in counts for sum_ in itertools.combinations(places, count)]
    members = np.zeros((len(terms), len(chosen)))
    for column, sum_ in enumerate(chosen):
        members[list(sum_), column] = 1
    return members


def criterion(half: Half, members: np.ndarray) -> np.ndarray:
    """Spearman over all cells plus that in the top 10 %, for every sum (sums,)."""
    accuracy = half.accuracies[DATASET]
    best = np.argsort(-accuracy, kind="stable")[: round(TOP * len(accuracy))]
    total = np.zeros(members.shape[1])
    for cells in (np.arange(len(accuracy)), best):
        target = centred_ranks(rank_codes(accuracy[cells]))
        target /= np.linalg.norm(target)
        for start in range(0, members.shape[1], AT_ONCE):
            some = slice(start, start + AT_ONCE)
            values = half.log_ranks[cells] @ members[:, some]
            # Sums of the same logarithms in another order are equal.
            ranks = rankdata(np.round(values, 9), axis=0)
            ranks -= ranks.mean(0)
            lengths = np.linalg.norm(ranks, axis=0)
            total[some] += target @ ranks / np.where(lengths > 0, lengths, np.inf)
    return total


def worth(half: Half, member: np.ndarray) -> Iterator[tuple[str, dict[str, float]]]:
    """The agreement and the picks of a sum on a half, by data set."""
    values = np.round(half.log_ranks @ member, 9)
    for dataset, accuracy in half.accuracies.items():
        of = agreement(values, accuracy, resamples=1)  # its interval is not looked at
        numbers = {
            "spearman": of.spearman,
            "top10": of.spearman_top10,
            "best_accuracy": of.best_accuracy,
            "best_rank": of.best_accuracy_rank or 0,
            "first_ten": of.first_ten_accuracy,
        }
        yield dataset, numbers


def name_of(terms: Sequence[str], member: np.ndarray) -> str:
    """The sum's name."""
    return "+".join(term for term, inside in zip(terms, member, strict=True) if inside)


def splits(study: Study, scores: pd.DataFrame) -> Iterator[dict[str, object]]:
    """A row for each split, family (or fixed sum) and data set: the chosen sum and its worth."""
    present = [term for term in (*TERMS, *OF_WEIGHTS, "flops") if term in scores]
    values = direct(scores, present).dropna()
    accuracies = study.accuracies(values.index)
    members = sums_of(present, [term for term in TERMS + OF_WEIGHTS if term in present])
    # A family's sums are those of all in which no other term stands.
    families = {
        family: np.flatnonzero(~members[[term not in terms for term in present]].any(0))
        for family, terms in FAMILIES.items()
    }
    fixed = {
        label: np.array([term in name.split("+") for term in present], float)
        for label, name in FIXED.items()
    }
    rng = np.random.default_rng(study.seed)
    for split in range(SPLITS):
        order = rng.permutation(len(values))
        middle = len(values) // 2
        choosing, held_out = (
            half_of(values, accuracies, np.sort(part)) for part in (order[:middle], order[middle:])
        )
        by_sum = criterion(choosing, members)
        best = {family: sums[by_sum[sums].argmax()] for family, sums in families.items()}
        candidates = {family: (members[:, place], by_sum[place]) for family, place in best.items()}
        for label, member in fixed.items():
            candidates[label] = member, criterion(choosing, member[:, None])[0]
        for family, (member, reached) in candidates.items():
            for dataset, numbers in worth(held_out, member):
                yield {
                    "split": split,
                    "family": family,
                    "sum": name_of(present, member),
                    "criterion": reached,
                    "dataset": dataset,
                    **numbers,
                }


def chosen(frame: pd.DataFrame, family: str) -> str:
    """The sum that a family's splits choose most often; of several the better on these halves."""
    part = frame[(frame["family"] == family) & (frame["dataset"] == DATASET)]
    sums = part.groupby("sum")["criterion"].agg(["size", "mean"])
    return str(sums.sort_values(["size", "mean"]).index[-1])


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Medians over the splits of what each family is worth on the cells that did not choose."""
    rows = []
    for family, part in frame.groupby("family", sort=False):
        row: dict[str, object] = {
            "chosen from": family,
            "most often": chosen(frame, str(family)),
            f"of {SPLITS}": part[part["dataset"] == DATASET]["sum"].value_counts().iloc[0],
        }
        for dataset, label in DATASET_LABELS.items():
            one = part[part["dataset"] == dataset]
            row[label] = f"{one['spearman'].median():.3f}"
            row[f"{label}: top 10 %"] = f"{one['top10'].median():.3f}"
        one = part[part["dataset"] == DATASET]
        row["rank of the pick"] = f"{one['best_rank'].median():.0f}"
        row["mean of the first ten"] = f"{one['first_ten'].median():.4f}"
        rows.append(row)
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame) -> Figure:
    """Spearman over all held-out cells against that in their top 10 %, a mark per split."""
    marks = {family: (colour, "o") for family, colour in zip(FAMILIES, COLOURS, strict=False)}
    marks |= {label: (colour, "x") for label, colour in zip(FIXED, COLOURS, strict=False)}
    figure, axes = plt.subplots(1, 3, figsize=(2.6 * COLUMN, 1.1 * COLUMN), sharey=True)
    for axis, (dataset, label) in zip(axes, DATASET_LABELS.items(), strict=True):
        for family, (colour, mark) in marks.items():
            part = frame[(frame["family"] == family) & (frame["dataset"] == dataset)]
            style = {"color": colour, "markersize": 3, "label": family}
            axis.plot(part["spearman"], part["top10"], mark, **style)
        axis.set_title(label)
    axes[0].set_ylabel("Spearman, top 10 %")
    text = f"Spearman, all cells that did not choose; {metric_label(METRIC)} accuracy"
    figure.supxlabel(text, fontsize="medium")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=(len(marks) + 1) // 2)
    return figure


def by_seed(study: Study, name: str) -> Iterator[str]:
    """A sentence for every seed: the worth of a sum on all cells."""
    for seed, rows in single_seeds(recorded(study)).items():
        values = direct(with_counts(rows), name.split("+")).dropna()
        half = half_of(values, study.accuracies(values.index), np.arange(len(values)))
        parts = [
            f"{DATASET_LABELS[dataset]} {numbers['spearman']:.3f}, in the top 10 % "
            f"{numbers['top10']:.3f}, pick {numbers['best_rank']}, first ten "
            f"{numbers['first_ten']:.4f}"
            for dataset, numbers in worth(half, np.ones(values.shape[1]))
        ]
        yield f"{name}, seed {seed} alone, all {len(values):,} cells: {'; '.join(parts)}."


def run(study: Study) -> Outcome:
    """The sums that the protocol chooses, and their agreement on the other cells."""
    scores = measured(study)
    frame = pd.DataFrame(splits(study, scores))
    name = chosen(frame, next(iter(FAMILIES)))
    absent = [term for term in TERMS + OF_WEIGHTS if term not in scores]
    return Outcome(
        frame,
        draw(frame),
        settings(study) | {"terms": TERMS + OF_WEIGHTS, "most_terms": MOST_TERMS, "splits": SPLITS},
        (
            f"Medians over {SPLITS} random halves of the cells that did not choose; terms were "
            "chosen on the other half, on CIFAR-10 alone. Ranks are among the cells of a half.",
            *([f"Not recorded, and so no terms: {', '.join(absent)}."] if absent else []),
            *by_seed(study, name),
        ),
        summary=table(frame),
    )
