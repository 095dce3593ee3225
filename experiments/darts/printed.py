"""Sums that were chosen elsewhere, tested on networks whose robust accuracies papers print.

Twelve wide residual networks in four groups of equal FLOPs, and six genotypes that one laboratory
trained (`experiments.darts.printed_tables`). Nothing is chosen here. A score's sign is the one that
it claims, so that τ above 0 means an order that is right.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import kendalltau

from experiments.darts import printed_tables
from experiments.darts.measures import interval_text, taus
from experiments.darts.printed_tables import GROUP, PGD20, SCALED
from experiments.ours.equal_counts import with_interval
from experiments.ours.measures import PUBLISHED, with_counts
from experiments.plotting import score_label
from experiments.recordings import PRINTED
from experiments.study import OURS, Finding, Outcome, Study, verdict
from ntkscore.analysis.correlation import percentile_interval
from ntkscore.analysis.score_names import DEFAULT, ScoreSum
from ntkscore.measures.declaration import direction_of

POOLINGS = {"path_pools": "n_pool"}
"""Counts of NAS-Bench-201, and the nearest ones of DARTS."""
BASELINE = "params"
SHOWN = {
    BASELINE: "parameters",
    "flops": "multiply-adds",
    "layers": "layers",
    "field": "receptive field",
    str(DEFAULT): "the default",
    **PUBLISHED,
    **{
        f"clean.{name}": ""
        for name in ("naswot", "vkdnw", "zico", "expressivity", "trainability", "jacov")
    },
    **{f"network.{name}": "" for name in ("synflow", "zen")},
    **{f"{kernel}.lambda_min_normalized": "" for kernel in ("clean", "robust")},
    "robust.trace": "",
}
"""Sums and scores in the report's table."""
VKDNW = next(name for name, label in PUBLISHED.items() if label.startswith("VKDNW"))
PERMUTATIONS = 200


class Printed(NamedTuple):
    """Networks with printed accuracies.

    Attributes:
        label: what they are.
        recording: of their scores; a name in `PRINTED`.
        networks: reads the file with their accuracies.
    """

    label: str
    recording: str
    networks: Callable[[Path], pd.DataFrame]


LISTS = (
    Printed("wide residual networks", "printed/wide", printed_tables.wide_networks),
    Printed("named DARTS genotypes", "printed/genotypes", printed_tables.named_genotypes),
)


@cache
def scored(study: Study, printed: Printed) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Means over the seeds of every measure, with counts; and what is printed; a row each."""
    recording = PRINTED[printed.recording]
    published = printed.networks(study.data_dir / recording.table)
    scores = with_counts(study.rows(printed.recording), recording.space)
    return scores.loc[published.index], published


def orders(scores: pd.DataFrame, fewer: Sequence[str]) -> dict[str, np.ndarray]:
    """Every measure and count by itself, and the fixed sums, larger for a better network.

    A sum has the terms that there are; a measure that failed somewhere is left out.
    """
    found: dict[str, np.ndarray] = {}
    for name in map(str, scores):
        if direction_of(name) and scores[name].notna().all():
            found[name] = scores[name].to_numpy(float) * direction_of(name, fewer)
    for name in SHOWN:
        terms = [POOLINGS.get(term, term) for term in name.split("+")]
        terms = [term for term in terms if term in found or term not in POOLINGS.values()]
        if len(terms) > 1 and set(terms) <= set(found):
            found[name] = ScoreSum(tuple(terms), tuple(fewer)).of(scores).to_numpy(float)
    return found


def within_groups(
    values: Float[np.ndarray, " n"], accuracy: Float[np.ndarray, " n"], groups: Sequence[Any]
) -> tuple[int, int]:
    """The pairs within groups that are ordered as the accuracies are, and all pairs."""
    right = pairs = 0
    for group in dict.fromkeys(groups):
        (members,) = np.nonzero(np.array(groups) == group)
        for one, other in itertools.combinations(members, 2):
            right += (values[one] - values[other]) * (accuracy[one] - accuracy[other]) > 0
            pairs += 1
    return int(right), pairs


def ways_resampled(
    values: Float[np.ndarray, " n"], accuracy: Float[np.ndarray, " n"], ways: Sequence[str]
) -> Float[np.ndarray, " draws"]:
    """τ of every draw of ways of scaling with replacement, all networks of a way together."""
    members = [
        np.nonzero(np.array([each == way for each in ways]))[0] for way in dict.fromkeys(ways)
    ]
    draws = itertools.product(members, repeat=len(members))
    return np.array([kendalltau(values[i], accuracy[i])[0] for i in map(np.concatenate, draws)])


def examine(study: Study, printed: Printed) -> Iterator[dict[str, object]]:
    """A row for each order: τ and that less the parameters', and pairs within equal FLOPs."""
    scores, published = scored(study, printed)
    accuracy = published[PGD20].to_numpy(float)
    found = orders(scores, PRINTED[printed.recording].of.fewer)
    base = found[BASELINE]
    of_base = taus(base, accuracy, study.seed)
    for name, values in found.items():
        tau = taus(values, accuracy, study.seed)
        row: dict[str, object] = {"networks": printed.label, "order": name, "n": len(values)}
        row |= zip(("τ", "low", "high"), with_interval(tau), strict=True)
        row |= zip(("gap", "gap low", "gap high"), with_interval(tau - of_base), strict=True)
        if GROUP in published:
            right, pairs = within_groups(values, accuracy, published[GROUP].tolist())
            ways = published[SCALED].tolist()
            gaps = np.subtract(*(ways_resampled(v, accuracy, ways) for v in (values, base)))
            row |= {"right": right, "pairs": pairs}
            row |= zip(("ways low", "ways high"), percentile_interval(gaps), strict=True)
        yield row


