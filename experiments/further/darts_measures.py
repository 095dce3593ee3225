"""Every train-free measure of DARTS cells against their accuracy, and given counts.

Kendall's τ-b with an interval over cells; the partial Spearman coefficient given counts; and τ
within tenths of the cells by size, over the pairs of cells of the same tenth, whose bootstrap
resamples the cells of each tenth.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy.stats import kendalltau, rankdata, spearmanr

from cells.darts import Darts
from cells.darts.counts import DILATED, POOLS, SEPARABLE
from cells.darts.genotype import SKIP
from experiments.data import DARTS_TABLE, DATASET, METRIC, single_seeds
from experiments.frame import NONE, Claim, Interval, Study, Within, exact, near
from experiments.paper.contrasts import partials
from experiments.paper.measures import with_counts
from experiments.plotting import annotate, panels, points, score_label
from ntkscore.analysis.correlation import draws, percentile_interval
from ntkscore.analysis.paired import left_by
from ntkscore.analysis.score_names import ScoreSum
from ntkscore.errors import InputError
from ntkscore.measures.registry import direction_of

SPACE = Darts()
_ONE = SPACE.parse("DARTS")
COUNTED = {*SPACE.costs(_ONE), *SPACE.structure(_ONE)}
KINDS = {"sep": SEPARABLE, "dil": DILATED, "pool": POOLS, "skip": (SKIP,)}
NORMAL = {f"normal_{name}": kinds for name, kinds in KINDS.items()}
"""Operations of the normal cell alone; `n_sep` and the others count both cells."""
TRAINED = "darts/trained"
"""The recording of networks of the size that was trained."""
PRINTED = {
    "network.synflow": 0.233,
    "clean.grad_norm": 0.174,
    "clean.snip": 0.171,
    "clean.jacov": -0.027,
}
"""Kendall's τ of published proxies with PGD-7 accuracy, as the table's authors print it."""
ORDERS = SPACE.order, "params+field+clean.naswot"
"""The order where nobody names one, and NAS-Bench-201's before without its poolings."""
TOLERANCE = 0.03
"""Difference from a printed τ that the draw of weights and images explains."""
SHOWN = 30


def taus(
    values: Float[np.ndarray, " cells"],
    accuracy: Float[np.ndarray, " cells"],
    resamples: int,
    seed: int,
) -> Float[np.ndarray, " resamples"]:
    """Kendall's τ-b: first of all cells, then of cells drawn with replacement."""
    drawn = (np.arange(len(values)), *draws(len(values), resamples, seed))
    return np.array([kendalltau(values[cells], accuracy[cells])[0] for cells in drawn])


def within_tenths(
    values: Float[np.ndarray, " cells"],
    accuracy: Float[np.ndarray, " cells"],
    params: np.ndarray,
    resamples: int,
    seed: int,
) -> Float[np.ndarray, " resamples"]:
    """τ over the pairs of cells of the same tenth by size, in the form of `taus`."""
    rng, sums = np.random.default_rng(seed), np.zeros((3, resamples + 1))
    for tenth in np.array_split(np.argsort(params, kind="stable"), 10):
        x, a = (np.sign(np.subtract.outer(of[tenth], of[tenth])) for of in (values, accuracy))
        drawn = rng.multinomial(len(tenth), np.full(len(tenth), 1 / len(tenth)), resamples)
        weights = np.vstack([np.ones(len(tenth)), drawn])
        for k, products in enumerate((x * a, x * x, a * a)):
            sums[k] += np.einsum("ri,ij,rj->r", weights, products, weights, optimize=True)
    return sums[0] / np.sqrt(np.maximum(sums[1] * sums[2], 1))


def chance(
    values: Float[np.ndarray, "cells measures"],
    accuracy: Float[np.ndarray, " cells"],
    given: Float[np.ndarray, "cells given"],
    permutations: int,
    seed: int,
) -> float:
    """The 95th percentile of the largest |partial coefficient| of all measures by chance.

    What the counts leave of the accuracies' ranks is permuted; what they explain stays.
    """
    rng, ranks = np.random.default_rng(seed), rankdata(accuracy)
    others = rankdata(given, axis=0).T
    others -= others.mean(1, keepdims=True)
    (left,) = left_by(others, ranks[None], squares=True)
    largest = [
        np.abs(partials(values, ranks - left + rng.permutation(left), given)).max()
        for _ in range(permutations)
    ]
    return float(np.quantile(largest, 0.95))


