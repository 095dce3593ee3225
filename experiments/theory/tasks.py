"""Points of the unit sphere in two classes, on which the theory is run."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import beta

from ntkscore.data.images import ImageSet, load_images
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


def area_means(images: Float[np.ndarray, "n h h c"], side: int) -> Float[np.ndarray, "n k k c"]:
    """Square images of fewer pixels, each the mean over the area it covers.

    Raises:
        InputError: if there would be more pixels, or none.

    Example:
        >>> area_means(np.arange(9.0).reshape(1, 3, 3, 1), 2)[0, :, :, 0].round(2)
        array([[1.33, 2.67],
               [5.33, 6.67]])
    """
    pixels = images.shape[1]
    if not 1 <= side <= pixels:
        raise InputError(f"a side from 1 to {pixels} pixels", side, "lower it")
    edges = pixels * np.arange(side + 1) / side
    # How much of each old pixel lies between two edges.
    low, high = edges[:-1, None], edges[1:, None]
    old = np.arange(pixels)
    overlap = np.clip(np.minimum(high, old + 1) - np.maximum(low, old), 0, None) * side / pixels
    return np.einsum("ai,nijc,bj->nabc", overlap, images, overlap, optimize=True)


def two_classes(
    images: ImageSet,
    classes: Sequence[int],
    count: int,
    rng: np.random.Generator,
    side: int | None = None,
) -> Points:
    """Images of two classes, flattened and divided by their length.

    Args:
        images: a data set.
        classes: the one whose label is −1, and the one whose label is 1.
        count: n, drawn without repetition, as many of one class as of the other.
        rng: of the draws.
        side: pixels of a side to which images are reduced (`area_means`); as they are if left out.
    """
    if count % 2:
        raise InputError("an even number of points", count, "add one")
    chosen = []
    for wanted in classes:
        (rows,) = np.nonzero(np.asarray(images.labels) == wanted)
        if len(rows) < count // 2:
            raise InputError(
                f"at least {count // 2} images of class {wanted}", len(rows), "ask for fewer points"
            )
        chosen.append(rng.choice(rows, count // 2, replace=False))
    order = rng.permutation(np.concatenate(chosen))
    chosen_images = images.images[order].astype(float)
    if side is not None:
        chosen_images = area_means(chosen_images, side)
    x = chosen_images.reshape(count, -1)
    y = np.where(np.asarray(images.labels)[order] == classes[1], 1.0, -1.0)
    return Points(on_sphere(x), y)


def draw(
    task: str,
    count: int,
    dimension: int = 10,
    mu: float = 0.25,
    side: int = 0,
    seed: int = 0,
    data_dir: Path | None = None,
) -> Points:
    """The points of a task by name: `margin`, `tradeoff` or two classes, such as `mnist:0,1`.

    The other arguments are those of the function of that name; a side of 0 leaves images as they
    are.

    Example:
        >>> draw("tradeoff", 300, dimension=20).x.shape
        (300, 20)
    """
    if count < 2 or side < 0:
        raise InputError(
            "at least 2 points and no negative side", f"{count} and {side}", "raise them"
        )
    rng = np.random.default_rng(seed)
    if task == "margin":
        return margin(count, dimension, mu, rng)
    if task == "tradeoff":
        return tradeoff(count, dimension, rng)
    name, _, classes = task.partition(":")
    pair = classes.split(",")
    if len(pair) != 2 or not all(each.strip().isdigit() for each in pair):
        raise InputError(
            "the task margin, tradeoff, or two classes of a data set such as mnist:0,1",
            repr(task),
            "write one of these",
        )
    return two_classes(load_images(name, data_dir), list(map(int, pair)), count, rng, side or None)


def _check_dimension(dimension: int, least: int) -> None:
    if dimension < least:
        raise InputError(f"at least {least} dimensions", dimension, "raise it")


def _with_rest(first: np.ndarray, dimension: int, rng: np.random.Generator) -> np.ndarray:
    """Points of length 1 with these first coordinates, the others in a random direction."""
    count, known = first.shape
    rest = np.sqrt(np.maximum(1 - np.sum(first**2, 1, keepdims=True), 0))
    directions = on_sphere(rng.standard_normal((count, dimension - known)))
    return np.concatenate([first, rest * directions], 1)
