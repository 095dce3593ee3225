"""The receptive field: the part of an image that one position of a network's features sees.

A view says, entry by entry, from which pixel to which a value sees the point along each of the
point's axes. A convolution takes the hull over its window, a product over positions the hull over
all of them. Nothing is claimed about values after an equation that is not understood.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from ntkscore.trace.view import (
    UNKNOWN,
    Operand,
    Options,
    Shape,
    View,
    Views,
    Whole,
    compact_view,
    finite,
    without_axes,
)


def reduce_view(options: Options, view: View, before: Shape, after: Shape) -> View | None:
    """A sum or maximum. Over all positions it is a statistic, and sees nothing."""
    axes = {*options["axes"]}
    lost = [bool(own) and own <= axes for own in view.positions]
    bounds = view.bounds.copy()
    bounds[lost] = np.inf
    return without_axes(view._replace(bounds=bounds), axes, after)


def pad_view(options: Options, view: View, before: Shape, after: Shape) -> View | None:
    bounds = view.bounds
    for axis, (low, high, between) in enumerate(options["padding_config"]):
        bounds = _extended(bounds, axis + 2, low, high, between + 1)
    return compact_view(bounds, view.positions, after)


def _extended(bounds: np.ndarray, axis: int, low: Whole, high: Whole, step: Whole) -> np.ndarray:
    """Bounds along a padded axis, as if the image went on beyond its border."""
    if bounds.shape[axis] == 1:
        return bounds
    bounds = np.moveaxis(bounds, axis, 0)
    if step > 1:
        # Zeros between the entries see nothing, nor do those beside them.
        spread = np.full((step * (len(bounds) - 1) + 1, *bounds.shape[1:]), np.inf, bounds.dtype)
        spread[::step] = bounds
        bounds = spread

    def beyond(edge: np.ndarray, inner: np.ndarray, count: Whole) -> np.ndarray:
        finite = np.isfinite(edge) & np.isfinite(inner)
        change = np.subtract(edge, inner, where=finite, out=np.full_like(edge, np.inf))
        start = np.where(finite, edge, np.inf)
        steps = np.arange(1, count + 1, dtype=bounds.dtype).reshape(-1, *[1] * edge.ndim)
        return start + steps * change

    before = beyond(bounds[0], bounds[1], max(low, 0))[::-1]
    after = beyond(bounds[-1], bounds[-2], max(high, 0))
    bounds = bounds[max(-low, 0) : len(bounds) - max(-high, 0)]
    return np.moveaxis(np.concatenate([before, bounds, after]), 0, axis)


def _windows(
    bounds: np.ndarray,
    axis: int,
    count: Whole,
    size: Whole,
    stride: Whole = 1,
    dilation: Whole = 1,
    padding: Sequence[Whole] = (0, 0),
    step: Whole = 1,
) -> np.ndarray:
    """The hull over the windows along an axis, of which there are `count`."""
    if bounds.shape[axis] == 1:
        return bounds
    low, high = padding
    bounds = _extended(bounds, axis, low, high, step)
    starts, offsets = stride * np.arange(count), dilation * np.arange(size)
    windows = bounds.take(starts[:, None] + offsets, axis)
    return windows.min(axis + 1)


def pool_view(options: Options, view: View, before: Shape, after: Shape) -> View | None:
    bounds = view.bounds
    names = ("window_dimensions", "window_strides", "window_dilation", "padding", "base_dilation")
    for axis, window in enumerate(zip(*(options[name] for name in names), strict=True)):
        bounds = _windows(bounds, axis + 2, after[axis], *window)
    return compact_view(bounds, view.positions, after)


def convolution_view(options: Options, inputs: Sequence[Operand], shapes: Sequence[Shape]) -> Views:
    (shape,), (x, kernel) = shapes, inputs
    lhs, rhs, out = options["dimension_numbers"]
    if options["batch_group_count"] != 1 or x.view is None:
        return [UNKNOWN]
    bounds = x.view.bounds.transpose(0, 1, *(axis + 2 for axis in lhs)).copy()
    groups, channels = options["feature_group_count"], shape[out[1]]
    if groups == 1:
        bounds = bounds.min(3, keepdims=True)
    elif bounds.shape[3] > 1:
        bounds = bounds.reshape(*bounds.shape[:3], groups, -1, *bounds.shape[4:]).min(4)
        bounds = bounds.repeat(channels // groups, 3)
    names = ("window_strides", "rhs_dilation", "padding", "lhs_dilation")
    for place, window in enumerate(zip(*(options[name] for name in names), strict=True), 2):
        stride, dilation, padding, step = window
        count, size = shape[out[place]], kernel.shape[rhs[place]]
        bounds = _windows(bounds, place + 2, count, size, stride, dilation, padding, step)
    if kernel.view is not None:
        all_of_it = kernel.view.bounds.min(tuple(range(2, kernel.view.bounds.ndim)))
        bounds = np.minimum(bounds, all_of_it.reshape(*bounds.shape[:2], *[1] * len(shape)))
    bounds = bounds.transpose(0, 1, *(int(axis) + 2 for axis in np.argsort(out)))
    # Of a convolution that is depthwise the outputs are channels of the same kind.
    contracted = {lhs[1]} if x.shape[lhs[1]] > groups else set()
    dropped, mixed = _contracted(x, contracted)
    bounds[[*dropped]] = np.inf
    places = {axis: place for axis, place in zip(lhs, out, strict=True) if axis not in contracted}
    positions = [
        frozenset(places[axis] for axis in own if axis in places) for own in x.view.positions
    ]
    positions = [own | {out[1]} if axis in mixed else own for axis, own in enumerate(positions)]
    return [compact_view(bounds, positions, shape)]


def _contracted(operand: Operand, axes: set[int]) -> tuple[set[int], set[int]]:
    """The point's axes that a product over axes of a value drops, and those that it mixes.

    The axis of colours or features has no positions: a product over it leaves those of the others.
    A product over the positions of each channel mixes them, and its outputs are positions again.
    """
    view = operand.view
    assert view is not None
    others = [own - axes for own in view.positions]
    lost = {axis for axis, own in enumerate(view.positions) if own and not others[axis]}
    # Those of which every entry sees one pixel at most.
    single = {axis for axis in lost if (finite(view.bounds[axis]).sum(0) >= 0).all()}
    dropped = single if any(others) else set()
    alone = prod(size for axis, size in enumerate(operand.shape) if axis not in axes) == 1
    return dropped, set() if alone else lost - dropped


def product_view(options: Options, inputs: Sequence[Operand], shapes: Sequence[Shape]) -> Views:
    (shape,), sides = shapes, list(zip(inputs, *options["dimension_numbers"], strict=True))
    free = [
        [axis for axis in range(len(each.shape)) if axis not in (*over, *batch)]
        for each, over, batch in sides
    ]
    batches = len(sides[0][2])
    total = None
    positions: list[set[int]] = []
    for side, (each, over, batch) in enumerate(sides):
        if each.view is None:
            continue
        other = inputs[1 - side]
        bounds, fixed = each.view.bounds, other.view is None and not other.of_weights
        if fixed and any(bounds.shape[axis + 2] > 1 for axis in over):
            # Numbers that nobody trains may be zero: a resizing sees its neighbourhood alone.
            return [UNKNOWN]
        first = batches + (len(free[0]) if side else 0)
        places = {axis: place for place, axis in enumerate(batch)}
        places |= {axis: first + place for place, axis in enumerate(free[side])}
        order = [*batch, *free[side]]
        side_bounds = bounds.transpose(0, 1, *(a + 2 for a in order), *(a + 2 for a in over))
        side_bounds = side_bounds.min(tuple(range(2 + len(order), side_bounds.ndim))).copy()
        dropped, mixed = _contracted(each, {*over})
        side_bounds[[*dropped]] = np.inf
        sizes = [1] * len(shape)
        for axis, size in zip(order, side_bounds.shape[2:], strict=True):
            sizes[places[axis]] = size
        side_bounds = side_bounds.reshape(*side_bounds.shape[:2], *sizes)
        total = side_bounds if total is None else np.minimum(total, side_bounds)
        start = batches + (0 if side else len(free[0]))
        of_other = range(start, start + len(free[1 - side])) if other.view is None else ()
        of_side = [{places[axis] for axis in old if axis in places} for old in each.view.positions]
        for axis in mixed:
            of_side[axis] |= {*of_other}
        positions = (
            [a | b for a, b in zip(positions, of_side, strict=True)] if positions else of_side
        )
    assert total is not None
    return [compact_view(total, [frozenset(axes) for axes in positions], shape)]