def scores_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds of every measure, and costs and counts; a row for each genotype.

    Raises:
        InputError: if a score failed, since each number here is of all cells.
    """
    scores = with_counts(rows, SPACE)
    if failed := [name for name in map(str, scores) if scores[name].isna().any()]:
        raise InputError(
            "every score of every cell",
            f"but {', '.join(failed)} failed for some",
            "record them again",
        )
    return scores


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """A row for each measure at one size of networks."""
    rows = at.data.rows(at.recording)
    scores, seeds = scores_of(rows), [*map(scores_of, single_seeds(rows))]
    accuracy = at.data.darts.accuracies(DATASET, METRIC, list(scores.index))
    cells = [[operation for operation, _ in SPACE.parse(key).normal] for key in scores.index]
    normal = {name: [sum(o in kinds for o in c) for c in cells] for name, kinds in NORMAL.items()}
    given = scores.assign(**normal)[list(at.held_equal)].to_numpy(float)
    asked = scores.drop(columns=list(COUNTED))
    beside = partials(asked.to_numpy(float), accuracy, given, at.resamples, at.seed)
    by_chance = chance(asked.to_numpy(float), accuracy, given, at.permutations, at.seed)
    size = at.data.result_set(at.recording).configuration
    for name in map(str, scores):
        values, how = scores[name].to_numpy(float), (at.resamples, at.seed)
        alone = [float(kendalltau(one[name], accuracy)[0]) for one in seeds]
        row = {
            "networks": f"C = {size['channels']}, L = {size['layers']}",
            "measure": name,
            "cells": len(values),
            "spearman": float(spearmanr(values, accuracy)[0]),
            "tau_least_seed": min(alone),
            "tau_most_seed": max(alone),
            "chance": by_chance,
        }
        equal_size = within_tenths(values, accuracy, scores["params"].to_numpy(), *how)
        found = {"tau": taus(values, accuracy, *how), "equal_size": equal_size}
        if name not in COUNTED:
            found["beside"] = beside[:, asked.columns.get_loc(name)]
        for column, (value, *resampled) in found.items():
            low, high = percentile_interval(np.array(resampled))
            row |= {column: float(value), f"{column}_low": low, f"{column}_high": high}
        yield row
    for order in ORDERS:
        yield {
            **{name: row[name] for name in ("networks", "cells", "chance")},
            "measure": order,
            **of_the_order(order, scores, accuracy, at.resamples, at.seed),
        }


def of_the_order(
    order: str,
    scores: pd.DataFrame,
    accuracy: Float[np.ndarray, " cells"],
    resamples: int,
    seed: int,
) -> dict[str, float]:
    """τ of a sum of log-ranks, and that less τ of the parameter count."""
    values = ScoreSum.parse(order, costs=sorted(COUNTED), fewer=SPACE.fewer).of(scores)
    own, params = (
        taus(each.to_numpy(float), accuracy, resamples, seed) for each in (values, scores["params"])
    )
    found = {}
    for column, (value, *drawn) in {"tau": own, "less_params": own - params}.items():
        low, high = percentile_interval(np.array(drawn))
        found |= {column: float(value), f"{column}_low": low, f"{column}_high": high}
    return found


def leading(frame: pd.DataFrame) -> pd.DataFrame:
    """The measures at the trained size by name, those that agree best with accuracy first."""
    part = frame[frame["recording"] == TRAINED].set_index("measure")
    return part.loc[part["tau"].abs().sort_values(ascending=False, kind="stable").index]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What the authors of the table print, beside ours; and whether anything beats counting."""
    part = leading(frame)
    for name, printed in PRINTED.items():
        text = f"τ of {score_label(name)} with PGD-7 accuracy, range of three seeds"
        found = Interval(*part.loc[name, ["tau", "tau_least_seed", "tau_most_seed"]])
        yield Claim(text, printed, found, near(printed, TOLERANCE))
    own = part[part["beside"].notna()]
    beside = own["beside"].abs()
    most, rule = score_label(str(beside.idxmax())), Within(high=float(own["chance"].iloc[0]))
    text = f"beside counts no measure agrees; {most} most, the rule is by permutation"
    yield Claim(text, "", exact(beside.max()), rule, ours=True)
    text = f"the order where nobody names one, {SPACE.order}, less the parameter count: τ"
    columns = [f"less_params{end}" for end in ("", "_low", "_high")]
    found = Interval(*part.loc[SPACE.order, columns])
    yield Claim(text, "", found, Within(low=-TOLERANCE), ours=True)
    sure = (part["equal_size_low"] > 0) | (part["equal_size_high"] < 0)
    text = "measures whose τ among cells of nearly equal size is surely not 0"
    yield Claim(text, "", exact(sure.sum()), NONE, ours=True)
    way = np.array([direction_of(str(name), SPACE.fewer) for name in own.index])
    turned = ((way > 0) & (own["tau_high"] < 0)) | ((way < 0) & (own["tau_low"] > 0))
    text = f"of {len(own)} measures, those that surely order cells against their own claim"
    yield Claim(text, "", exact(turned.sum()), NONE, ours=True)


