"""Tidy rows: every score of every kernel of one network, seed and radius."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from ntkscore.kernels import joint, proxies, scores
from ntkscore.kernels.reductions import reduced
from ntkscore.kernels.scores import Measurement

Rows = list[dict[str, Any]]

VARYING = ("seed", "rho", "steps", "step_size", "beta", "kernel", "score", "value", "status")
"""The columns of a row behind those that name its network; all others are the same in all rows of
a run, and so are kept once, in its configuration."""

NO_COLUMN = ("data_checksum", "rhos", "betas", "steps", "step_size", "proxies")
"""Entries of a configuration that are no column: too long, or to be seen in the rows."""


class Measured(NamedTuple):
    """What a program hands out for one network and radius; the fields of `kernels.stack.Stack`.

    Attributes:
        gram: 3N×3N over (X, X_ρ, X_2ρ).
        slopes: likewise, the correlation of the points' input gradients.
        states: at each of the three, the rectifiers that two images have in the same state; None
            where the network does not report them.
        numbers: further measures by KERNEL.MEASURE.
        products: matrices that are reduced to further measures, by KERNEL.NAME.
    """

    gram: Float[np.ndarray, "m m"]
    slopes: Float[np.ndarray, "m m"]
    states: Float[np.ndarray, "3 n n"] | None
    numbers: Mapping[str, float]
    products: Mapping[str, Sequence[np.ndarray]]


def measurements(
    measured: Measured, labels: np.ndarray, betas: Sequence[float], own_passes: bool = False
) -> Iterator[tuple[str, float | None, str, Measurement]]:
    """Every measure of a network: kernel, β or None, name, measurement.

    Args:
        measured: at one radius.
        labels: classes of X.
        betas: weights of the joint kernels.
        own_passes: whether measures that take passes of their own were asked for.
    """
    for kernel, beta, matrix in joint.every_kernel(measured.gram, len(labels), betas):
        own = scores.measure(matrix, labels, kernel not in joint.ASYMMETRIC)
        for name, measurement in own.items():
            yield kernel, beta, name, measurement
    for i, kernel in enumerate(joint.POINTS):
        correlation = joint.block(measured.slopes, kernel, len(labels))
        own = scores.measure(correlation, labels, definitions=proxies.SLOPE_SCORES)
        if measured.states is None:
            own |= dict.fromkeys(proxies.STATE_SCORES, scores.finite(None))
        else:
            own |= scores.measure(measured.states[i], labels, definitions=proxies.STATE_SCORES)
        for name, measurement in own.items():
            yield kernel, None, name, measurement
    numbers = {**measured.numbers, **reduced(measured.products)}
    for name, number in proxies.NUMBERS.items():
        for kernel in number.at if own_passes or not number.own_passes else ():
            value = numbers.get(f"{kernel}.{name}")
            yield kernel, None, name, scores.finite(None if value is None else float(value))


def rows_of(
    network: Mapping[str, Any],
    measured: Measured,
    labels: np.ndarray,
    betas: Sequence[float],
    own_passes: bool = False,
) -> Rows:
    """The rows of one network, seed and radius.

    Args:
        network: the columns that say which: its identity, seed, ρ, steps and step size.
        measured, labels, betas, own_passes: as for `measurements`.
    """
    return [
        {
            **network,
            "beta": beta,
            "kernel": kernel,
            "score": name,
            "value": measurement.value,
            "status": measurement.status,
        }
        for kernel, beta, name, measurement in measurements(measured, labels, betas, own_passes)
    ]


def constants(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that are the same in all rows of a run."""
    return {name: value for name, value in configuration.items() if name not in NO_COLUMN}


def with_constants(
    rows: pd.DataFrame, identity: Sequence[str], configuration: Mapping[str, Any]
) -> pd.DataFrame:
    """Rows with every column: which network and seed, the run's choices, and what was measured.

    Args:
        rows: the columns of `identity` and `VARYING`.
        identity: names of the columns that say which network a row is of.
        configuration: of the run.

    Returns:
        A frame in which the run's texts are categoricals, so that they cost next to nothing.
    """
    first = rows[[*identity, "seed"]]
    shared = {name: _repeat(value, len(rows)) for name, value in constants(configuration).items()}
    rest = rows[[name for name in VARYING if name != "seed"]]
    return pd.concat([first, pd.DataFrame(shared, index=rows.index), rest], axis=1)


def _repeat(value: Any, count: int) -> Any:
    """A column of one value; what is no number becomes a text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    # One category, and a byte for each row.
    return pd.Categorical.from_codes(np.zeros(count, np.int8), [text])
