"""Kernels and other measures in each other's place: beside counts, in sums, at other settings.

The findings are about λ_min/trace, the score of a kernel that orders best. A verdict follows the
report's rule: a difference is noted from 0.02, and only where its interval and all seeds agree.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from experiments.ours import kernel_settings, small_pools
from experiments.ours.equal_counts import (
    GROUPINGS,
    Pairs,
    contrast_of,
    pairs_of,
    partials,
    taus,
    with_interval,
)
from experiments.ours.kernel_settings import KERNEL, REFERENCES, RESAMPLES
from experiments.ours.measures import HELD_EQUAL
from experiments.paper.contrasts import Contrast, contrast
from experiments.plotting import DATASET_LABELS
from experiments.study import DATASET, OURS, Finding, Study, functions_of, interval, sum_named
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.measures.declaration import direction_of

OF_FEATURES = tuple(
    f"{images}.{name}"
    for images in ("clean", "robust")
    for name in ("naswot", "expressivity", "jacov", "epe_nas")
)
"""What a usual run measures without a kernel, on clean and on attacked images."""
ASKED = (
    KERNEL,
    "robust.lambda_min_normalized",
    "clean.effective_rank",
    "robust.frobenius",
    "clean.naswot",
    "clean.jacov",
    "robust.expressivity",
    "clean.vkdnw",
)
FEATURE = "robust.expressivity"
"""What stands in the place of `KERNEL` in sums."""
FEATURES = "params+path_pools+field+robust.expressivity+clean.vkdnw"
"""The sum without kernels that agrees best."""
FORMER = "params+path_pools+field+network.synflow"
"""The default of 0.3 without its kernel's term."""
NEEDED = tuple(
    dict.fromkeys(
        [*ASKED, *OF_FEATURES, *HELD_EQUAL, *"+".join((FORMER, *small_pools.WAYS)).split("+")]
    )
)
"""Columns that a cell must have."""
TOP = 0.1
ORDERS = "Among cells of equal counts λ_min/trace orders better than measures without a kernel"
BESIDE = "Beside counts λ_min/trace correlates more than measures without a kernel"
IN_SUMS = "λ_min/trace makes a sum better than another measure in its place"
LEFT = "λ_min/trace knows what neither counts nor measures without kernels know"
ELSEWHERE = "At another β, radius, fidelity or convention a kernel knows more beside counts"


def best_tenth(accuracy: Float[np.ndarray, " cells"]) -> Int[np.ndarray, " some"]:
    """Places of the most accurate cells."""
    return np.argsort(-accuracy)[: round(TOP * len(accuracy))]


def beside(study: Study, scores: pd.DataFrame) -> Iterator[dict[str, object]]:
    """A row for each of `ASKED`: its partial Spearman coefficient given more and more.

    Given the eight counts; these in the best tenth by accuracy; these and `OF_FEATURES`, a
    measure's own kind left out; these and VKDNW; counts and `KERNEL`.
    """
    accuracy, functions = study.accuracy(scores.index), functions_of(scores.index)
    best, whole = best_tenth(accuracy), np.arange(len(accuracy))
    for measure in ASKED:
        kind = measure.split(".")[1]
        features = [name for name in OF_FEATURES if name.split(".")[1] != kind]
        ways = {
            "counts": (whole, []),
            "counts, in the best tenth": (best, []),
            "counts and features": (whole, features),
            "counts, features and VKDNW": (whole, [*features, "clean.vkdnw"]),
            f"counts and {KERNEL}": (whole, [KERNEL]),
        }
        for given, (cells, names) in ways.items():
            if measure in names:
                continue
            values = scores[[measure]].to_numpy()[cells] * (direction_of(measure) or 1)
            held = scores[[*HELD_EQUAL, *names]].to_numpy()[cells]
            of = partials(values, accuracy[cells], held, RESAMPLES, study.seed, functions[cells])
            value, low, high = with_interval(of[:, 0])
            yield {"measure": measure, "given": given, "beside": value, "low": low, "high": high}


