"""The default score, by nested selection with the one-standard-error rule.

1. Candidates are all sums of log-ranks of one to five of `TERMS`, which were declared in one list
   on `DECLARED`. All of them had been tabulated on all cells and data sets before: the halves
   below are new to the choice of a sum, not to the choice of its terms.
2. A random half of the cells chooses. It is cut into `FOLDS` folds. Cells that compute the same
   function stand together, so that a cut parts one such group at most. A sum's criterion on a fold
   is its Spearman coefficient with PGD 8/255 accuracy on CIFAR-10, over all cells of the fold, plus
   that in the fold's top 10 %.
3. Of the sums whose mean over the folds is within one standard error of the largest mean, the one
   of the fewest terms is chosen; of several, the one of the largest mean. Source: Breiman et al.
   (1984), Classification and Regression Trees, section 3.4.3.
4. The other half, which has chosen nothing, says what the choice is worth: on CIFAR-10, and on
   ImageNet16-120 as the far test. CIFAR-100 orders cells as CIFAR-10 does, and tests nothing.
5. `SPLITS` such halves for each of `SEEDS` seeds. How many of them agree is the choice's stability.
6. The default is what 2 and 3 choose on all cells among the terms of `USUAL`, which a run measures
   without `--proxies`, by the means over the folds of all seeds.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import rankdata

from experiments.ours.measures import PUBLISHED, SUMS, measured, settings
from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS, annotate, metric_label
from experiments.study import DATASET, METRIC, Outcome, Study, functions_of, shuffled, sum_named
from ntkscore.analysis.agreement import agreement

DECLARED = "2026-11-24"
COUNTS = ("params", "layers", "path_convs", "path_pools", "longest_path", "field")
OF_FEATURES = (
    "network.synflow",
    "clean.naswot",
    "clean.expressivity",
    "robust.expressivity",
    "clean.jacov",
    "robust.jacov",
    "clean.epe_nas",
)
OF_KERNELS = (
    "clean.lambda_min_normalized",
    "robust.lambda_min_normalized",
    "clean.effective_rank",
)
OF_PASSES = ("clean.trainability", "clean.vkdnw", "clean.fisher_entropy", "clean.zico")
"""Measures that take passes of their own: a run has them with `--proxies` only."""
USUAL = COUNTS + OF_FEATURES + OF_KERNELS
TERMS = USUAL + OF_PASSES
FAMILIES = {
    "all terms": TERMS,
    "terms of a usual run": USUAL,
    "without kernels": COUNTS + OF_FEATURES,
    "kernels and counts": COUNTS + OF_KERNELS,
    "counts": COUNTS,
}
"""Terms to choose from; what a family adds is seen by the one without."""
MOST_TERMS = 5
FOLDS = 10
SPLITS = 5
SEEDS = 5
TOP = 0.1
BEST = ", the largest mean"
"""Behind a family's name where the sum of the largest mean is taken, without the one-error rule."""
FIXED = {
    "params": "fixed: the parameter count",
    **{name: f"fixed: {label}" for name, label in (SUMS | PUBLISHED).items()},
}
"""Sums that no half chooses. Those of ours were chosen when all cells were known."""
AT_ONCE = 1024
"""Sums that are ranked at once."""
FAR = "imagenet16-120"
"""The data set that no choice looks at, and that orders the cells in another way."""


class Candidates(NamedTuple):
    """Sums of terms, and their values at all cells.

    Attributes:
        terms: names of the terms.
        members: the terms in each sum (sums, terms).
        log_ranks: logarithms of the ranks of all cells by each term (terms, cells).
    """

    terms: Sequence[str]
    members: Bool[np.ndarray, "sums terms"]
    log_ranks: Float[np.ndarray, "terms cells"]

    def name(self, place: int) -> str:
        """The name of a sum."""
        return "+".join(itertools.compress(self.terms, self.members[place]))

    def of(self, terms: Sequence[str]) -> Int[np.ndarray, " some"]:
        """Places of the sums in which no other term stands."""
        other = [term not in terms for term in self.terms]
        return np.flatnonzero(~self.members[:, other].any(1))


def candidates(scores: pd.DataFrame, terms: Sequence[str], most: int = MOST_TERMS) -> Candidates:
    """All sums of one to `most` terms."""
    values = np.stack([sum_named(term).of(scores).to_numpy(float) for term in terms])
    places = range(len(terms))
    sums = [s for count in range(1, most + 1) for s in itertools.combinations(places, count)]
    members = np.zeros((len(sums), len(terms)), bool)
    for place, some in enumerate(sums):
        members[place, list(some)] = True
    return Candidates(terms, members, np.log(rankdata(values, axis=1)))


