"""Sums of measures chosen on one space, tested on the other: NAS-Bench-201 and DARTS.

1. Terms are counts of NAS-Bench-201 with the nearest ones of DARTS, and the measures of
   `default_score`. The poolings of a genotype stand for poolings on paths.
2. A sum of log-ranks that was chosen on NAS-Bench-201 stands unchanged on the DARTS cells.
3. On DARTS a random half of the cells chooses a sum: of the sums of one to `MOST_TERMS` terms whose
   mean Spearman coefficient over `FOLDS` folds is within one standard error of the largest, the one
   of the fewest terms. The other half tests it. The halves are as many as in `default_score`.
4. What rule 3 chooses on all DARTS cells is tested on `FEW` random cells of NAS-Bench-201.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import kendalltau

from experiments.darts import measures as darts
from experiments.ours import measures as benchmark
from experiments.ours.default_score import (
    MOST_TERMS,
    OF_FEATURES,
    OF_KERNELS,
    OF_PASSES,
    SEEDS,
    SPLITS,
    Candidates,
    candidates,
    halves,
    over_all,
    over_folds,
    simplest,
    spearman,
)
from experiments.ours.equal_counts import with_interval
from experiments.plotting import COLOURS, COLUMN, score_label
from experiments.study import OURS, Finding, Outcome, Study, sum_named, verdict
from ntkscore.analysis.score_names import DEFAULT

TWINS = {
    "params": "params",
    "flops": "flops",
    "layers": "layers",
    "path_pools": "n_pool",
    "field": "field",
}
"""Counts of NAS-Bench-201, and the nearest ones of DARTS."""
TERMS = (*(name for name in TWINS if name != "flops"), *OF_FEATURES, *OF_KERNELS, *OF_PASSES)
FOLDS = 5
BASELINE = "params"
FIXED = {
    BASELINE: "the parameter count",
    "clean.naswot": "NASWOT",
    "clean.vkdnw": "VKDNW",
    **benchmark.LABELS,
}
"""Sums that are not chosen here: of NAS-Bench-201, of others, and of one term."""
CHOSEN = "chosen on DARTS"
GAP = ("gap", "gap low", "gap high")
"""Columns of τ less that of the parameters."""
FEW = 1500
"""Cells of NAS-Bench-201 that sums are tested on."""


def of_darts(study: Study) -> pd.DataFrame:
    """Measures and counts of the DARTS cells, the counts by the names that NAS-Bench-201 has."""
    scores = benchmark.with_counts(study.rows(darts.TRAINED), darts.SPACE)
    darts.refuse_missing(scores)
    scores = scores.drop(columns=[name for name in scores if name in TWINS and TWINS[name] != name])
    return scores.rename(columns={twin: name for name, twin in TWINS.items()})


def by_spearman(
    sums: Candidates, accuracy: Float[np.ndarray, " cells"], fold: Int[np.ndarray, " some"]
) -> Float[np.ndarray, " sums"]:
    """Spearman coefficient of every sum over the cells of a fold."""
    return spearman(sums.members.astype(float) @ sums.log_ranks[:, fold], accuracy[fold])


HOW: dict[str, Any] = {"criterion": by_spearman, "folds": FOLDS}


def nested(
    study: Study, scores: pd.DataFrame, accuracy: Float[np.ndarray, " cells"], sums: Candidates
) -> Iterator[dict[str, object]]:
    """A row for each half and way: the sum, and its τ on the cells that did not choose it."""
    every = np.arange(len(sums.members))
    fixed = {name: sum_named(name).of(scores).to_numpy(float) for name in FIXED}
    for seed, split, choosing, testing in halves(study, np.arange(len(scores))):
        means = over_folds(sums, accuracy, choosing, **HOW)
        place = simplest(sums, every, means)
        ways = {CHOSEN: (sums.name(place), sums.members[place] @ sums.log_ranks)}
        ways |= {name: (name, values) for name, values in fixed.items()}
        for way, (name, values) in ways.items():
            yield {
                "seed": seed,
                "split": split,
                "way": way,
                "sum": name,
                "kendall": kendalltau(values[testing], accuracy[testing])[0],
            }


def chosen_on_all(study: Study, accuracy: Float[np.ndarray, " cells"], sums: Candidates) -> str:
    """The sum that all DARTS cells choose, by the means over the folds of all seeds."""
    means = over_all(study, sums, accuracy, np.arange(len(accuracy)), **HOW)
    return sums.name(simplest(sums, np.arange(len(sums.members)), means))


def tested(
    study: Study, here: pd.DataFrame, accuracy: Float[np.ndarray, " cells"], chosen: str
) -> Iterator[dict[str, object]]:
    """A row for each sum: τ on the DARTS cells and on NAS-Bench-201, and against parameters."""
    there = benchmark.measured(study)
    far = study.accuracy(there.index)
    rng = np.random.default_rng(study.seed)
    few = rng.permutation(len(there))[:FEW]  # τ of all 6,466 resampled takes minutes a sum
    for name in dict.fromkeys([*FIXED, chosen]):
        row: dict[str, object] = {"sum": name, "chosen on": chosen_on(name, chosen)}
        for label, scores, measured in (
            ("DARTS", here, accuracy),
            ("NAS-Bench-201", there.iloc[few], far[few]),
        ):
            values = sum_named(name).of(scores).to_numpy(float)
            known = np.isfinite(values)
            base = scores[BASELINE].to_numpy(float)
            tau, of_base = (
                darts.taus(of[known], measured[known], study.seed) for of in (values, base)
            )
            row |= {f"{label} cells": int(known.sum())}
            for ends, found in ((("τ", "low", "high"), tau), (GAP, tau - of_base)):
                row |= zip((f"{label} {end}" for end in ends), with_interval(found), strict=True)
        yield row


def chosen_on(name: str, chosen: str) -> str:
    """The space whose accuracies chose a sum."""
    if name == chosen:
        return "DARTS"
    return "NAS-Bench-201" if name in benchmark.SUMS else "–"


def table(frame: pd.DataFrame, halves: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Chosen here, tested there."""
    medians = halves.groupby("way")["kendall"].median()
    for one in frame.to_dict("records"):
        name = str(one["sum"])
        row = {"sum": name, "label": FIXED.get(name, ""), "chosen on": one["chosen on"]}
        for label in ("DARTS", "NAS-Bench-201"):
            tau = darts.interval_text(one, f"{label} τ", f"{label} low", f"{label} high")
            row[f"τ on {label}"] = tau + (" (chose)" if one["chosen on"] == label else "")
            ends = [f"{label} {end}" for end in GAP]
            row[f"less that of params, {label}"] = (
                "" if name == BASELINE else darts.interval_text(one, *ends)
            )
        own = medians[name] if name in medians else medians[CHOSEN]
        row["median of the testing halves, DARTS"] = f"{own:.3f}"
        yield row


