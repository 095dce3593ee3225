"""The pixels of a network's point that the entries of a value depend on, or see."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

Shape = tuple[int, ...]
Options = Mapping[str, Any]
Whole = int | np.integer


class View(NamedTuple):
    """The pixels of the point that the entries of a value see.

    Attributes:
        sees: the first pixel, and the last with the opposite sign, along each of the point's axes,
            (axes, 2, …); of the value's shape, with 1 where it is the same along an axis. The hull
            of two is their minimum; entries that see nothing have infinity for both.
        runs: for each of the point's axes, those of the value that have positions along it.
    """

    sees: np.ndarray
    runs: tuple[frozenset[int], ...]


Views = list[View | None]
UNKNOWN = View(np.empty((0, 2)), ())
"""The view of a value that an equation computes which is not understood."""


class Operand(NamedTuple):
    """An equation's input.

    Attributes:
        shape: of the array.
        view: the pixels of the point that it sees; None for none.
        of_weights: whether it depends on weights.
    """

    shape: Shape
    view: View | None
    of_weights: bool


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
    return View(sees, tuple(frozenset(k for k in axes if shape[k] > 1) for axes in runs))


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
    return made(reduce(np.minimum, every), all_runs(found), shape)


def all_runs(found: Sequence[View]) -> list[frozenset[int]]:
    return [frozenset().union(*axes) for axes in zip(*(each.runs for each in found), strict=True)]


def moved(view: View, places: Mapping[int, int], sees: np.ndarray, shape: Shape) -> View | None:
    """A view whose axes have moved to other places; those without a place are dropped."""
    runs = [frozenset(places[k] for k in axes if k in places) for axes in view.runs]
    return made(sees, runs, shape)


def without(view: View, axes: Iterable[Whole], shape: Shape) -> View | None:
    """A view without some axes, over which the hull is taken."""
    gone = {int(axis) % (view.sees.ndim - 2) for axis in axes}
    kept = [axis for axis in range(view.sees.ndim - 2) if axis not in gone]
    sees = view.sees.min(tuple(axis + 2 for axis in gone))
    return moved(view, {axis: place for place, axis in enumerate(kept)}, sees, shape)


def cut(view: View, cuts: Sequence[slice], shape: Shape) -> View | None:
    sizes = view.sees.shape[2:]
    places = (each if size > 1 else slice(None) for each, size in zip(cuts, sizes, strict=True))
    return made(view.sees[:, :, *places], view.runs, shape)