def spearman(
    values: Float[np.ndarray, "sums cells"], accuracy: Float[np.ndarray, " cells"]
) -> Float[np.ndarray, " sums"]:
    """Spearman coefficients of several scores with one accuracy; 0 for a constant score."""
    # Sums of the same logarithms in another order are equal.
    ranks = rankdata(np.round(values, 9), axis=1) - (len(accuracy) + 1) / 2
    target = rankdata(accuracy) - (len(accuracy) + 1) / 2
    lengths = np.linalg.norm(ranks, axis=1) * np.linalg.norm(target)
    return ranks @ target / np.where(lengths > 0, lengths, np.inf)


def criterion(
    sums: Candidates, accuracy: Float[np.ndarray, " cells"], fold: Int[np.ndarray, " some"]
) -> Float[np.ndarray, " sums"]:
    """Spearman over all cells of a fold plus that in its top 10 %, for every sum."""
    top = fold[np.argsort(-accuracy[fold], kind="stable")[: round(TOP * len(fold))]]
    parts = []
    for start in range(0, len(sums.members), AT_ONCE):
        members = sums.members[start : start + AT_ONCE].astype(float)
        parts.append(
            sum(spearman(members @ sums.log_ranks[:, c], accuracy[c]) for c in (fold, top))
        )
    return np.concatenate(parts)


class Means(NamedTuple):
    """Means of the criterion over folds, and their standard errors, for every sum."""

    mean: Float[np.ndarray, " sums"]
    error: Float[np.ndarray, " sums"]


Criterion = Callable[
    [Candidates, Float[np.ndarray, " cells"], Int[np.ndarray, " some"]], Float[np.ndarray, " sums"]
]


def over_folds(
    sums: Candidates,
    accuracy: Float[np.ndarray, " cells"],
    cells: Int[np.ndarray, " half"],
    criterion: Criterion = criterion,
    folds: int = FOLDS,
) -> Means:
    """The criterion over the folds of some cells in random order."""
    found = np.stack([criterion(sums, accuracy, fold) for fold in np.array_split(cells, folds)])
    return Means(found.mean(0), found.std(0, ddof=1) / np.sqrt(folds))


def simplest(sums: Candidates, among: Int[np.ndarray, " some"], means: Means) -> int:
    """The place of the simplest sum within one standard error of the best, by rule 3."""
    best = among[means.mean[among].argmax()]
    within = among[means.mean[among] >= means.mean[best] - means.error[best]]
    return int(min(within, key=lambda s: (sums.members[s].sum(), -means.mean[s])))


def worth(
    values: Float[np.ndarray, " cells"],
    accuracies: dict[str, Float[np.ndarray, " cells"]],
    cells: Int[np.ndarray, " half"],
) -> Iterator[dict[str, object]]:
    """A row for each data set: what a score is worth on some cells."""
    for dataset, accuracy in accuracies.items():
        of = agreement(values[cells], accuracy[cells], resamples=1)  # its interval is not read
        yield {
            "dataset": dataset,
            "spearman": of.spearman,
            "top10": of.spearman_top10,
            "best_rank": of.best_accuracy_rank or 0,
            "first_ten": of.first_ten_accuracy,
        }


