"""Kernel scores beside accuracies: coefficients, differences of them, and any run's figures."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.data import RESAMPLES, Data, bootstrap
from experiments.frame import Stronger
from experiments.page import write_files
from experiments.paper import PAPER, ntk_correlation
from experiments.paper.contrasts import ANY, NOTABLE, by_seed, coefficients, interval, sure_interval
from experiments.paper.ntk_correlation import CLEAN, FGSM_ABOVE_PGD, GROWS, Kernel, findings
from ntkscore.analysis.agreement import agreement
from ntkscore.analysis.paired import difference

CELLS = pd.Index([0, 2581, 1462, 15624, 7, 11, 13, 17, 300, 301, 302, 303], name="cell")


def noisy_scores() -> tuple[pd.DataFrame, np.ndarray]:
    """Two scores of some cells by seed, the first the better one; and the cells' accuracies."""
    rng = np.random.default_rng(0)
    accuracy = rng.uniform(size=len(CELLS))
    columns = pd.MultiIndex.from_product([["good", "bad"], range(3)], names=["score", "seed"])
    noise = rng.normal(size=(len(CELLS), 6)) * [0.1] * 3 + [0, 0, 0, 1, 1, 1]
    del noise
    spread = np.repeat([0.1, 1.0], 3)
    values = accuracy[:, None] + spread * rng.normal(size=(len(CELLS), 6))
    return pd.DataFrame(values, CELLS, columns), accuracy
