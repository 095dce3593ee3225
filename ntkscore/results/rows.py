"""Tidy rows: every score of every kernel of one network, seed and radius."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ntkscore.kernels.joint import Stack
from ntkscore.measures.report import measurements

Rows = list[dict[str, Any]]

CELL = ("cell", "string")
"""The columns that identify the NAS-Bench-201 cell of a row."""

VARYING = ("seed", "rho", "steps", "step_size", "beta", "kernel", "score", "value", "status")
"""The columns of a row behind those of its network. All others are equal in all rows of a run, and
stored once, in its configuration."""

FUNCTIONS = "functions"
"""The entry of a configuration with the fingerprints of what it names (`run.fingerprints`)."""

OF_IMAGES = ("dataset", "data_checksum", "samples", "balanced")
NO_COLUMN = ("data_checksum", "rhos", "betas", "steps", "step_size", "proxies", FUNCTIONS)
"""Entries of a configuration that are no column: too long, or in the rows already."""


def rows_of(
    network: Mapping[str, object],
    stack: Stack,
    labels: np.ndarray,
    betas: Sequence[float],
    own_passes: bool = False,
) -> Rows:
    """The rows of one network, seed and radius, each with the columns that name these."""
    return [
        {**network, "beta": beta, "kernel": kernel, "score": name, **measurement._asdict()}
        for kernel, beta, name, measurement in measurements(stack, labels, betas, own_passes)
    ]


def constants(configuration: Mapping[str, object]) -> dict[str, object]:
    """The columns that are the same in all rows of a run."""
    return {name: value for name, value in configuration.items() if name not in NO_COLUMN}


def with_constants(
    rows: pd.DataFrame, identity: Sequence[str], configuration: Mapping[str, object]
) -> pd.DataFrame:
    """Rows with every column: network and seed, the run's choices, and the measurements."""
    first = rows[[*identity, "seed"]]
    shared = {name: _repeat(value, len(rows)) for name, value in constants(configuration).items()}
    rest = rows[[name for name in VARYING if name != "seed"]]
    return pd.concat([first, pd.DataFrame(shared, index=rows.index), rest], axis=1)


def _repeat(value: object, count: int) -> object:
    """A column of one choice; anything but a number becomes a text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    # One category, and a byte for each row.
    return pd.Categorical.from_codes(np.zeros(count, np.int8), [text])
