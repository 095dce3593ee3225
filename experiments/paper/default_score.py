"""The choice of the default: sums of measures, by nested selection with the one-error rule.

1. Candidates are all sums of log-ranks of one to five of `TERMS`, which were declared in one list
   on 24 November 2026. All of them had been tabulated on all cells and data sets before: the halves
   below are new to the choice of a sum, not to the choice of its terms.
2. A random half of the cells chooses. It is cut into folds. Cells that compute the same function
   stand together, so that a cut parts one such group at most. A sum's criterion on a fold is its
   Spearman coefficient with PGD 8/255 accuracy on CIFAR-10, over all cells of the fold, plus that
   in the fold's top 10 %.
3. Of the sums whose mean over the folds is within one standard error of the largest mean, the one
   of the fewest terms is chosen; of several, the one of the largest mean. Source: Breiman et al.
   (1984), Classification and Regression Trees, section 3.4.3.
4. The other half, which has chosen nothing, says what the choice is worth: on CIFAR-10, and on
   ImageNet16-120 as the far test. CIFAR-100 orders cells as CIFAR-10 does, and tests nothing.
5. So many halves for each of several seeds. How many of them agree is the choice's stability.
6. The default is what 2 and 3 choose on all cells among the terms of `USUAL`, which a run measures
   without `--proxies`, by the means over the folds of all seeds.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata

from experiments.data import BENCHMARK, DATASET, functions_of, shuffled, sum_named
from experiments.frame import NONE, Claim, Interval, Stronger, Study, Within, exact
from experiments.paper.contrasts import NOTABLE
from experiments.paper.measures import SUMS, measured
from experiments.plotting import DATASET_LABELS
from ntkscore.analysis.agreement import agreement
from ntkscore.analysis.score_names import DEFAULT

COUNTS = "params", "layers", "path_convs", "path_pools", "longest_path", "field"
EXPRESSIVITY, JACOV = (("clean." + name, "robust." + name) for name in ("expressivity", "jacov"))
OF_FEATURES = "network.synflow", "clean.naswot", *EXPRESSIVITY, *JACOV, "clean.epe_nas"
OF_KERNELS = "clean.lambda_min_normalized", "robust.lambda_min_normalized", "clean.effective_rank"
OF_PASSES = "clean.trainability", "clean.vkdnw", "clean.fisher_entropy", "clean.zico"
"""Measures that take passes of their own: a run has them with `--proxies` only."""
USUAL = COUNTS + OF_FEATURES + OF_KERNELS
TERMS = USUAL + OF_PASSES
OF_A_RUN, NO_KERNELS = "terms of a usual run", "without kernels"
FAMILIES = {
    "all terms": TERMS,
    OF_A_RUN: USUAL,
    NO_KERNELS: COUNTS + OF_FEATURES,
    "kernels and counts": COUNTS + OF_KERNELS,
    "counts": COUNTS,
}
"""Terms to choose from; what a family adds is seen by the one without."""
BEST = ", the largest mean"
"""Behind a family's name where the sum of the largest mean is taken, without the one-error rule."""
FIXED = {
    name: f"fixed: {label}" for name, label in {"params": "the parameter count", **SUMS}.items()
}
"""Sums that no half chooses. Those of ours were chosen when all cells were known."""
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


