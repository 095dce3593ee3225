"""Points of the unit sphere in two classes, on which the theory is run."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import beta

from ntkscore.errors import InputError


class Points(NamedTuple):
    """Points of two classes.

    Attributes:
        x: (n, …), of length 1 each.
        y: (n,) labels, 1 or −1.
    """

    x: Float[np.ndarray, "n ..."]
    y: Float[np.ndarray, " n"]


def check_labels(y: np.ndarray) -> None:
    """Refuse labels other than 1 and −1."""
    y = np.asarray(y)
    if (other := ~np.isin(y, (-1, 1))).any():
        raise InputError(
            "labels 1 and -1", f"{y[other][0]:g}", "the theory's networks have one output"
        )


def margin(count: int, dimension: int, mu: float, rng: np.random.Generator) -> Points:
    """Uniform points whose first coordinate is further than μ from zero, and is the label.

    Raises:
        InputError: if μ is not from 0 to below 1, or d is below 2.

    Example:
        >>> x, y = margin(100, 3, 0.2, np.random.default_rng(0))
        >>> bool((x[:, 0] * y > 0.2).all())
        True
    """
    if not 0 <= mu < 1:
        raise InputError("a margin from 0 to below 1", f"{mu:g}", "lower it")
    _check_dimension(dimension, 2)
    # (1 + x_1)/2 has a Beta distribution; drawing points until they fit could take for ever.
    half = (dimension - 1) / 2
    tail = beta.sf((1 + mu) / 2, half, half)
    first = 2 * beta.isf(tail * rng.uniform(size=count), half, half) - 1
    y = rng.choice([-1.0, 1.0], count)
    return Points(_with_rest((y * first)[:, None], dimension, rng), y)


def tradeoff(count: int, dimension: int, rng: np.random.Generator) -> Points:
    """One coordinate that is accurate and fragile beside one that is robust and less accurate.

    x_1 = 0.8 y s with s = −1 for 15 % of the points; x_2 = y (0.2 + 0.05 g). With ρ = 0.3 an attack
    turns the second, and not the first.

    Raises:
        InputError: if d is below 3.

    Example:
        >>> x, y = tradeoff(1000, 20, np.random.default_rng(0))
        >>> float((np.sign(x[:, 1]) == y).mean()), bool((np.sign(x[:, 0]) == y).mean() < 0.9)
        (1.0, True)
    """
    _check_dimension(dimension, 3)
    y = rng.choice([-1.0, 1.0], count)
    robust = 0.8 * y * np.where(rng.uniform(size=count) < 0.15, -1, 1)
    fragile = y * (0.2 + 0.05 * rng.standard_normal(count))
    return Points(_with_rest(np.stack([robust, fragile], 1), dimension, rng), y)


def on_sphere(points: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n ..."]:
    """Each point divided by its length, in float64.

    Example:
        >>> on_sphere(np.array([[3.0, 4.0]]))
        array([[0.6, 0.8]])
    """
    points = points.astype(float)
    lengths = np.linalg.norm(points.reshape(len(points), -1), axis=1)
    return points / lengths.reshape(-1, *[1] * (points.ndim - 1))


def _check_dimension(dimension: int, least: int) -> None:
    if dimension < least:
        raise InputError(f"at least {least} dimensions", dimension, "raise it")


def _with_rest(first: np.ndarray, dimension: int, rng: np.random.Generator) -> np.ndarray:
    """Points of length 1 with these first coordinates, the others in a random direction."""
    count, known = first.shape
    rest = np.sqrt(np.maximum(1 - np.sum(first**2, 1, keepdims=True), 0))
    directions = on_sphere(rng.standard_normal((count, dimension - known)))
    return np.concatenate([first, rest * directions], 1)