def draw(frame: pd.DataFrame) -> Figure:
    """τ of each sum on one space against that on the other."""
    figure, axis = plt.subplots(figsize=(2 * COLUMN, 1.2 * COLUMN))
    colours = dict(zip(("–", "NAS-Bench-201", "DARTS"), COLOURS, strict=False))
    for mark, one in zip("osD^v<>PX*h", frame.to_dict("records"), strict=False):
        x, y, chosen = one["NAS-Bench-201 τ"], one["DARTS τ"], one["chosen on"]
        label = FIXED.get(one["sum"]) or score_label(one["sum"])
        axis.errorbar(
            x,
            y,
            [[y - one["DARTS low"]], [one["DARTS high"] - y]],
            [[x - one["NAS-Bench-201 low"]], [one["NAS-Bench-201 high"] - x]],
            mark,
            color=colours[chosen],
            markersize=4,
            linewidth=0.5,
            label=label + ("" if chosen == "–" else f", chosen on {chosen}"),
        )
    axis.set_xlabel("τ with PGD 8/255 accuracy, cells of NAS-Bench-201")
    axis.set_ylabel("τ with PGD-7 accuracy, DARTS cells")
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7)
    return figure


def better(label: str, here: str, there: str, row: pd.Series) -> Finding:
    """Whether a sum that was chosen here orders the cells there better than their parameters."""
    ends = [f"{there} {end}" for end in GAP]
    low, high = (float(row[end]) for end in ends[1:])
    gap = darts.interval_text(row, *ends) + (" (surely worse)" if high < 0 else "")
    return Finding(
        f"the sum chosen on {here}, {label}, orders {there} better than the parameter count",
        OURS,
        "it is the parameter count itself" if label == BASELINE else gap,
        verdict(low > 0, wrong=high <= 0),
        "τ less that of the parameters: reproduced where its interval lies above 0, not reproduced "
        "where it does not reach above 0",
    )


def run(study: Study) -> Outcome:
    """The table "chosen here, tested there", and its figure."""
    here = of_darts(study)
    accuracy = darts.accuracy_of(study, here.index)
    sums = candidates(here, TERMS)
    tested_halves = pd.DataFrame(nested(study, here, accuracy, sums))
    chosen = chosen_on_all(study, accuracy, sums)
    frame = pd.DataFrame(tested(study, here, accuracy, chosen))
    by_way = dict(tuple(tested_halves.groupby("way")))
    wide = by_way[CHOSEN]["kendall"].to_numpy() - by_way[BASELINE]["kendall"].to_numpy()
    most = by_way[CHOSEN]["sum"].value_counts()
    by_sum = frame.set_index("sum")
    return Outcome(
        frame,
        draw(frame),
        {"recordings": study.configurations([darts.TRAINED, *benchmark.RECORDINGS])}
        | {"terms": TERMS, "twins": TWINS, "folds": FOLDS, "splits": SPLITS, "seeds": SEEDS}
        | {"most_terms": MOST_TERMS, "chosen": chosen},
        (
            f"{len(here)} DARTS cells at their trained size; {FEW:,} cells of NAS-Bench-201, drawn "
            "once. Intervals of 95 % by bootstrap over cells.",
            f"{SPLITS * SEEDS} halves of the DARTS cells chose {len(most)} different sums, most "
            f"often {most.index[0]} ({most.iloc[0]} times). On the halves that did not choose, the "
            f"chosen sums have a median τ of {by_way[CHOSEN]['kendall'].median():.3f}, the "
            f"parameter count {by_way[BASELINE]['kendall'].median():.3f}; the chosen one is above "
            f"it in {int((wide > 0).sum())} of {len(wide)}.",
            "Poolings of a genotype stand for poolings on paths.",
        ),
        findings=(
            better("the default", "NAS-Bench-201", "DARTS", by_sum.loc[str(DEFAULT)]),
            better(f"{score_label(chosen)}", "DARTS", "NAS-Bench-201", by_sum.loc[chosen]),
        ),
        summary=pd.DataFrame(table(frame, tested_halves)),
    )
