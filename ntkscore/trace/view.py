"""What the entries of a value see of the point that a network is given."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

Shape = tuple[int, ...]
Whole = int | np.integer


class View(NamedTuple):
    """What the entries of a value see of the point.

    Attributes:
        sees: the first pixel, and the last with the opposite sign, along each of the point's axes,
            (axes, 2, …); of the value's shape, with 1 where it is the same along an axis. The hull
            of two is their minimum; of what sees nothing both are infinite.
        runs: for each of the point's axes, those of the value that have positions along it.
    """

    sees: np.ndarray
    runs: tuple[frozenset[int], ...]


UNKNOWN = View(np.empty((0, 2)), ())
"""Of a value that comes from an equation that is not understood."""


class Operand(NamedTuple):
    """An equation's input.

    Attributes:
        shape: of the array.
        view: what it sees of the point; None for nothing.
        trained: whether it comes from weights.
    """

    shape: Shape
    view: View | None
    trained: bool


def whole(shape: Shape) -> View:
    """The point itself: each entry sees its own pixel.

    Example:
        >>> width(whole((32, 32, 3))), width(whole(()))
        (1.0, 0.0)
    """
    places = np.indices(shape, np.float32)
    runs = tuple(frozenset([axis] if size > 1 else []) for axis, size in enumerate(shape))
    return View(np.stack([places, -places], 1), runs)


def width(view: View | None) -> float:
    """Pixels that the widest entry sees, along the longest of the axes that have positions.

    0 where there are no positions; NaN where it is not known.
    """
    if view is UNKNOWN:
        return float("nan")
    if view is None:
        return 0.0
    sizes = [1 - each.sum(0).min(initial=np.inf) for each in finite(view.sees)]
    return float(
        max((size for size, runs in zip(sizes, view.runs, strict=True) if runs), default=0)
    )


def finite(sees: np.ndarray) -> np.ndarray:
    """Bounds in which an entry that sees nothing is no pixel wide."""
    return np.where(np.isfinite(sees), sees, 0.5)


def made(sees: np.ndarray, runs: Sequence[Collection[int]], shape: Shape) -> View | None:
    """A view, with one entry for those that are equal along an axis."""
    if np.isposinf(sees).all():
        return None
    for axis in range(len(shape)):
        if not differ(sees, axis).any():
            sees = sees.take([0], axis + 2)
    return View(sees, tuple(frozenset(k for k in own if shape[k] > 1) for own in runs))


def differ(sees: np.ndarray, axis: int) -> np.ndarray:
    """Whether entries along an axis see different parts, for each of the point's axes."""
    return (sees != sees.take([0], axis + 2)).reshape(len(sees), -1).any(1)


def joined(found: Sequence[View], shape: Shape) -> View | None:
    """The hull of several values of one shape, or of scalars."""
    if all(each is found[0] for each in found) and found[0].sees.ndim == len(shape) + 2:
        return found[0]
    every = []
    for sees, _ in found:
        sizes = sees.shape[2:] or [1] * len(shape)
        every.append(sees.reshape(*sees.shape[:2], *sizes))
    sees = every[0]
    for each in every[1:]:
        sees = np.minimum(sees, each)
    return made(sees, all_runs(found), shape)


def all_runs(found: Sequence[View]) -> list[frozenset[int]]:
    return [frozenset().union(*own) for own in zip(*(each.runs for each in found), strict=True)]


def moved(view: View, places: Mapping[int, int], sees: np.ndarray, shape: Shape) -> View | None:
    """A view whose axes have gone to other places, or, where these do not say, are no more."""
    runs = [frozenset(places[axis] for axis in own if axis in places) for own in view.runs]
    return made(sees, runs, shape)


def without(view: View, axes: Iterable[Whole], shape: Shape) -> View | None:
    """A view without some axes, over which the hull is taken."""
    gone = {int(axis) % (view.sees.ndim - 2) for axis in axes}
    kept = [axis for axis in range(view.sees.ndim - 2) if axis not in gone]
    sees = view.sees.min(tuple(axis + 2 for axis in gone))
    return moved(view, {axis: place for place, axis in enumerate(kept)}, sees, shape)


def cut(view: View, cuts: Sequence[slice], shape: Shape) -> View | None:
    sizes = view.sees.shape[2:]
    own = (each if size > 1 else slice(None) for each, size in zip(cuts, sizes, strict=True))
    return made(view.sees[:, :, *own], view.runs, shape)