def candidates(scores: pd.DataFrame, terms: Sequence[str], most: int) -> Candidates:
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
    top = fold[np.argsort(-accuracy[fold], kind="stable")[: round(0.1 * len(fold))]]
    parts = []
    for members in np.array_split(sums.members.astype(float), 1 + len(sums.members) // 1024):
        parts.append(
            sum(spearman(members @ sums.log_ranks[:, c], accuracy[c]) for c in (fold, top))
        )
    return np.concatenate(parts)


class Means(NamedTuple):
    """Means of the criterion over folds, and their standard errors, for every sum."""

    mean: Float[np.ndarray, " sums"]
    error: Float[np.ndarray, " sums"]


def over_folds(
    sums: Candidates,
    accuracy: Float[np.ndarray, " cells"],
    cells: Int[np.ndarray, " half"],
    folds: int,
) -> Means:
    """The criterion over the folds of some cells in random order."""
    found = np.stack([criterion(sums, accuracy, fold) for fold in np.array_split(cells, folds)])
    return Means(found.mean(0), found.std(0, ddof=1) / np.sqrt(folds))


def simplest(sums: Candidates, among: Int[np.ndarray, " some"], means: Means) -> int:
    """The place of the simplest sum within one standard error of the best, by rule 3."""
    best = among[means.mean[among].argmax()]
    within = among[means.mean[among] >= means.mean[best] - means.error[best]]
    return int(min(within, key=lambda s: (sums.members[s].sum(), -means.mean[s])))


def halves(
    functions: Int[np.ndarray, " cells"], seed: int, splits: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The cells that choose and those that test, by what each cell computes."""
    rng = np.random.default_rng(seed)
    for _ in range(splits):
        order = shuffled(rng, functions)
        yield order[: len(order) // 2], order[len(order) // 2 :]


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """By seed, split, way of choosing and data set: the sum, and its worth on the other half."""
    scores = measured(at.data)
    scores = scores[scores[list(TERMS)].notna().all(axis=1)]
    sums = candidates(scores, TERMS, at.most_terms)
    families = {family: sums.of(terms) for family, terms in FAMILIES.items()}
    fixed = {name: sum_named(name).of(scores).to_numpy(float) for name in FIXED}
    accuracies = at.data.accuracies(scores.index)
    accuracy, functions = accuracies[DATASET], functions_of(scores.index)
    whole = [
        over_folds(sums, accuracy, shuffled(np.random.default_rng(seed), functions), at.folds)
        for seed in range(at.seeds)
    ]
    means = Means(*(np.mean(parts, 0) for parts in zip(*whole, strict=True)))
    for family, among in families.items():
        name = sums.name(simplest(sums, among, means))
        yield {"way": family, "sum": name, "cells": len(scores), "tested": "chosen on all cells"}
    for seed in range(at.seeds):
        for split, (choosing, testing) in enumerate(halves(functions, seed, at.splits)):
            means = over_folds(sums, accuracy, choosing, at.folds)
            rivals = [(FIXED[name], name, values) for name, values in fixed.items()]
            for family, among in families.items():
                largest = int(among[means.mean[among].argmax()])
                for way, place in (
                    (family, simplest(sums, among, means)),
                    (family + BEST, largest),
                ):
                    rivals.append((way, sums.name(place), sums.log_ranks.T @ sums.members[place]))
            for (way, name, values), dataset in itertools.product(rivals, (DATASET, FAR)):
                of = agreement(values[testing], accuracies[dataset][testing], resamples=1)
                yield {
                    "way": way,
                    "sum": name,
                    "cells": len(testing),
                    "tested": dataset,
                    "seed": seed,
                    "split": split,
                    "spearman": of.spearman,
                    "top10": of.spearman_top10,
                    "best_rank": of.best_accuracy_rank,
                    "first_ten": of.first_ten_accuracy,
                }


def over_halves(values: pd.Series) -> Interval:
    """Median of some halves' numbers; its interval is all of them."""
    return Interval(values.median(), values.min(), values.max())


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What the protocol chooses, how stable that is, and what the choice is worth."""
    chosen = frame[frame["tested"] == "chosen on all cells"].set_index("way")["sum"]
    other = exact(chosen[OF_A_RUN] != str(DEFAULT))
    yield Claim("other sums than the default that all cells choose", "", other, NONE, ours=True)
    share = frame.loc[(frame["tested"] == DATASET) & (frame["way"] == OF_A_RUN), "sum"]
    stable = exact(share.value_counts(normalize=True).iloc[0])
    yield Claim("most halves choose the same sum", "", stable, Within(0.5), ours=True)
    keys = ["tested", "seed", "split"]
    worth = frame.dropna(subset="spearman").pivot(index=keys, columns="way", values="spearman")
    for text, way, rival in (
        ("the default ranks better than the parameter count", FIXED[str(DEFAULT)], FIXED["params"]),
        ("sums that may hold a kernel rank better than those without", OF_A_RUN, NO_KERNELS),
    ):
        gaps = (worth[way] - worth[rival]).groupby("tested")
        found = [over_halves(gaps.get_group(dataset)) for dataset in (DATASET, FAR)]
        yield Claim(
            f"{text}, on halves that chose nothing", "", found, Stronger(NOTABLE), ours=True
        )


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Medians over the halves that chose nothing, a row for each way of choosing."""
    rows = []
    for way, part in frame.dropna(subset="spearman").groupby("way", sort=False):
        near, far = (part[part["tested"] == dataset] for dataset in (DATASET, FAR))
        names = near["sum"].value_counts()
        row = {"chosen from": way, "most often": names.index[0]}
        row["halves"] = "–" if way in FIXED.values() else f"{names.iloc[0]} of {len(near)}"
        for dataset, one in ((DATASET, near), (FAR, far)):
            row[DATASET_LABELS[dataset]] = f"{one['spearman'].median():.3f}"
            row[f"{DATASET_LABELS[dataset]}: top 10 %"] = f"{one['top10'].median():.3f}"
        rows.append(row | {"rank of the pick": f"{near['best_rank'].median():.0f}"})
    return pd.DataFrame(rows)


DEFAULT_SCORE = Study(
    "The choice of the default: sums chosen within half of the cells, tested on the other",
    measure,
    fixed={"most_terms": 5, "folds": 10, "splits": 5, "seeds": 5},
    claims=claims,
    table=table,
    note="Medians over the halves of coefficients with PGD 8/255 accuracy; intervals are the range "
    "over the halves, and the rank of the pick is among a half's cells. Fixed sums were chosen "
    "when all cells were known; compare them with each other.",
    needs=(BENCHMARK,),
)