def halves(
    study: Study, functions: Int[np.ndarray, " cells"]
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """Seed, split, the cells that choose and those that test, by what each cell computes."""
    for seed in range(study.seed, study.seed + SEEDS):
        rng = np.random.default_rng(seed)
        for split in range(SPLITS):
            order = shuffled(rng, functions)
            yield seed, split, order[: len(order) // 2], order[len(order) // 2 :]


def nested(study: Study, scores: pd.DataFrame, sums: Candidates) -> Iterator[dict[str, object]]:
    """A row for each half, way of choosing a sum and data set: the sum, and its worth."""
    accuracies = study.accuracies(scores.index)
    fixed = {name: sum_named(name).of(scores).to_numpy(float) for name in FIXED}
    families = {family: sums.of(terms) for family, terms in FAMILIES.items()}
    for seed, split, choosing, testing in halves(study, functions_of(scores.index)):
        means = over_folds(sums, accuracies[DATASET], choosing)
        rivals = [(FIXED[name], name, values) for name, values in fixed.items()]
        for family, among in families.items():
            largest = int(among[means.mean[among].argmax()])
            for way, place in ((family, simplest(sums, among, means)), (family + BEST, largest)):
                rivals.append((way, sums.name(place), sums.log_ranks.T @ sums.members[place]))
        for way, name, values in rivals:
            for row in worth(values, accuracies, testing):
                yield {"seed": seed, "split": split, "way": way, "sum": name} | row


def over_all(
    study: Study,
    sums: Candidates,
    accuracy: Float[np.ndarray, " cells"],
    functions: Int[np.ndarray, " cells"],
    **how: Any,
) -> Means:
    """The criterion over the folds of all cells, by the means over all seeds."""
    found = [
        over_folds(sums, accuracy, shuffled(np.random.default_rng(seed), functions), **how)
        for seed in range(study.seed, study.seed + SEEDS)
    ]
    return Means(*(np.mean(parts, 0) for parts in zip(*found, strict=True)))


def on_all_cells(study: Study, scores: pd.DataFrame, sums: Candidates) -> dict[str, str]:
    """The simplest sum of every family, chosen on all cells by the folds of all seeds."""
    means = over_all(study, sums, study.accuracy(scores.index), functions_of(scores.index))
    return {
        family: sums.name(simplest(sums, sums.of(terms), means))
        for family, terms in FAMILIES.items()
    }


def table(frame: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Medians over the halves that chose nothing, a row for each way of choosing."""
    for way, part in frame.groupby("way", sort=False):
        by_dataset = dict(tuple(part.groupby("dataset")))
        near = by_dataset[DATASET]
        names, fixed = near["sum"].value_counts(), way in FIXED.values()
        row: dict[str, object] = {
            "chosen from": way,
            "most often": names.index[0],
            "share of the halves": "–" if fixed else f"{names.iloc[0]} of {len(near)}",
            "different sums": "–" if fixed else len(names),
        }
        for dataset in (DATASET, FAR):
            label, one = DATASET_LABELS[dataset], by_dataset[dataset]
            row[label] = f"{one['spearman'].median():.3f}"
            row[f"{label}: top 10 %"] = f"{one['top10'].median():.3f}"
        row["rank of the pick"] = f"{near['best_rank'].median():.0f}"
        row["mean of the first ten"] = f"{near['first_ten'].median():.4f}"
        yield row


def draw(frame: pd.DataFrame) -> Figure:
    """Spearman over all cells that chose nothing against that in their top 10 %."""
    figure, axes = plt.subplots(1, 2, figsize=(2.2 * COLUMN, 1.2 * COLUMN), sharey=True)
    ways = [(family, "o") for family in FAMILIES] + [
        (label, "x+"[place // len(COLOURS)]) for place, label in enumerate(FIXED.values())
    ]
    colours = [*COLOURS[: len(FAMILIES)], *itertools.islice(itertools.cycle(COLOURS), len(FIXED))]
    for axis, dataset in zip(axes, (DATASET, FAR), strict=True):
        for (way, mark), colour in zip(ways, colours, strict=True):
            part = frame[(frame["way"] == way) & (frame["dataset"] == dataset)]
            style = {"color": colour, "markersize": 3, "label": way}
            axis.plot(part["spearman"], part["top10"], mark, **style)
        axis.set_title(DATASET_LABELS[dataset])
    axes[0].set_ylabel("Spearman, top 10 %")
    text = f"Spearman, all cells that did not choose; {metric_label(METRIC)} accuracy"
    annotate(figure, axes[0], text, 2)
    return figure


def run(study: Study) -> Outcome:
    """The sums that the protocol chooses, and their worth on cells that did not choose."""
    scores = measured(study)
    scores = scores[scores[list(TERMS)].notna().all(axis=1)]
    sums = candidates(scores, TERMS)
    frame = pd.DataFrame(nested(study, scores, sums))
    on_all = on_all_cells(study, scores, sums)
    chosen = "; ".join(f"{family}: {name}" for family, name in on_all.items())
    usual = "terms of a usual run"
    halves_of = frame[(frame["way"] == usual) & (frame["dataset"] == DATASET)]
    same = int((halves_of["sum"] == on_all[usual]).sum())
    return Outcome(
        frame,
        draw(frame),
        settings(study)
        | {"terms": TERMS, "declared": DECLARED, "most_terms": MOST_TERMS, "folds": FOLDS}
        | {"splits": SPLITS, "seeds": SEEDS, "chosen": on_all},
        (
            f"Medians over {SPLITS * SEEDS} halves of the {len(scores):,} cells with every "
            f"measure, {SPLITS} for each of {SEEDS} seeds. The rank of the pick is among a half's "
            f"cells. The terms were declared on {DECLARED}; all had been tabulated before.",
            f"Chosen on all cells by the same rule: {chosen}. The second is the default; "
            f"{same} of the {len(halves_of)} halves chose this very sum.",
        ),
        summary=pd.DataFrame(table(frame)),
    )
