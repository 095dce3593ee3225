"""What measures know that counting does not, and whether kernels know more of it than others.

Every measure's τ among cells of equal counts; kernels and other measures in each other's place, in
sums and beside counts; rankings of a few networks (`small_pools`); kernels at every recorded β,
radius, fidelity and convention (`kernel_settings`).
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.ours import kernel_settings, kernels_added, setting_tables, small_pools
from experiments.ours.equal_counts import GROUPINGS, pairs_of, taus, with_interval
from experiments.ours.kernel_settings import ENOUGH, KERNEL, SAMPLES
from experiments.ours.measures import HELD_EQUAL, LABELS, RECORDINGS, measured_by_seed
from experiments.plotting import COLUMN, DATASET_LABELS, annotate, metric_label, score_label
from experiments.study import DATASET, METRIC, Outcome, Study, interval
from ntkscore.measures.declaration import direction_of

DATASETS = (DATASET, "imagenet16-120")
RESAMPLES = 1000
SHOWN = 20
"""Measures in the report's table and in the figure."""


def examine(study: Study, scores: pd.DataFrame) -> Iterator[dict[str, object]]:
    """A row for each grouping, data set and measure: τ within groups in the better direction."""
    accuracies = study.accuracies(scores.index)
    for grouping, counts in GROUPINGS.items():
        pairs = pairs_of(scores, counts, RESAMPLES, study.seed)
        for measure in (name for name in scores if name not in (*HELD_EQUAL, "flops")):
            values = scores[measure].to_numpy(float) * (direction_of(str(measure)) or 1)
            for dataset in DATASETS:
                tau, low, high = with_interval(taus(values, accuracies[dataset], pairs))
                yield {
                    "grouping": grouping,
                    "groups": pairs.weights.shape[1],
                    "pairs": len(pairs.group),
                    "measure": measure,
                    "dataset": dataset,
                    "tau": tau,
                    "low": low,
                    "high": high,
                }


def leading(frame: pd.DataFrame) -> list[str]:
    """Measures by their mean τ over groupings and data sets, the largest first."""
    means = frame.groupby("measure")["tau"].mean()
    return [str(name) for name in means.sort_values(ascending=False).index]


def table(frame: pd.DataFrame, names: Sequence[str]) -> Iterator[dict[str, str]]:
    """A row for each measure, groupings and data sets side by side."""
    found = frame.set_index(["measure", "grouping", "dataset"])
    for name in names:
        row = {"measure": name}
        for grouping in GROUPINGS:
            for dataset in DATASETS:
                one = found.loc[(name, grouping, dataset)]
                text = "" if np.isnan(one["tau"]) else interval(*one[["tau", "low", "high"]])
                row[f"{grouping}: {DATASET_LABELS[dataset]}"] = text
        yield row


def draw(frame: pd.DataFrame, names: Sequence[str]) -> Figure:
    """τ of the leading measures within groups, with intervals."""
    size = (2.2 * COLUMN, 0.8 + 0.17 * len(names))
    figure, axes = plt.subplots(1, len(GROUPINGS), figsize=size, sharey=True)
    heights = np.arange(len(names))
    for axis, (grouping, part) in zip(axes, frame.groupby("grouping", sort=False), strict=True):
        for shift, dataset in zip((-0.15, 0.15), DATASETS, strict=True):
            one = part[part["dataset"] == dataset].set_index("measure").loc[list(names)]
            sides = [one["tau"] - one["low"], one["high"] - one["tau"]]
            label = DATASET_LABELS[dataset]
            axis.errorbar(one["tau"], heights + shift, xerr=sides, fmt="o", ms=3, label=label)
        axis.axvline(0, color="black", linewidth=0.5)
        first = part.iloc[0]
        axis.set_title(f"{grouping}: {first['groups']:,} groups, {first['pairs']:,} pairs")
    axes[0].set_yticks(heights, [LABELS.get(n) or score_label(n) for n in names], fontsize=7)
    axes[0].invert_yaxis()
    text = f"Kendall's τ with {metric_label(METRIC)} accuracy within groups"
    annotate(figure, axes[0], text, 2)
    return figure


