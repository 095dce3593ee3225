"""Cells chosen by scores, without training: the best by each, and the best few looked up."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from experiments.ours.measures import with_counts
from experiments.paper.picks import Picks, best_of
from experiments.recordings import INSTANCE_LOSS, seconds_per_cell
from experiments.study import KERNELS, METRIC, Study, single_seeds, sum_named
from ntkscore.analysis.frames import pick_rho, score_table
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.measures.declaration import NETWORK
from ntkscore.measures.kernel import scores_of

RECORDING, TIMED = "space", "fidelity/moderate"
"""Recordings with the scores and with a cell's seconds: the same setting, there with one β."""
RADIUS = 8 / 255
DRAWN = {
    "params": "parameter count",
    "robust.frobenius": "robust Frobenius norm",
    "robust.trace": "robust trace",
    "robust.lambda_min": "robust λ_min",
    "robust.lambda_min_normalized": "robust λ_min/trace",
    "clean.condition": "clean condition number",
    str(DEFAULT): "the default score",
}
_OTHERS = [f"{kernel}.{score}" for kernel in KERNELS for score in scores_of(kernel)]
BY_SCORE = DRAWN | {name: name for name in _OTHERS if name not in DRAWN}
"""Scores that the best cell is chosen by, and their labels."""
NOT_DRAWN = set(BY_SCORE) - set(DRAWN)
LOOKED_UP = (10, 50, 150)
"""Numbers of best-scored cells that hybrids look up in the table."""
GUIDE = METRIC

_KNAS, _EIGENNAS = (0.767, 0.675, 0.670, 0.521, 0.472), (0.766, 0.674, 0.668, 0.520, 0.471)
OWN_CONVENTION = {
    "KNAS, 1,000 cells": (f"findings/{INSTANCE_LOSS}-fgsm", "clean.frobenius", _KNAS),
    "EigenNAS, clean trace": (RECORDING, "clean.trace", _EIGENNAS),
    "NASWOT, clean": (RECORDING, "clean.naswot", _EIGENNAS),
}
"""Rows of Table 7 under the methods' own conventions: the norm of the kernel of the loss, images
by their own statistics; the trace, which stands in for λ_min; the determinant of equal states.
Of each the recording, the score and the paper's accuracies, which are one row for the last two."""

PAPER = {
    ("", BY_SCORE["robust.frobenius"]): _KNAS,
    ("", BY_SCORE["robust.trace"]): _EIGENNAS,
    **{("", method): paper for method, (_, _, paper) in OWN_CONVENTION.items()},
}
"""The paper's column: KNAS and EigenNAS of Table 7, which it has as these two scores of the kernel
at images under PGD."""
OTHERWISE = "scored otherwise: 50 images there, the recording's here, attacked ones under FGSM"
PAPER_ONLY = {"NASI": 0.379}
"""The paper's other train-free pick, PGD 8/255 accuracy."""


def orders(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """The cells from best to worst by each of `BY_SCORE`, of one seed and radius."""
    scores = with_counts(rows[rows["kernel"].isin([*KERNELS, NETWORK])])
    cells = scores.index.to_numpy()
    return {
        name: cells[np.argsort(-sum_named(name).of(scores).to_numpy(), kind="stable")]
        for name in BY_SCORE
    }


def picks(study: Study, accuracy: np.ndarray) -> Iterator[Picks]:
    """Choices of every train-free way of choosing; a run is a seed of images and weights.

    Hybrids look up the accuracy.
    """
    by_seed = [orders(rows) for rows in single_seeds(study.rows(RECORDING))]
    cost = seconds_per_cell(study.result_set(TIMED)) * len(by_seed[0]["params"])
    for name, method in BY_SCORE.items():
        best = np.array([order[name][0] for order in by_seed])
        if name == "params":  # The same for every seed, and free.
            best = best[:1]
        none = np.zeros(len(best), int)
        yield Picks("", method, best, none, none, 0.0 if name == "params" else cost)
    for method, (recording, name, _) in OWN_CONVENTION.items():
        rows = pick_rho(study.rows(recording), RADIUS)
        rows = rows[rows["kernel"] == "clean"]
        by_name = [sum_named(name).of(score_table(one)) for one in single_seeds(rows)]
        best = np.array([values.idxmax() for values in by_name])
        none = np.zeros(len(best), int)
        yield Picks("", method, best, none, none, float("nan"))
    for count in LOOKED_UP:
        first = [order[str(DEFAULT)][:count] for order in by_seed]
        label = f"{BY_SCORE[str(DEFAULT)]}, first {count}"
        yield Picks(GUIDE, label, **best_of(first, accuracy), seconds=cost)
