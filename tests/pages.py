"""Runs and tables with drawn values, for the tests of pages."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cells import Residual
from cells.nasbench201.space import NASBench201
from ntkscore import Table
from ntkscore.config import Config
from ntkscore.data.images import load_images
from ntkscore.results import ResultSet
from ntkscore.run.scoring import Scoring

KERNELS = ("clean", "robust", "joint_clean", "joint_robust")
SCORES = ("frobenius", "trace", "lambda_min", "lambda_min_normalized")


def run_of(
    directory: Path, space: Any, names: Sequence[object], config: Config, seed: int = 0
) -> Path:
    """A result directory of a space's architectures, two seeds each."""
    data = load_images("synthetic")
    space, rng = space.on(data.task), np.random.default_rng(seed)
    architectures = [space.parse(name) for name in names]
    configuration = Scoring.of(data, config, space=space).configuration
    identity = tuple(space.identity(architectures[0]))
    results = ResultSet.create_or_resume(directory, configuration, identity)
    rows = []
    for architecture in architectures:
        for one in range(2):
            for rho in config.rhos:
                kinds = [
                    (kernel, beta, score)
                    for kernel in KERNELS
                    for beta in (config.betas if kernel.startswith("joint") else (None,))
                    for score in SCORES
                ]
                rows += [
                    {
                        **space.identity(architecture),
                        **{"seed": one, "rho": rho, "steps": 1, "step_size": rho},
                        **{"beta": beta, "kernel": kernel, "score": score, "status": "ok"},
                        "value": float(np.exp(rng.normal(8, 3))),
                    }
                    for kernel, beta, score in [*kinds, ("clean", None, "naswot")]
                ]
    results.append(rows)
    return directory


def small_run(
    directory: Path,
    count: int = 64,
    rhos: tuple[float, ...] = (8 / 255,),
    betas: tuple[float, ...] = (0.5,),
    seed: int = 0,
) -> Path:
    """A run over some cells."""
    return run_of(
        directory, NASBench201(), range(0, 100 * count, 100), Config(rhos=rhos, betas=betas), seed
    )


def residual_run(directory: Path) -> Path:
    """A run over two residual networks."""
    return run_of(directory, Residual(), ("10", "11"), Config())


def own_table(keys: Iterable[int], seed: int = 0) -> Table:
    """Accuracies of cells that grow with their numbers of parameters."""
    keys = [int(key) for key in keys]
    params = np.array([NASBench201().costs(NASBench201().parse(key))["params"] for key in keys])
    rng = np.random.default_rng(seed)
    clean = 0.3 + 0.4 * params / params.max() + 0.05 * rng.uniform(size=len(keys))
    frame = pd.DataFrame({"val_acc": clean, "val_pgd_8_acc": clean / 2}, index=keys)
    return Table.from_frame(frame, dataset="cifar10")