def run(study: Study) -> Outcome:
    """Every measure's order within groups of equal counts, and what kernels add to counts."""
    tables = measured_by_seed(study)
    scores = tables[0]
    frame = pd.DataFrame(examine(study, scores))
    names = leading(frame)
    # The rest compares measures with each other, and so on the cells that have all of them.
    cells = pd.concat([one[list(kernels_added.NEEDED)] for one in tables], axis=1).dropna().index
    common = [one.loc[cells] for one in tables]
    accuracies = {name: study.accuracies(cells)[name] for name in DATASETS}
    partial = pd.DataFrame(kernels_added.beside(study, common[0]))
    pools = pd.DataFrame(small_pools.examine(common[0], accuracies, study.seed))
    settings, chosen, trained = {}, {}, []
    for sample, recordings in SAMPLES.items():
        found = kernel_settings.read(study, recordings, tables)
        settings[sample] = pd.DataFrame(kernel_settings.examine(found, sample, study.seed))
        if recordings == ("space",):
            trained.append(kernel_settings.trained(found, study.seed))
        if len(found.accuracy) >= ENOUGH:
            chosen[sample] = kernel_settings.chosen_on_half(found, study.seed)
    everything = {"groups": frame, "beside": partial, "pools": pools}
    everything |= {"settings": pd.concat(settings.values(), ignore_index=True)}
    data = pd.concat([part.assign(table=name) for name, part in everything.items()])
    recordings = [*RECORDINGS, *(name for sample in SAMPLES.values() for name in sample)]
    return Outcome(
        data,
        draw(frame, names[:SHOWN]),
        {"recordings": study.configurations(dict.fromkeys(recordings)), "table": study.table.name}
        | {"groupings": GROUPINGS, "resamples": RESAMPLES, "pools": small_pools.DRAWS},
        tuple(remarks(names, settings)),
        kernels_added.findings(study, common, chosen, *trained),
        pd.DataFrame(table(frame, [*names[:SHOWN], KERNEL, "robust.frobenius"])),
        (
            kernels_added.beside_table(partial),
            pd.DataFrame(small_pools.table(pools)),
            pd.DataFrame(setting_tables.beta_table(settings["all β"])),
            pd.DataFrame(setting_tables.recordings_table(pd.concat(settings.values()))),
            pd.DataFrame(setting_tables.summary(settings, chosen)),
        ),
        kept=True,
    )


def remarks(names: Sequence[str], settings: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Sentences below the tables."""
    counts = "; ".join(f"{name}: {', '.join(terms)}" for name, terms in GROUPINGS.items())
    number = sum(len(part) - len(kernel_settings.REFERENCES) for part in settings.values())
    higher = sum(len(setting_tables.higher(part)) for part in settings.values())
    yield (
        f"Cells of a group share counts ({counts}). Intervals of 95 %: of τ by bootstrap over "
        "groups, of partial coefficients over functions; of pools' means over the pools, which "
        "share cells: another table of cells would vary more."
    )
    yield (
        f"First table: the {SHOWN} measures with the largest mean τ; the data file has all "
        f"{len(names)}. The first smallest eigenvalue of a kernel is "
        f"{next(n for n in names if 'lambda_min' in n and '+' not in n)}, in place "
        f"{1 + names.index(KERNEL)}."
    )
    yield (
        f"Second table: partial Spearman coefficients given {', '.join(HELD_EQUAL)} and their "
        "squares. Features are NASWOT, expressivity, Jacobian correlation and EPE-NAS on clean "
        "and on attacked images, those of a measure's own kind left out."
    )
    yield (
        f"Third table: {small_pools.DRAWS:,} pools of each kind, the same for all columns. The "
        "first column is the sum of four counts; the others are the difference from it. Of the "
        "accuracy lost, less is better. All sums were chosen when all cells were known."
    )
    yield (
        "Fourth table: partial coefficient beside counts; τ at equal counts. The benchmark trains "
        "with β = 1 (its published code; `docs/training.md`). There K_all is the kernel of "
        "attacked images, and K̃_all that of images attacked twice."
    )
    yield (
        "Fifth table: coefficients beside counts, at the cells of each recording; those of "
        "`fidelity/`, of 40 cells, have intervals of about ±0.4 or more and are left out."
    )
    yield (
        f"All settings together: {number:,}, of which {higher} have a coefficient that is higher "
        f"than that of {KERNEL} at the moderate fidelity, on the same cells, by "
        f"{setting_tables.NOTABLE} or more with an interval above 0. If no setting were better or "
        f"worse, about {0.025 * number:.0f} intervals would be above 0. `trainability`, `weights` "
        "and `perturbations` hold measures without kernels, of the fidelity of `space`."
    )