def ends(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """A column's values and the ends of their intervals."""
    return rows[[column, f"{column}_low", f"{column}_high"]].set_axis(Interval._fields, axis=1)


def figure(frame: pd.DataFrame) -> Figure:
    """A row for each measure: τ at every size of networks, and the partial coefficient."""
    shown = leading(frame).iloc[:SHOWN]
    places, bound = range(len(shown)), shown["chance"].iloc[0]
    drawn, axes = panels(2, 1.2, together=True)
    drawn.set_figheight(0.9 + 0.17 * len(shown))
    for axis, column in zip(axes, ("tau", "beside"), strict=True):
        style = {"fmt": "o", "markersize": 3, "elinewidth": 0.8}
        rows, label = ends(shown, column), shown["networks"].iloc[0]
        points(axis, places, rows, across=True, label=label, **style)
        axis.axvline(0, color="black", linewidth=0.5)
        axis.grid(axis="y", linewidth=0.3)
    for size, part in frame[frame["recording"] != TRAINED].groupby("networks", sort=False):
        taus = part.set_index("measure")["tau"].reindex(shown.index)
        axes[0].plot(taus, places, "o", markersize=3, label=size)
    axes[1].axvspan(-bound, bound, color="0.92", zorder=0)
    axes[0].set_title("Kendall's τ with accuracy")
    axes[1].set_title("Spearman beside counts; grey: by chance")
    axes[0].set_yticks(places, map(score_label, shown.index), fontsize=7)
    axes[0].invert_yaxis()
    cells = int(frame["cells"].max())
    annotate(drawn, axes[0], f"{cells} DARTS cells, PGD-7 accuracy of the best epoch", 3)
    return drawn


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """The ten measures that agree best, the orders, and those with a printed τ."""
    part = leading(frame)
    rows = part.loc[list(dict.fromkeys([*part.index[:10], *ORDERS, *PRINTED]))]
    titles = {"tau": "τ", "beside": "ρ beside counts", "equal_size": "τ within tenths by size"}
    found = {
        title: [str(Interval(*row)) for row in ends(rows, column).to_numpy()]
        for column, title in titles.items()
    }
    return pd.DataFrame({"measure": rows.index, **found})


STUDY = Study(
    "Every train-free measure of DARTS cells against accuracy, beside counting",
    measure,
    cases={"recording": (TRAINED, "darts/small", "darts/shallow")},
    fixed={
        "held_equal": (
            *("params", "flops", "layers", *(f"n_{name}" for name in KINDS), *NORMAL),
            *("depth", "field"),
        ),
        "resamples": 500,
        "permutations": 200,
        "seed": 0,
    },
    claims=claims,
    figure=figure,
    table=table,
    note="Genotypes of Tiny-RobustBench, each trained once, so the noise of training is unknown. "
    "Counts are held equal by their ranks and the squares of these.",
    needs=(DARTS_TABLE, TRAINED, "darts/small", "darts/shallow"),
)