def beside_table(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each measure: its partial coefficients."""
    texts = [interval(row.beside, row.low, row.high) for row in frame.itertuples()]
    wide = frame.assign(text=texts).pivot(index="measure", columns="given", values="text")
    wide = wide.loc[frame["measure"].unique(), frame["given"].unique()].fillna("")
    return wide.add_prefix("given ").reset_index().rename(columns={"measure": "partial Spearman"})


def without_kernels(study: Study, tables: Sequence[pd.DataFrame]) -> Iterator[Finding]:
    """`KERNEL` less each reference that needs no kernel: τ at equal counts, then beside counts."""
    accuracy, counts = study.accuracy(tables[0].index), tables[0][list(HELD_EQUAL)]
    values = [one[list(REFERENCES)].to_numpy() for one in tables]
    of = {
        (ORDERS, f"τ, {name}"): taus_of(values, accuracy, pairs_of(counts, terms, 500, study.seed))
        for name, terms in GROUPINGS.items()
    }
    given = counts.to_numpy()
    of[BESIDE, "partial Spearman"] = (
        partials(values[0], accuracy, given, RESAMPLES, study.seed, functions_of(counts.index)),
        [partials(one, accuracy, given)[0] for one in values[1:]],
    )
    for (statement, statistic), (means, seeds) in of.items():
        for k, name in enumerate(REFERENCES[1:], 1):
            by_seed = [one[0] - one[k] for one in seeds]
            gap = contrast_of(means[:, 0], means[:, k], by_seed, len(accuracy))
            yield gap.finding(f"{KERNEL} above {name}: {statistic}", OURS, statement)


def left_over(study: Study, tables: Sequence[pd.DataFrame]) -> Iterator[Finding]:
    """`KERNEL` beside counts, features and VKDNW: its partial coefficient less 0."""
    accuracy = study.accuracy(tables[0].index)
    given = [*HELD_EQUAL, *OF_FEATURES, "clean.vkdnw"]
    places = {"all cells": np.arange(len(accuracy)), "the best tenth": best_tenth(accuracy)}
    for where, cells in places.items():
        first, *alone = (
            partials(
                one[[KERNEL]].to_numpy()[cells],
                accuracy[cells],
                one[given].to_numpy()[cells],
                RESAMPLES if place == 0 else 0,
                study.seed,
                functions_of(one.index[cells]),
            )[:, 0]
            for place, one in enumerate(tables)
        )
        gap = contrast_of(first, 0 * first, [one[0] for one in alone], len(cells))
        what = f"{KERNEL} given counts, features and VKDNW, above 0: {where}"
        yield gap.finding(what, OURS, LEFT)


def taus_of(
    values: Sequence[Float[np.ndarray, "cells measures"]],
    accuracy: Float[np.ndarray, " cells"],
    pairs: Pairs,
) -> tuple[Float[np.ndarray, "resamples measures"], list[Float[np.ndarray, " measures"]]]:
    """τ of several measures: of the first values with resamples, of the others without."""
    once = pairs._replace(weights=pairs.weights[:1])
    means = np.stack([taus(column, accuracy, pairs) for column in values[0].T], axis=1)
    return means, [np.array([taus(c, accuracy, once)[0] for c in one.T]) for one in values[1:]]


def in_sums(study: Study, tables: Sequence[pd.DataFrame]) -> Iterator[Finding]:
    """`KERNEL` in a sum less `FEATURE` in its place, and less the sum without either."""
    accuracies = study.accuracies(tables[0].index)
    best, everywhere = best_tenth(accuracies[DATASET]), np.arange(len(tables[0]))
    cases = [
        *((FORMER, f"+{FEATURE}", name, everywhere, "all cells") for name in accuracies),
        (small_pools.COUNTS, f"+{FEATURE}", DATASET, everywhere, "all cells"),
        (str(DEFAULT), f"+{FEATURE}", DATASET, everywhere, "all cells"),
        (small_pools.COUNTS, f"+{FEATURE}", DATASET, best, "the best tenth"),
        (small_pools.COUNTS, "", DATASET, best, "the best tenth"),
        *(
            (terms, "", name, everywhere, "all cells")
            for terms in (str(DEFAULT), small_pools.COUNTS, FEATURES)
            for name in (DATASET, "imagenet16-120")
        ),
    ]
    for terms, other, dataset, cells, where in cases:
        first, second = (
            [
                (sum_named(name).of(one).to_numpy(float)[cells], accuracies[dataset][cells])
                for one in tables
            ]
            for name in (f"{terms}+{KERNEL}", terms + other)
        )
        by_seed = list(zip(first[1:], second[1:], strict=True))
        gap = contrast(first[0], second[0], by_seed, tables[0].index[cells], study.seed)
        rival = other[1:] or "nothing"
        what = f"{terms} with {KERNEL} above {rival}: {where}, {DATASET_LABELS[dataset]}"
        yield gap.finding(what, OURS, IN_SUMS)


def findings(
    study: Study,
    tables: Sequence[pd.DataFrame],
    chosen: Mapping[str, tuple[str, Mapping[str, Contrast]]],
    trained: Contrast,
) -> tuple[Finding, ...]:
    """What kernels add, each difference with its verdict."""
    elsewhere = (
        gap.finding(
            f"{sample}: {name} of one half, above {reference} on the other", OURS, ELSEWHERE
        )
        for sample, (name, gaps) in chosen.items()
        for reference, gap in gaps.items()
        if reference in (KERNEL, FEATURE)
    )
    shape = f"K̃_all at β = 1 above K at β = 0, both {kernel_settings.SHAPE}"
    return (
        *without_kernels(study, tables),
        *left_over(study, tables),
        *in_sums(study, tables),
        trained.finding(shape, OURS, ELSEWHERE),
        *elsewhere,
    )
