"""Tidy rows from a cell's stack: every score of every kernel."""

from typing import Any

import numpy as np

from cells.space import Cell
from ntkscore import joint, scores
from ntkscore.config import Config
from ntkscore.scores import Score

POINTS = ("clean", "robust", "twice")


def kernel_scores(
    gram: np.ndarray, losses: np.ndarray, labels: np.ndarray, betas: tuple[float, ...]
) -> list[tuple[str, float | None, str, Score]]:
    """(kernel, β or None, score name, score) of every kernel in a stack.

    Args:
        gram: 3N×3N over (X, X_ρ, X_2ρ).
        losses: mean cross-entropy at the three; they become the score `loss`.
        labels: classes of X.
        betas: weights of the joint kernels.
    """
    n = len(labels)
    found: list[tuple[str, float | None, str, Score]] = []
    for kernel in joint.BLOCKS:
        symmetric = kernel not in joint.ASYMMETRIC
        measured = scores.measure(joint.block(gram, kernel, n), labels, symmetric)
        found += [(kernel, None, name, score) for name, score in measured.items()]
    for kernel in joint.JOINT:
        for beta in betas:
            measured = scores.measure(joint.joint_kernel(gram, kernel, beta, n), labels)
            found += [(kernel, beta, name, score) for name, score in measured.items()]
    for kernel, loss in zip(POINTS, losses, strict=True):
        status = scores.OK if np.isfinite(loss) else scores.NOT_FINITE
        value = float(loss) if status == scores.OK else float("nan")
        found.append((kernel, None, "loss", Score(value, status)))
    return found


def rows_of(
    cell: Cell,
    seed: int,
    dataset: str,
    config: Config,
    rho: float,
    gram: np.ndarray,
    losses: np.ndarray,
    labels: np.ndarray,
) -> list[dict[str, Any]]:
    """The rows of one cell, seed and radius, with the columns of `ntkscore.parts.COLUMNS`."""
    constant = {
        "cell": cell.index,
        "string": cell.string,
        "seed": seed,
        "dataset": dataset,
        "samples": len(labels),
        "channels": config.channels,
        "cells_per_stage": config.cells_per_stage,
        "init": config.init,
        "bn": config.bn,
        "output": config.output,
        "parameters": config.parameters,
        "attack": config.attack,
        "rho": rho,
        "steps": config.attack_steps,
        "step_size": config.attack_step_size(rho),
    }
    return [
        constant
        | {"beta": beta, "kernel": kernel, "score": name, "value": score.value}
        | {"status": score.status}
        for kernel, beta, name, score in kernel_scores(gram, losses, labels, config.betas)
    ]
