"""Which order finds a robust cell that a device can afford: by HW-NAS-Bench's latency and energy.

The protocol was committed before this was run. A table without intervals had been looked at on
CIFAR-10, in which sums with λ_min/trace or VKDNW were ahead; so ImageNet16-120 is the far test.

1. Candidates are the cells of the benchmark whose cost on the device is known. They are taken
   within budgets, of at most the q-th quantile of that cost, q = .1, .2 … 1; and within tenths of
   the cells by cost.
2. An order ranks the candidates of a budget among themselves, as `rank --at-most` does. It is worth
   Spearman's coefficient with their accuracy, and what its pick, and the best of its first five,
   lose in accuracy to the best candidate. A line is the mean over the tenths, or the budgets.
3. Intervals are of 95 %, by bootstrap: once of functions, whose cells are drawn together, and once
   of costs, where cells of equal cost are. Of the two the wider counts. Differences are paired. A
   draw that leaves a tenth with five cells or fewer has a mean over the others: some tenths are of
   a single cost (added when the first run stopped there, before a number was seen).
4. A claim about deciles has to hold for each of the nine costs and each data set, and is worth a
   note from .02 on; one about picks from .1 points on. Joint kernels at β = 1 are the robust one
   and that of images attacked twice; at β = .5 the package has norms alone.
5. The last case has the same cells trained without attacks, and PGD of 1/255 and 2/255.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.data import BEFORE, BENCHMARK, COSTS, METRIC, OLDER, functions_of, sum_named
from experiments.frame import Claim, Interval, Stronger, Study
from experiments.paper.contrasts import NOTABLE
from experiments.paper.measures import measured
from experiments.plotting import DATASET_LABELS, annotate, beside, panels
from ntkscore.analysis.correlation import centred_ranks, draws, percentile_interval, rank_codes
from ntkscore.data.costs import load_costs

COUNTS = "params+layers+path_pools+field"
BY_KERNEL, BY_VKDNW = f"{COUNTS}+clean.lambda_min_normalized", f"{COUNTS}+clean.vkdnw"
ORDERS = {
    "params": "parameters",
    COUNTS: "four counts",
    BEFORE: "the default before",
    BY_KERNEL: "counts and λ_min/trace",
    f"{COUNTS}+robust.lambda_min_normalized": "counts and that of K_all, β = 1",
    f"{COUNTS}+twice.lambda_min_normalized": "counts and that of K̃_all, β = 1",
    f"{COUNTS}+joint_clean@0.5.frobenius": "counts and ‖K_all‖, β = .5",
    f"{COUNTS}+robust.expressivity": "counts and expressivity",
    BY_VKDNW: "counts and VKDNW",
}
BUDGETS, TENTHS = "budgets", "tenths"
STANDARD = ("pgd_1", "pgd_2")
WORTH = 0.1
"""Points of accuracy from which on a difference of picks is worth a note."""
FIRST = 5


class Worth(NamedTuple):
    """What an order is worth: Spearman, and points that its pick and the best of its five lose."""

    spearman: float
    pick: float
    five: float


class Candidates(NamedTuple):
    """Cells within a budget or a tenth: which they are, and their ranks in each order, as codes."""

    inside: np.ndarray
    codes: np.ndarray

    def worth(self, at: np.ndarray, accuracy: np.ndarray) -> np.ndarray:
        """What each order is worth among those of some cells, a draw perhaps, that are inside.

        Returns:
            The fields of `Worth`, a row for each order; NaN among too few to pick from. What is
            picked is picked once.
        """
        at = at[self.inside[at]]
        once = np.unique(at)
        if len(once) <= FIRST:
            return np.full((len(ORDERS), len(Worth._fields)), np.nan)
        percent = 100 * accuracy[once]
        codes = self.codes[:, once]
        lost = percent.max() - percent[np.argpartition(-codes, FIRST)[:, :FIRST]]
        picked = percent.max() - percent[codes.argmax(1)]
        truth = unit(centred_ranks(rank_codes(accuracy[at])))
        found = [unit(centred_ranks(codes)) @ truth for codes in self.codes[:, at]]
        return np.column_stack([found, picked, lost.min(1)])


def unit(values: np.ndarray) -> np.ndarray:
    """A vector of length 1 along another; NaN where that is 0."""
    with np.errstate(invalid="ignore"):
        return values / np.linalg.norm(values)


def candidates(cost: np.ndarray, scores: pd.DataFrame, parts: int) -> dict[str, list[Candidates]]:
    """The cells within each budget, and within each tenth, in their orders there."""
    edges = np.quantile(cost, np.linspace(0, 1, parts + 1))
    tenth = np.clip(np.searchsorted(edges, cost, side="left") - 1, 0, parts - 1)
    inside = {
        BUDGETS: [cost <= edge for edge in edges[1:]],
        TENTHS: [tenth == part for part in range(parts)],
    }

    def within(chosen: np.ndarray) -> Candidates:
        codes = np.zeros((len(ORDERS), len(scores)), int)
        for row, order in zip(codes, ORDERS, strict=True):
            row[chosen] = rank_codes(sum_named(order).of(scores[chosen]).fillna(-np.inf))
        return Candidates(chosen, codes)

    return {kind: [within(each) for each in some] for kind, some in inside.items()}


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """A row for each metric, cost, kind of candidates and order of a data set."""
    standard = at.accuracies == "standard"
    scores = measured(at.data)
    folder = at.data.folder(COSTS)
    costs = load_costs(folder, "cifar10" if standard else at.accuracies).loc[scores.index]
    for metric in STANDARD if standard else (METRIC,):
        for name in costs:
            known = costs[name].notna().to_numpy()
            some, cost = scores[known], costs.loc[known, name].to_numpy()
            cells = list(some.index)
            table = at.data.older if standard else at.data.table
            accuracy = table.accuracies("cifar10" if standard else at.accuracies, metric, cells)
            for row in worths(some, cost, np.array(accuracy), at.parts, at.resamples):
                yield {"metric": metric, "cost": name, "n": len(cells), **row}


def worths(
    scores: pd.DataFrame, cost: np.ndarray, accuracy: np.ndarray, parts: int, resamples: int
) -> Iterator[dict[str, Any]]:
    """What each order is worth, and less the four counts, with the wider of two intervals."""
    everyone, counts = np.arange(len(cost)), list(ORDERS).index(COUNTS)
    groups = functions_of(scores.index), rank_codes(cost)
    for kind, sets in candidates(cost, scores, parts).items():

        def mean(at: np.ndarray, sets: list[Candidates] = sets) -> np.ndarray:
            return np.nanmean([each.worth(at, accuracy) for each in sets], axis=0)

        whole = mean(everyone)
        bootstraps = [
            np.array([mean(at) for at in draws(len(cost), resamples, groups=each)])
            for each in groups
        ]
        for place, order in enumerate(ORDERS):
            row: dict[str, Any] = {"kind": kind, "order": order}
            for suffix, less in (("", 0.0), ("_less", 1.0)):
                values = whole[place] - less * whole[counts]
                samples = [each[:, place] - less * each[:, counts] for each in bootstraps]
                for column, what in enumerate(Worth._fields):
                    ends = [percentile_interval(drawn[:, column]) for drawn in samples]
                    name = f"{what}{suffix}"
                    row |= {name: values[column], f"{name}_low": min(low for low, _ in ends)}
                    row |= {f"{name}_high": max(high for _, high in ends)}
            yield row


def of(
    frame: pd.DataFrame,
    order: str,
    column: str,
    kind: str = TENTHS,
    sign: int = 1,
    standard: bool = False,
) -> Any:
    """Intervals of an order on every cost, of the adversarially trained cells or of the others."""
    part = frame[(frame["order"] == order) & (frame["kind"] == kind)]
    part = part[(part["accuracies"] == "standard") == standard]
    numbers = (sign * part[[column, f"{column}_low", f"{column}_high"]]).to_numpy()
    return [Interval(value, *sorted(ends)) for value, *ends in numbers]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What orders better than four counts, and picks better, on every cost and data set."""
    for order, label in ORDERS.items():
        if order not in (COUNTS, "params"):
            text = f"{label}: orders cells of about equal cost better than four counts do"
            yield Claim(text, "", of(frame, order, "spearman_less"), Stronger(NOTABLE), ours=True)
    found = of(frame, "params", "spearman_less", sign=-1)
    text = "four counts order cells of about equal cost better than the parameter count does"
    yield Claim(text, "", found, Stronger(NOTABLE), ours=True)
    text = f"{ORDERS[BY_KERNEL]}: the same, PGD 1/255 and 2/255 after training without attacks"
    found = of(frame, BY_KERNEL, "spearman_less", standard=True)
    yield Claim(text, "", found, Stronger(NOTABLE), ours=True)
    for order in (BY_KERNEL, BY_VKDNW):
        text = f"{ORDERS[order]}: picks a better cell within a budget than four counts do"
        found = of(frame, order, "pick_less", BUDGETS, -1)
        yield Claim(text, "", found, Stronger(WORTH), ours=True)
    text = "four counts pick a better cell within a budget than the parameter count does"
    found = of(frame, "params", "pick_less", BUDGETS)
    yield Claim(text, "", found, Stronger(WORTH), ours=True)


