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
        bounds: for each axis of the point, the least index of the pixels that an entry depends on,
            and minus the largest, (axes, 2, …), so that the hull of two views is a minimum. Of the
            value's shape, with 1 where it is the same along an axis. Infinity in both: no pixel.
        positions: for each axis of the point, the axes of the value along which it runs.
    """

    bounds: np.ndarray
    positions: tuple[frozenset[int], ...]


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


def point_view(shape: Shape) -> View:
    """The point itself: each entry sees its own pixel.

    Example:
        >>> width(point_view((32, 32, 3))), width(point_view(()))
        (1.0, 0.0)
    """
    places = np.indices(shape, np.float32)
    positions = tuple(frozenset([axis] if size > 1 else []) for axis, size in enumerate(shape))
    return View(np.stack([places, -places], 1), positions)


def width(view: View | None) -> float:
    """Pixels that the widest entry sees, along the longest of the axes that have positions.

    0 where there are no positions; NaN where it is not known.
    """
    if view is UNKNOWN:
        return float("nan")
    if view is None:
        return 0.0
    # The least index and minus the largest add up to 1 less the width.
    sizes = [1 - each.sum(0).min(initial=np.inf) for each in finite(view.bounds)]
    return float(
        max((size for size, axes in zip(sizes, view.positions, strict=True) if axes), default=0)
    )


def finite(bounds: np.ndarray) -> np.ndarray:
    """Bounds in which an entry that sees nothing is no pixel wide."""
    return np.where(np.isfinite(bounds), bounds, 0.5)


def compact_view(
    bounds: np.ndarray, positions: Sequence[Collection[int]], shape: Shape
) -> View | None:
    """A view, with one entry for those that are equal along an axis."""
    if np.isposinf(bounds).all():
        return None
    for axis in range(len(shape)):
        if not differ(bounds, axis).any():
            bounds = bounds.take([0], axis + 2)
    return View(bounds, tuple(frozenset(k for k in axes if shape[k] > 1) for axes in positions))


def differ(bounds: np.ndarray, axis: int) -> np.ndarray:
    """Whether entries along an axis see different parts, for each of the point's axes."""
    return (bounds != bounds.take([0], axis + 2)).reshape(len(bounds), -1).any(1)


def hull(found: Sequence[View], shape: Shape) -> View | None:
    """The hull of several values of one shape, or of scalars."""
    if all(each is found[0] for each in found) and found[0].bounds.ndim == len(shape) + 2:
        return found[0]
    every = []
    for bounds, _ in found:
        sizes = bounds.shape[2:] or [1] * len(shape)
        every.append(bounds.reshape(*bounds.shape[:2], *sizes))
    return compact_view(reduce(np.minimum, every), all_positions(found), shape)


def all_positions(found: Sequence[View]) -> list[frozenset[int]]:
    return [
        frozenset().union(*axes) for axes in zip(*(each.positions for each in found), strict=True)
    ]


def with_axes_moved(
    view: View, places: Mapping[int, int], bounds: np.ndarray, shape: Shape
) -> View | None:
    """A view whose axes have moved to other places; those without a place are dropped."""
    positions = [frozenset(places[k] for k in axes if k in places) for axes in view.positions]
    return compact_view(bounds, positions, shape)


def without_axes(view: View, axes: Iterable[Whole], shape: Shape) -> View | None:
    """A view without some axes, over which the hull is taken."""
    gone = {int(axis) % (view.bounds.ndim - 2) for axis in axes}
    rest = [axis for axis in range(view.bounds.ndim - 2) if axis not in gone]
    bounds = view.bounds.min(tuple(axis + 2 for axis in gone))
    return with_axes_moved(view, {axis: place for place, axis in enumerate(rest)}, bounds, shape)


def slice_view(view: View, cuts: Sequence[slice], shape: Shape) -> View | None:
    sizes = view.bounds.shape[2:]
    places = (each if size > 1 else slice(None) for each, size in zip(cuts, sizes, strict=True))
    return compact_view(view.bounds[:, :, *places], view.positions, shape)
