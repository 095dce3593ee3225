"""Rankings of a few networks: by counts, by kernels, and by both.

A pool is a handful of cells drawn at random, from all of the table or from its largest tenth. Ranks
are among the pool's cells, as in a run that scores these alone. A pool's loss is the accuracy of
its best cell less that of the best-scored one; cells that score equally well share it.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import rankdata

from experiments.ours.kernel_settings import KERNEL
from experiments.plotting import DATASET_LABELS
from experiments.study import DATASET, interval, sum_named
from ntkscore.analysis.correlation import percentile_interval

SIZES = (10, 20, 50, 100)
DRAWS = 1000
COUNTS = "params+layers+path_pools+field"
"""The sum of counts that a half of the cells chooses most often by the largest mean."""
WAYS = {
    "params+path_pools": "two counts",
    "layers+path_pools+field": "three counts",
    KERNEL: "a kernel alone",
    "robust.frobenius": "the paper's NTK-score alone",
    f"{COUNTS}+{KERNEL}": "counts, a kernel",
    f"{COUNTS}+clean.naswot": "counts, NASWOT",
    f"{COUNTS}+robust.expressivity": "counts, expressivity",
    f"{COUNTS}+clean.vkdnw": "counts, VKDNW",
    "params+path_pools+field+clean.naswot": "the default",
    f"layers+path_pools+field+{KERNEL}": "three counts, a kernel",
    "layers+path_pools+field+clean.vkdnw": "three counts, VKDNW",
}
"""Sums that are compared with `COUNTS`. All were chosen when every cell was known."""
LARGEST = 0.1
WHERE = ("all cells", "the largest tenth")
METRICS = {"spearman": ("Spearman", 1, 3), "loss": ("accuracy lost, points", 100, 2)}
"""Names, factors and digits of what a pool is judged by."""


def pools_of(
    params: Float[np.ndarray, " cells"], where: str, size: int, seed: int
) -> Int[np.ndarray, "draws size"]:
    """Places of the cells of every pool."""
    rng = np.random.default_rng((seed, size, WHERE.index(where)))
    most = len(params) if where == WHERE[0] else round(LARGEST * len(params))
    # Cells of equal size are in random order, so that the tenth is exact.
    largest = np.lexsort((rng.random(len(params)), -params))[:most]
    return np.stack([rng.choice(largest, size, replace=False) for _ in range(DRAWS)])


def total(
    oriented: dict[str, Float[np.ndarray, " cells"]], way: str, pools: Int[np.ndarray, "draws size"]
) -> Float[np.ndarray, "draws size"]:
    """A sum of log-ranks among each pool's cells; larger is better."""
    logs = [np.log(rankdata(oriented[term][pools], axis=1)) for term in way.split("+")]
    return np.round(np.sum(logs, axis=0), 9)  # the same logarithms in another order are equal


def worth(
    values: Float[np.ndarray, "draws size"], accuracy: Float[np.ndarray, "draws size"]
) -> dict[str, Float[np.ndarray, " draws"]]:
    """Spearman coefficient and loss of every pool; a constant score has 0."""
    x, a = (rankdata(of, axis=1) - (of.shape[1] + 1) / 2 for of in (values, accuracy))
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(a, axis=1)
    best = values == values.max(1, keepdims=True)
    picked = (accuracy * best).sum(1) / best.sum(1)
    return {
        "spearman": (x * a).sum(1) / np.where(lengths > 0, lengths, np.inf),
        "loss": accuracy.max(1) - picked,
    }


def gap(gaps: Float[np.ndarray, " draws"], seed: int) -> dict[str, float]:
    """Entries of a row: the mean of the differences in every pool, by bootstrap over these."""
    drawn = np.random.default_rng(seed).integers(len(gaps), size=(500, len(gaps)))
    low, high = percentile_interval(gaps[drawn].mean(1))
    above, below = (gaps > 1e-12).mean(), (gaps < -1e-12).mean()
    return {"gap": gaps.mean(), "low": low, "high": high, "above": above, "below": below}


def examine(
    scores: pd.DataFrame, accuracies: dict[str, np.ndarray], seed: int
) -> Iterator[dict[str, object]]:
    """A row for each kind and size of pool, way, data set and metric.

    Args:
        scores: measures and counts, all finite.
        accuracies: by data set.
        seed: random seed of the pools.
    """
    terms = {term for way in (COUNTS, *WAYS) for term in way.split("+")}
    oriented = {t: sum_named(t).of(scores).to_numpy(float) for t in terms}
    for where in WHERE:
        for size in SIZES:
            pools = pools_of(oriented["params"], where, size, seed)
            totals = {way: total(oriented, way, pools) for way in (COUNTS, *WAYS)}
            for dataset, accuracy in accuracies.items():
                of = {way: worth(values, accuracy[pools]) for way, values in totals.items()}
                for way, metric in itertools.product(of, METRICS):
                    yield {
                        "where": where,
                        "networks": size,
                        "way": way,
                        "dataset": dataset,
                        "metric": metric,
                        "value": of[way][metric].mean(),
                        **gap(of[way][metric] - of[COUNTS][metric], seed),
                    }


def table(frame: pd.DataFrame) -> Iterator[dict[str, str]]:
    """A row for each kind and size of pool and metric: counts, and the others less counts."""
    ends = frame["networks"].isin((min(SIZES), max(SIZES)))
    shown = frame[ends | (frame["dataset"] == DATASET)]
    shown = shown.sort_values("dataset", kind="stable")
    keys = ["dataset", "where", "networks", "metric"]
    for (dataset, where, size, metric), part in shown.groupby(keys, sort=False):
        by_way = part.set_index("way")
        name, factor, digits = METRICS[str(metric)]
        row = {
            "pools": f"{DATASET_LABELS[str(dataset)]}, {size} of {where}: {name}",
            "four counts": f"{factor * by_way.loc[COUNTS, 'value']:.{digits}f}",
        }
        for way, label in WAYS.items():
            value, low, high = factor * by_way.loc[way, ["gap", "low", "high"]].astype(float)
            row[label] = interval(value, low, high, f"+.{digits}f")
        yield row
