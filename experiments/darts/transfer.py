"""Sums of measures chosen on one space, tested on the other: NAS-Bench-201 and DARTS.

1. Terms are the counts that both spaces have and the measures of `default_score`. Poolings on paths
   of a NAS-Bench-201 cell are the poolings of a genotype, its longest path is the depth.
2. A sum of log-ranks that was chosen on NAS-Bench-201 stands unchanged on the DARTS cells.
3. On DARTS a random half of the cells chooses a sum: of the sums of one to `MOST_TERMS` terms whose
   mean Spearman coefficient over `FOLDS` folds is within one standard error of the largest, the one
   of the fewest terms. The other half tests it. `SPLITS` halves for each of `SEEDS` seeds.
4. What rule 3 chooses on all DARTS cells is tested on all of NAS-Bench-201.
"""

from collections.abc import Iterator

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
    OF_WEIGHTS,
    SEEDS,
    SPLITS,
    Candidates,
    Means,
    candidates,
    simplest,
    spearman,
)
from experiments.plotting import COLOURS, COLUMN, annotate, score_label
from experiments.study import DATASET, OURS, SPACE, Finding, Outcome, Study
from ntkscore.analysis.correlation import draws
from ntkscore.measures.declaration import direction_of

TWINS = {
    "params": "params",
    "flops": "flops",
    "layers": "layers",
    "path_pools": "n_pool",
    "longest_path": "depth",
    "field": "field",
}
"""Counts of NAS-Bench-201, and those of DARTS that mean the same."""
TERMS = (*(name for name in TWINS if name != "flops"), *OF_FEATURES, *OF_KERNELS, *OF_WEIGHTS)
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
FEW = 1500
"""Cells of NAS-Bench-201 that sums are tested on."""


def of_darts(study: Study, recording: str = darts.TRAINED) -> pd.DataFrame:
    """Measures and counts of the DARTS cells, the counts by the names that NAS-Bench-201 has."""
    scores = darts.by_cell(study.rows(recording))
    scores = scores.drop(columns=[name for name in scores if name in TWINS and TWINS[name] != name])
    return scores.rename(columns={twin: name for name, twin in TWINS.items()})


def log_rank_sum(name: str, scores: pd.DataFrame) -> Float[np.ndarray, " cells"]:
    """A sum of log-ranks among these cells, larger for a better cell; NaN where a term fails."""
    columns = [direction_of(term, SPACE.fewer) * scores[term] for term in name.split("+")]
    return np.sum([np.log(column.rank()) for column in columns], axis=0)


def over_folds(
    sums: Candidates, accuracy: Float[np.ndarray, " cells"], cells: Int[np.ndarray, " half"]
) -> Means:
    """Spearman coefficients of every sum over the folds of some cells in random order."""
    members = sums.members.astype(float)
    found = np.stack(
        [
            spearman(members @ sums.log_ranks[:, fold], accuracy[fold])
            for fold in np.array_split(cells, FOLDS)
        ]
    )
    return Means(found.mean(0), found.std(0, ddof=1) / np.sqrt(FOLDS))


