"""The choice of the default: sums of measures, by nested selection with the one-error rule.

`docs/ranking.md` has the protocol, "How the default was chosen". What it chooses on all cells is by
the folds of all seeds. The error is paired since 28 November 2026, with seeds that no choice had
seen before: unpaired, it is that of a fold and not of a difference. CIFAR-100 orders
cells as CIFAR-10 does, and tests nothing.

Source: Breiman et al. (1984), Classification and Regression Trees, section 3.4.3.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import rankdata

from experiments.data import BEFORE, BENCHMARK, DATASET, DEFAULT, functions_of, shuffled, sum_named
from experiments.frame import NONE, Claim, Interval, Stronger, Study, Within, exact
from experiments.paper.contrasts import NOTABLE
from experiments.paper.measures import SUMS, measured
from experiments.plotting import DATASET_LABELS
from ntkscore.analysis.agreement import agreement

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


def all_sums(terms: Sequence[str], most: int) -> pd.DataFrame:
    """Which terms are in each sum of one to `most` of them: a row per sum, by its name."""
    sums = [s for count in range(1, most + 1) for s in itertools.combinations(terms, count)]
    members = [[float(term in some) for term in terms] for some in sums]
    return pd.DataFrame(members, ["+".join(some) for some in sums], list(terms))


def made_of(sums: pd.DataFrame, terms: Sequence[str]) -> pd.Series:
    """Whether no other term stands in a sum."""
    return ~sums.drop(columns=list(terms)).any(axis=1)


def log_ranks(scores: pd.DataFrame, terms: Sequence[str]) -> Float[np.ndarray, "terms cells"]:
    """Logarithms of the ranks of all cells by each term."""
    return np.log(rankdata([sum_named(term).of(scores) for term in terms], axis=1))


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
    sums: pd.DataFrame,
    values: Float[np.ndarray, "terms cells"],
    accuracy: Float[np.ndarray, " cells"],
    fold: Int[np.ndarray, " some"],
) -> Float[np.ndarray, " sums"]:
    """Spearman over all cells of a fold plus that in its top 10 %, for every sum."""
    top = fold[np.argsort(-accuracy[fold], kind="stable")[: round(0.1 * len(fold))]]
    parts = np.array_split(sums.to_numpy(), 1 + len(sums) // 1024)
    return np.concatenate(
        [sum(spearman(part @ values[:, c], accuracy[c]) for c in (fold, top)) for part in parts]
    )


def over_folds(
    sums: pd.DataFrame,
    values: Float[np.ndarray, "terms cells"],
    accuracy: Float[np.ndarray, " cells"],
    folds: Iterable[Int[np.ndarray, " some"]],
) -> pd.DataFrame:
    """The criterion on each fold: a row per sum, a column per fold."""
    return pd.DataFrame(
        np.column_stack([criterion(sums, values, accuracy, fold) for fold in folds]), sums.index
    )


def simplest(found: pd.DataFrame, folds: int) -> str:
    """The sum of the fewest terms within one standard error of the best; of several, the best.

    The error is that of the difference on the same folds, since a fold that is hard for one sum is
    hard for all.

    Args:
        found: as from `over_folds`, once or for several cuts side by side.
        folds: of one cut.
    """
    means = found.mean(axis=1)
    less = found.loc[means.idxmax()] - found
    near = less.mean(axis=1) <= less.std(axis=1) / np.sqrt(folds)
    terms = means.index.str.count(r"\+") + 1
    order = pd.DataFrame({"terms": terms, "mean": means})[near]
    return str(order.sort_values(["terms", "mean"], ascending=[True, False]).index[0])


def halves(
    functions: Int[np.ndarray, " cells"], seed: int, splits: int
) -> Iterator[list[np.ndarray]]:
    """The cells that choose and those that test, by what each cell computes."""
    rng = np.random.default_rng(seed)
    for _ in range(splits):
        order = shuffled(rng, functions)
        yield [order[: len(order) // 2], order[len(order) // 2 :]]


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """By seed, split, way of choosing and data set: the sum, and its worth on the other half."""
    scores = measured(at.data)
    scores = scores[scores[list(TERMS)].notna().all(axis=1)]
    sums, values = all_sums(TERMS, at.most_terms), log_ranks(scores, TERMS)
    families = {family: made_of(sums, terms) for family, terms in FAMILIES.items()}
    fixed = {name: sum_named(name).of(scores).to_numpy(float) for name in FIXED}
    accuracies = at.data.accuracies(scores.index)
    accuracy, functions = accuracies[DATASET], functions_of(scores.index)

    def folded(cells: np.ndarray) -> pd.DataFrame:
        return over_folds(sums, values, accuracy, np.array_split(cells, at.folds))

    seeds = range(at.first_seed, at.first_seed + at.seeds)
    orders = [shuffled(np.random.default_rng(seed), functions) for seed in seeds]
    on_all = pd.concat(map(folded, orders), axis=1)
    for family, among in families.items():
        best = str(on_all[among].mean(axis=1).idxmax())
        for way, name in ((family, simplest(on_all[among], at.folds)), (family + BEST, best)):
            chosen = {"way": way, "sum": name, "cells": len(scores)}
            yield chosen | {"tested": "chosen on all cells"}
    for seed in seeds:
        for split, (choosing, testing) in enumerate(halves(functions, seed, at.splits)):
            found = folded(choosing)
            rivals = [(FIXED[name], name, at_cells) for name, at_cells in fixed.items()]
            for family, among in families.items():
                best = str(found[among].mean(axis=1).idxmax())
                one = simplest(found[among], at.folds)
                for way, name in ((family, one), (family + BEST, best)):
                    rivals.append((way, name, values.T @ sums.loc[name].to_numpy()))
            for (way, name, at_cells), dataset in itertools.product(rivals, (DATASET, FAR)):
                of = agreement(at_cells[testing], accuracies[dataset][testing], resamples=1)
                about = {"way": way, "sum": name, "cells": len(testing), "tested": dataset}
                yield about | {
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
    other = exact(chosen[OF_A_RUN] != BEFORE)
    text = "other sums than the default before that all cells choose"
    yield Claim(text, "", other, NONE, ours=True)
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
    fixed={"most_terms": 5, "folds": 10, "splits": 5, "seeds": 5, "first_seed": 20},
    claims=claims,
    table=table,
    note="Medians over the halves of coefficients with PGD 8/255 accuracy; intervals are the range "
    "over the halves, and the rank of the pick is among a half's cells. Fixed sums were chosen "
    "when all cells were known; compare them with each other.",
    needs=(BENCHMARK,),
)