def device(cost: str) -> str:
    """A cost as a label: "pixel3, ms"."""
    name, _, what = cost.rpartition("_")
    return f"{name}, {'ms' if what == 'latency' else 'mJ'}"


def figure(frame: pd.DataFrame) -> Figure:
    """Agreement within tenths of each cost, by order; a panel for each data set."""
    part = frame[(frame["kind"] == TENTHS) & (frame["accuracies"] != "standard")]
    part = part.assign(value=part["spearman"], low=part["spearman_low"], high=part["spearman_high"])
    shown = [order for order, label in ORDERS.items() if "_all" not in label]
    part = part[part["order"].isin(shown)].assign(
        device=part["cost"].map(device), label=part["order"].map(ORDERS)
    )
    drawn, axes = panels(len(DATASET_LABELS), 1.1, together=True)
    places = list(dict.fromkeys(part["device"]))
    for axis, (dataset, label) in zip(axes, DATASET_LABELS.items(), strict=True):
        beside(axis, part[part["accuracies"] == dataset], "device", "label", places)
        axis.set(title=label)
        axis.tick_params(axis="x", rotation=60)
    axes[0].set_ylabel("Spearman with PGD 8/255 accuracy")
    annotate(drawn, axes[0], "within tenths of the cells by cost", 4)
    return drawn


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """CIFAR-10: of each order and cost the coefficient within tenths, and what its pick loses."""
    part = frame[frame["accuracies"] == "cifar10"]
    tenths, budgets = (part[part["kind"] == kind] for kind in (TENTHS, BUDGETS))
    found = tenths.pivot(index="order", columns="cost", values="spearman").map("{:.3f}".format)
    lost = budgets.pivot(index="order", columns="cost", values="pick").map("{:.1f}".format)
    both = (found + " / " + lost).loc[list(ORDERS), list(dict.fromkeys(part["cost"]))]
    return both.rename(index=ORDERS, columns=device).rename_axis("order").reset_index()


STUDY = Study(
    "A robust cell that a device can afford",
    measure,
    cases={"accuracies": (*DATASET_LABELS, "standard")},
    fixed={"parts": 10, "resamples": 200},
    claims=claims,
    figure=figure,
    table=table,
    note="Latency and energy are HW-NAS-Bench's. Table: Spearman's coefficient with PGD 8/255 "
    "accuracy within tenths of the cells by cost, and points of accuracy that the pick within a "
    "budget loses, each a mean of ten. Scores are means of three seeds of 16 images.",
    needs=(BENCHMARK, OLDER, COSTS),
    ours=False,
)