def nested(
    study: Study, scores: pd.DataFrame, accuracy: Float[np.ndarray, " cells"]
) -> Iterator[dict[str, object]]:
    """A row for each half and way: the sum, and its τ on the cells that did not choose it."""
    sums = candidates(scores, TERMS)
    every = np.arange(len(sums.members))
    fixed = {name: log_rank_sum(name, scores) for name in FIXED}
    for seed in range(study.seed, study.seed + SEEDS):
        rng = np.random.default_rng(seed)
        for split in range(SPLITS):
            order = rng.permutation(len(scores))
            choosing, testing = order[: len(order) // 2], order[len(order) // 2 :]
            means = over_folds(sums, accuracy, choosing)
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


def chosen_on_all(study: Study, scores: pd.DataFrame, accuracy: np.ndarray) -> str:
    """The sum that all DARTS cells choose, by the means over the folds of all seeds."""
    sums = candidates(scores, TERMS)
    found = [
        over_folds(sums, accuracy, np.random.default_rng(seed).permutation(len(scores)))
        for seed in range(study.seed, study.seed + SEEDS)
    ]
    means = Means(*(np.mean(parts, 0) for parts in zip(*found, strict=True)))
    return sums.name(simplest(sums, np.arange(len(sums.members)), means))


def difference(
    values: np.ndarray, baseline: np.ndarray, accuracy: np.ndarray, seed: int
) -> tuple[float, float, float]:
    """τ of a score less that of a baseline on the same cells and resamples, with its interval."""
    gaps = [
        kendalltau(values[cells], accuracy[cells])[0]
        - kendalltau(baseline[cells], accuracy[cells])[0]
        for cells in (
            np.arange(len(values)),
            *draws(len(values), darts.RESAMPLES, seed),
        )
    ]
    return darts.with_interval(np.array(gaps))


def tested(study: Study, chosen: str) -> Iterator[dict[str, object]]:
    """A row for each sum: τ on the DARTS cells and on NAS-Bench-201, and against parameters."""
    here = of_darts(study)
    accuracy = darts.accuracy_of(study, here.index)
    there = benchmark.measured(study)
    far = study.accuracies(there.index)[DATASET]
    rng = np.random.default_rng(study.seed)
    few = rng.permutation(len(there))[:FEW]  # τ of all 6,466 resampled takes minutes a sum
    for name in dict.fromkeys([*FIXED, chosen]):
        row: dict[str, object] = {"sum": name, "chosen on": chosen_on(name, chosen)}
        for label, scores, measured in (
            ("DARTS", here, accuracy),
            ("NAS-Bench-201", there.iloc[few], far[few]),
        ):
            values = log_rank_sum(name, scores)
            known = np.isfinite(values)
            base = log_rank_sum(BASELINE, scores)
            tau = darts.kendall(values[known], measured[known], study.seed)
            gap = difference(values[known], base[known], measured[known], study.seed)
            row |= {f"{label} cells": int(known.sum())}
            row |= dict(zip((f"{label} τ", f"{label} low", f"{label} high"), tau, strict=True))
            row |= dict(
                zip((f"{label} gap", f"{label} gap low", f"{label} gap high"), gap, strict=True)
            )
        yield row


def chosen_on(name: str, chosen: str) -> str:
    """The space whose accuracies chose a sum."""
    if name == chosen:
        return "DARTS"
    return "NAS-Bench-201" if name in benchmark.SUMS else "–"


def table(frame: pd.DataFrame, halves: pd.DataFrame) -> pd.DataFrame:
    """Chosen here, tested there."""
    rows = []
    medians = halves.groupby("way")["kendall"].median()
    for one in frame.to_dict("records"):
        name = str(one["sum"])
        row = {"sum": name, "label": FIXED.get(name, ""), "chosen on": one["chosen on"]}
        for label in ("DARTS", "NAS-Bench-201"):
            row[f"τ on {label}"] = _interval(one, f"{label} τ", f"{label} low", f"{label} high")
            ends = f"{label} gap", f"{label} gap low", f"{label} gap high"
            row[f"less that of params, {label}"] = "" if name == BASELINE else _interval(one, *ends)
        row["median of DARTS halves"] = f"{medians[name]:.3f}" if name in medians else ""
        rows.append(row)
    return pd.DataFrame(rows)


def _interval(row: dict, *columns: str) -> str:
    value, low, high = (float(row[column]) for column in columns)
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def draw(frame: pd.DataFrame) -> Figure:
    """τ of each sum on one space against that on the other."""
    figure, axis = plt.subplots(figsize=(1.6 * COLUMN, 1.3 * COLUMN))
    colours = dict(zip(("–", "NAS-Bench-201", "DARTS"), COLOURS, strict=False))
    for one in frame.to_dict("records"):
        x, y = one["NAS-Bench-201 τ"], one["DARTS τ"]
        colour = colours[one["chosen on"]]
        axis.errorbar(
            x,
            y,
            [[y - one["DARTS low"]], [one["DARTS high"] - y]],
            [[x - one["NAS-Bench-201 low"]], [one["NAS-Bench-201 high"] - x]],
            "o",
            color=colour,
            markersize=3,
            linewidth=0.6,
        )
        label = FIXED.get(one["sum"]) or score_label(one["sum"])
        axis.annotate(label, (x, y), fontsize=5, xytext=(3, 2), textcoords="offset points")
    for chosen, colour in colours.items():
        axis.plot([], [], "o", color=colour, markersize=3, label=f"chosen on {chosen}")
    axis.set_ylabel("τ, 223 DARTS cells")
    annotate(figure, axis, "τ with PGD 8/255 accuracy, cells of NAS-Bench-201", 3)
    return figure


def run(study: Study) -> Outcome:
    """The table "chosen here, tested there", and its figure."""
    here = of_darts(study)
    accuracy = darts.accuracy_of(study, here.index)
    halves = pd.DataFrame(nested(study, here, accuracy))
    chosen = chosen_on_all(study, here, accuracy)
    frame = pd.DataFrame(tested(study, chosen))
    by_way = dict(tuple(halves.groupby("way")))
    wide = by_way[CHOSEN]["kendall"].to_numpy() - by_way[BASELINE]["kendall"].to_numpy()
    most = by_way[CHOSEN]["sum"].value_counts()
    best = frame[frame["sum"].isin(benchmark.LABELS)].sort_values("DARTS τ").iloc[-1]
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
            "Poolings of a genotype stand for poolings on paths, its depth for the longest path.",
        ),
        findings=(
            Finding(
                "a sum that the DARTS cells did not choose orders them better than parameters",
                OURS,
                f"{FIXED[best['sum']]}: "
                f"{_interval(dict(best), 'DARTS gap', 'DARTS gap low', 'DARTS gap high')}",
                "reproduced" if best["DARTS gap low"] > 0 else "not reproduced",
                "reproduced where the interval of the best one's difference lies above 0",
            ),
        ),
        summary=table(frame, halves),
    )
