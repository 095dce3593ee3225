"""Cells chosen by scores, without training: the best by each, and the best few looked up."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from experiments.contrasts import single_seeds
from experiments.picks import PAPER_METRICS, Picks
from experiments.recordings import seconds_per_cell
from experiments.study import Study
from ntkscore.ranking import DEFAULT, combined
from ntkscore.scores import SCORES
from ntkscore.selection import score_table, with_baselines

RECORDING, TIMED = "space", "fidelity/moderate"
"""Where the scores are, and where a cell's seconds: the same setting with a single β."""
DRAWN = {
    "params": "parameter count",
    "robust.frobenius": "robust Frobenius norm",
    "robust.trace": "robust trace",
    "robust.lambda_min": "robust λ_min",
    "robust.lambda_min_normalized": "robust λ_min/trace",
    "clean.condition": "clean condition number",
    DEFAULT: "the default score",
}
_OTHERS = [f"{kernel}.{score}" for kernel in ("clean", "robust", "twice") for score in SCORES]
BY_SCORE = DRAWN | {name: name for name in _OTHERS if name not in DRAWN}
"""What the best cell is chosen by, and what that is called."""
NOT_DRAWN = set(BY_SCORE) - set(DRAWN)
LOOKED_UP = (10, 50, 150)
"""How many of the best-scored cells a hybrid looks up in the table."""
GUIDE = "val_pgd_8_acc"

_PAPER_ROWS = {
    ("", BY_SCORE["robust.frobenius"]): (0.767, 0.675, 0.670, 0.521, 0.472),
    ("", BY_SCORE["robust.trace"]): (0.766, 0.674, 0.668, 0.520, 0.471),
}
PAPER: dict[tuple[str, str], dict[str, float]] = {
    row: dict(zip(PAPER_METRICS, values, strict=True)) for row, values in _PAPER_ROWS.items()
}
"""The paper's column: KNAS and EigenNAS of Table 7, which are these two scores of the kernel at
images under PGD."""
OTHERWISE = "scored otherwise: 50 images under PGD there, the recording's under FGSM here"
PAPER_ONLY = {"NASI": 0.379, "NASWOT": 0.471}
"""The paper's other train-free picks, PGD 8/255 accuracy: not scores of a kernel at attacks."""


def hybrid(count: int) -> str:
    """What a hybrid is called."""
    return f"{BY_SCORE[DEFAULT]}, first {count}"


def orders(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """The cells from best to worst by each of `BY_SCORE`.

    Args:
        rows: of one seed and radius.
    """
    scores = with_baselines(score_table(rows[rows["kernel"].isin(("clean", "robust", "twice"))]))
    cells = scores.index.to_numpy()
    return {
        name: cells[np.argsort(-combined(scores, name.split("+")).to_numpy(), kind="stable")]
        for name in BY_SCORE
    }


def picks(study: Study, accuracy: np.ndarray) -> Iterator[Picks]:
    """Every train-free way of choosing; a run is a seed of images and weights.

    Args:
        study: with the recording.
        accuracy: that hybrids look up, of every cell of the space.
    """
    by_seed = [orders(rows) for rows in single_seeds(study.rows(RECORDING)).values()]
    cost = seconds_per_cell(study.result_set(TIMED)) * len(by_seed[0]["params"])
    for name, method in BY_SCORE.items():
        best = np.array([order[name][0] for order in by_seed])
        none, seconds = np.zeros(len(best), int), 0.0 if name == "params" else cost
        runs = slice(1) if name == "params" else slice(None)
        yield Picks("", method, best[runs], none[runs], none[runs], seconds)
    for count in LOOKED_UP:
        first = [order[DEFAULT][:count] for order in by_seed]
        places = [int(np.argmax(accuracy[cells])) for cells in first]
        chosen = np.array([cells[place] for cells, place in zip(first, places, strict=True)])
        queries = np.full(len(chosen), count)
        yield Picks(GUIDE, hybrid(count), chosen, queries, 1 + np.array(places), cost)
