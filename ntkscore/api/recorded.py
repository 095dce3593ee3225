"""Scores that were computed once for everybody, and come with the package."""

import pandas as pd

from ntkscore.paths import RECORDED
from ntkscore.results import ResultSet


def recorded_scores() -> pd.DataFrame:
    """Scores of the 6,466 cells that NAS-RobBench-201 trained, three seeds each.

    16 CIFAR-10 images, 8 channels, five cells per stage; statistics of the clean images, logit sum,
    all parameters, FGSM with 8/255 (`ntkscore/recorded/README.md` is their card). Joint kernels are
    those of β = 0.5. The accuracies are the benchmark's, and not among them: `load_table`.

    Returns:
        A row per cell, seed, kernel and score, with every choice behind it, as `open_results` has
        it of a run; `ntkscore explore recorded` makes a page of them.

    Example:
        >>> rows = recorded_scores()
        >>> rows["cell"].nunique(), sorted(set(rows["seed"]))
        (6466, [0, 1, 2])
    """
    return ResultSet.open(RECORDED).read()