def largest_by_chance(study: Study, printed: Printed) -> float:
    """The 95th percentile of the largest |τ| of all measures, accuracies permuted."""
    scores, published = scored(study, printed)
    accuracy, rng = published[PGD20].to_numpy(float), np.random.default_rng(study.seed)
    values = [v for name, v in orders(scores, ()).items() if "." in name and "+" not in name]
    largest = [
        max(abs(kendalltau(each, shuffled)[0]) for each in values if np.ptp(each) > 0)
        for shuffled in (rng.permutation(accuracy) for _ in range(PERMUTATIONS))
    ]
    return float(np.quantile(largest, 0.95))


def table(frame: pd.DataFrame) -> Iterator[dict[str, object]]:
    """The counts, sums and scores that are shown: a row each."""
    for one in frame[frame["order"].isin([*SHOWN])].to_dict("records"):
        name = str(one["order"])
        row: dict[str, object] = {
            "networks": f"{one['n']} {one['networks']}",
            "order": SHOWN[name] or score_label(name),
            "τ with PGD-20": interval_text(one, "τ", "low", "high"),
            "less that of parameters": ""
            if name == BASELINE
            else interval_text(one, "gap", "gap low", "gap high"),
        }
        grouped = not np.isnan(float(one.get("right", np.nan)))
        row["pairs right within equal FLOPs"] = (
            f"{one['right']:.0f} of {one['pairs']:.0f}" if grouped else ""
        )
        yield row


def better(label: str, row: Mapping[str, Any]) -> Finding:
    """Whether an order is better than that by parameters."""
    lows, highs = ([row[f"{of} {end}"] for of in ("gap", "ways")] for end in ("low", "high"))
    # Genotypes come in no ways of scaling.
    low, high = float(np.nanmin(lows)), float(np.nanmax(highs))
    ours = interval_text(row, "gap", "gap low", "gap high")
    if not np.isnan(row["ways low"]):
        ours += f"; ways resampled [{row['ways low']:.3f}, {row['ways high']:.3f}]"
    return Finding(
        f"{label} orders the {row['n']} {row['networks']} better than their parameter count",
        OURS,
        ours,
        verdict(low > 0, wrong=high < 0),
        "τ less that of the parameters: reproduced where all its intervals lie above 0, not "
        "reproduced where they lie below",
    )


def run(study: Study) -> Outcome:
    """The table of both lists of networks."""
    parts = {p.label: pd.DataFrame(examine(study, p)) for p in LISTS}
    wide, genotypes = (part.set_index("order", drop=False) for part in parts.values())
    frame = pd.concat(parts.values(), ignore_index=True)
    tested = {str(DEFAULT): "the default", **PUBLISHED}
    findings = [
        better(tested[one["order"]], one)
        for one in frame.to_dict("records")
        if one["order"] in tested
    ]
    remarks = []
    for printed, part in zip(LISTS, (wide, genotypes), strict=True):
        single = part[part["order"].str.contains(".", regex=False)]
        single = single[~single["order"].str.contains("+", regex=False)]
        scores, _ = scored(study, printed)
        absent = ", ".join(score_label(n) for n in map(str, scores) if scores[n].isna().any())
        best = single.loc[single["τ"].abs().idxmax()]
        configuration = study.result_set(printed.recording).configuration
        seeds = study.rows(printed.recording)["seed"].nunique()
        remarks.append(
            f"{best['n']} {printed.label}, scored at C = {configuration['channels']} on "
            f"{configuration['samples']} images, seeds: {seeds}. The largest |τ| of {len(single)} "
            f"measures is {best['τ']:.3f} ({score_label(str(best['order']))}); with permuted "
            f"accuracies the largest is above {largest_by_chance(study, printed):.3f} in one case "
            "of twenty." + (f" Failed for some network, and left out: {absent}." if absent else "")
        )
    return Outcome(
        frame,
        None,
        {"recordings": study.configurations([p.recording for p in LISTS])},
        (
            "Twelve and six networks decide little, and they are no random samples. Intervals are "
            "of 95 %, by bootstrap over networks.",
            "In each of the four groups of equal FLOPs the network scaled by depth is the worst, "
            "the one scaled by both the best. So an order that tells the three ways apart is right "
            "in all 12 pairs, by a chance of 1 in 6: the groups are one comparison, not four. "
            "The second interval of a row above resamples the three ways.",
            f"A count does as well: the receptive field, which grows with the depth, has a τ of "
            f"{wide.loc['field', 'τ']:.3f} on the wide residual networks, the default "
            f"{wide.loc[str(DEFAULT), 'τ']:.3f}, VKDNW's sum "
            f"{wide.loc[VKDNW, 'τ']:.3f}, the parameters {wide.loc[BASELINE, 'τ']:.3f}.",
            *remarks,
            "The accuracies of the wide residual networks are printed in table 2 of Huang et al. "
            "(2023), arXiv 2212.11005, and in the README of "
            "https://github.com/zhichao-lu/robust-residual-network (TRADES, PGD-20); "
            "those of the genotypes in table 1 of Wsr-NAS, "
            "https://github.com/zhicheng2T0/Wsr-NAS (TRADES-1, PGD). They are no part of this "
            "repository.",
            "In table 2 parameters and FLOPs of 8 of the 12 networks are those of the stages that "
            f"stand beside them. {printed_tables.MISPRINT[0]} is taken for "
            f"{printed_tables.MISPRINT[1]}, to which the printed 185M and 38.8G belong; 14-14-7x"
            "5-7-3, 17-17-8x7-9-4 and 22-22-11x8-11-5 are taken as they stand (ours: 18.7M, 38.3M "
            "and 75.3M parameters).",
        ),
        findings=tuple(findings),
        summary=pd.DataFrame(table(frame)),
    )
