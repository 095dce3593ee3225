"""Which cells a run is about, and which score it is judged by."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from cells import Cell, all_cells, distinct_cells
from ntkscore import joint
from ntkscore.config import format_rho
from ntkscore.errors import InputError
from ntkscore.scores import ASYMMETRIC_SCORES, SCORES
from ntkscore.tables import Table

BASELINES = ("params", "flops")


def select_cells(spec: str, table: Table | None = None, seed: int = 0) -> tuple[Cell, ...]:
    """The cells that a specification names, in a fixed order.

    Args:
        spec: `distinct` (one cell per function), `all`, `table` (the ids with rows of their own),
            `random:K` (K of the distinct cells), `table:K` (K of the table's), a file with one
            cell a line, or cells separated by commas.
        table: for `table` and `table:K`.
        seed: of the K cells; a smaller K gives the first cells of a larger one.

    Raises:
        InputError: if the specification is none of these.
        CellError: if one of the cells is none.
    """
    if spec == "distinct":
        return distinct_cells()
    if spec == "all":
        return tuple(all_cells())
    kind, _, count = spec.partition(":")
    if kind == "table" and table is None:
        raise InputError(
            f"expected a table for the cells {spec!r}, got none; add --table with its path"
        )
    if kind in ("random", "table"):
        known = tuple(map(Cell, table.own)) if kind == "table" and table else distinct_cells()
        if spec == "table":
            return known
        if not count.isdecimal() or not 1 <= int(count) <= len(known):
            raise InputError(
                f"expected {kind}:K with K from 1 to {len(known)}, got {spec!r}; "
                f"{kind}:64 is a quick start"
            )
        return tuple(random.Random(seed).sample(known, len(known))[: int(count)])
    path = Path(spec)
    if path.is_file():
        lines = [line.strip() for line in path.read_text().splitlines()]
        cells = [Cell.parse(line) for line in lines if line and not line.startswith("#")]
        if not cells:
            raise InputError(f"expected one cell a line in {path}, got none; add some")
    else:
        cells = [Cell.parse(part) for part in spec.split(",")]
    return tuple(dict.fromkeys(cells))


@dataclass(frozen=True)
class ScoreName:
    """A score of a kernel, written `robust.frobenius` or `joint_robust@0.5.trace`."""

    kernel: str
    score: str
    beta: float | None = None

    def __str__(self) -> str:
        beta = "" if self.beta is None else f"@{self.beta:g}"
        return f"{self.kernel}{beta}.{self.score}"

    @classmethod
    def parse(cls, text: str, betas: Sequence[float] = (0.5,)) -> "ScoreName":
        """The score that a text names; a joint kernel without β has the only one there is.

        Raises:
            InputError: if there is no such kernel or score.
        """
        kernel, _, score = text.rpartition(".")
        kernel, _, beta = kernel.partition("@")
        allowed = ASYMMETRIC_SCORES if kernel in joint.ASYMMETRIC else SCORES
        if kernel not in joint.KERNELS or score not in allowed:
            raise InputError(
                f"expected KERNEL.SCORE with a kernel of {', '.join(joint.KERNELS)} and a score of "
                f"{', '.join(allowed)}, got {text!r}; for example robust.lambda_min_normalized"
            )
        if kernel not in joint.JOINT:
            if beta:
                raise InputError(f"expected no β for {kernel}, got {beta!r}; leave it out")
            return cls(kernel, score)
        values = {f"{b:g}": b for b in betas}
        beta = beta or (next(iter(values)) if len(values) == 1 else "")
        if beta not in values:
            raise InputError(
                f"expected one of the run's β ({', '.join(values)}) in {text!r}, "
                f"got {beta or 'none'}; write {kernel}@{next(iter(values))}.{score}"
            )
        return cls(kernel, score, values[beta])


def pick_rho(rows: pd.DataFrame, rho: float | None) -> pd.DataFrame:
    """The rows of one radius; None takes the only one there is.

    Raises:
        InputError: if there are several, or not this one.
    """
    present = sorted(rows["rho"].unique())
    if rho is None and len(present) == 1:
        return rows
    found = [value for value in present if rho is not None and np.isclose(value, rho)]
    if not found:
        raise InputError(
            f"expected one of the radii {', '.join(map(format_rho, present))}, "
            f"got {'none' if rho is None else format_rho(rho)}; choose with --rho"
        )
    return rows[rows["rho"] == found[0]]


def score_table(rows: pd.DataFrame, losses: bool = False) -> pd.DataFrame:
    """One line per cell and one column per score, averaged over the seeds.

    A cell has NaN where any of its seeds failed.

    Args:
        rows: tidy rows of one radius.
        losses: whether to keep the losses, which score no kernel.
    """
    kept = rows if losses else rows[rows["score"] != "loss"]
    beta = kept["beta"].map(lambda b: "" if pd.isna(b) else f"@{b:g}")
    names = kept["kernel"] + beta + "." + kept["score"]
    single = kept.assign(name=names).pivot(index=["cell", "seed"], columns="name", values="value")
    failed = single.isna().groupby("cell").any()
    return single.groupby("cell").mean().mask(failed)[list(dict.fromkeys(names))]


def with_baselines(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores by cell, and as further columns the `baselines` of the same cells."""
    return scores.join(baselines(list(scores.index)))


def baselines(cells: Sequence[int], num_classes: int = 10, size: int = 32) -> pd.DataFrame:
    """Parameters and multiply-adds of each cell's benchmark network: what a score must beat.

    Args:
        cells: indices.
        num_classes: of the network that the benchmark trained.
        size: height and width of its images in pixels.
    """
    listed = [Cell(int(index)) for index in cells]
    return pd.DataFrame(
        {
            "params": [cell.params(num_classes=num_classes) for cell in listed],
            "flops": [cell.flops(num_classes=num_classes, image_size=size) for cell in listed],
        },
        index=pd.Index([cell.index for cell in listed], name="cell"),
    )
