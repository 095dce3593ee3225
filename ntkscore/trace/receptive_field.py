"""The receptive field: the part of a point that one position of a network's features sees.

A view says of a value, for each axis of the point, from which pixel to which each of its entries
sees. A convolution takes the hull over its window, a product over positions the hull over all of
them. Nothing is claimed about values after an equation that is not understood.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from math import nan, prod
from typing import NamedTuple

import numpy as np

from ntkscore.trace.program import Equation

Shape = tuple[int, ...]


class Span(NamedTuple):
    """The pixels along one axis of the point that the entries of a value see.

    Attributes:
        bounds: the least index of these pixels, and minus the largest, (2, …), so that the hull of
            two spans is a minimum. Of the value's shape, with 1 where it is the same along an axis.
            Infinity in both: no pixel.
        positions: the axes of the value along which the axis of the point runs.
    """

    bounds: np.ndarray
    positions: frozenset[int]


View = tuple[Span | None, ...]
"""What a value sees along each axis of the point; None for no pixel."""
Views = list[View | None]
"""Those of several values; None for one that sees nothing."""
FieldRule = Callable[[Equation, Sequence[View | None]], Sequence[View | None]]
"""From an equation and the views of its inputs to those of its outputs."""
UNKNOWN: View = (Span(np.empty((2, 0)), frozenset()),)
"""The view of a value that an equation computes which is not understood; known by identity."""


def point_view(shape: Shape) -> View:
    """The point itself: each entry sees its own pixel.

    Example:
        >>> width(point_view((32, 32, 3))), width(point_view(()))
        (1.0, 0.0)
    """
    pixels = np.indices(shape, np.float32, sparse=True)
    return tuple(
        Span(np.stack([each, -each]), frozenset([axis] if shape[axis] > 1 else []))
        for axis, each in enumerate(pixels)
    )


def width(view: View | None) -> float:
    """Pixels that the widest entry sees, along the longest of the axes that have positions.

    0 where there are no positions; NaN where it is not known.
    """
    if view is UNKNOWN:
        return nan
    # The least index and minus the largest add up to 1 less the width.
    spans = [span for span in view or () if span is not None and span.positions]
    return max((1 - float(span.bounds.sum(0).min()) for span in spans), default=0.0)


def views(equation: Equation, seen: Sequence[View | None], rule: FieldRule | None) -> Views:
    """The views of an equation's outputs.

    A view is None where nothing of the point is seen, and nothing is claimed after an operation
    that has no rule, unless all entries before it see the same.
    """
    shapes = [each.shape for each in equation.outputs]
    found = [view for view in seen if view is not None]
    if not found or all(0 in shape for shape in shapes):
        return [None] * len(shapes)
    varies = any(span and span.bounds.size > 2 for view in found for span in view)
    if any(view is UNKNOWN for view in found) or (rule is None and varies):
        return [UNKNOWN] * len(shapes)
    if rule is None:
        without = [tuple(each and _constant(each) for each in view) for view in found]
        return [_compact(_hull(without, shape), shape) for shape in shapes]
    outputs = zip(rule(equation, seen), shapes, strict=True)
    return [view if view is found[0] else _compact(view, shape) for view, shape in outputs]


def _constant(span: Span) -> Span:
    """What all entries see together, without positions."""
    return Span(span.bounds.reshape(2, -1).min(1), frozenset())


def _compact(view: View | None, shape: Shape) -> View | None:
    """A view of which the bounds have one entry where they are equal along an axis."""
    if view is None or view is UNKNOWN:
        return view
    spans = tuple(
        None
        if span is None or np.isposinf(span.bounds).all()
        else Span(_stacked(span.bounds), frozenset(k for k in span.positions if shape[k] > 1))
        for span in view
    )
    return spans if any(spans) else None


def _stacked(planes: Iterable[np.ndarray]) -> np.ndarray:
    """Arrays as one, with one entry along the axes on which all are constant."""
    return np.stack(np.broadcast_arrays(*map(_short, planes)))


def _short(array: np.ndarray) -> np.ndarray:
    """An array with one entry along axes on which it is constant but for entries that are NaN."""
    array = array[tuple(slice(None if stride else 1) for stride in array.strides)]
    for axis, size in enumerate(array.shape):
        if size > 1:
            largest = np.fmax.reduce(array, axis, keepdims=True)
            differs = largest > np.fmin.reduce(array, axis, keepdims=True)
            array = array if differs.any() else largest
    return array


def hull(equation: Equation, seen: Sequence[View | None]) -> Views:
    """Of an operation on the numbers in each place of arrays of one shape, and on scalars."""
    found = [view for view in seen if view is not None]
    return [_hull(found, equation.outputs[0].shape)] * len(equation.outputs)


def _hull(found: Sequence[View], shape: Shape) -> View:
    if all(view is found[0] for view in found):
        ranks = {span.bounds.ndim for span in found[0] if span}
        if ranks == {1 + len(shape)}:
            return found[0]

    def together(*every: Span | None) -> Span | None:
        spans = [span for span in every if span is not None]
        ones = [1] * len(shape)
        bounds = [span.bounds.reshape(2, *(span.bounds.shape[1:] or ones)) for span in spans]
        positions = frozenset[int]().union(*(span.positions for span in spans))
        return Span(reduce(np.minimum, bounds), positions) if spans else None

    return tuple(map(together, *found))


def repeated(equation: Equation, seen: Sequence[View | None]) -> Views:
    """Of a value before and after one step of a loop that runs nobody knows how often."""
    before, after, *_ = seen
    return [after if after is before else UNKNOWN]


def moving(function: Callable[..., np.ndarray | Sequence[np.ndarray]]) -> FieldRule:
    """The rule of an operation that moves entries, and changes none.

    Args:
        function: what it does to arrays, from its options, its output's shape and its inputs.
    """

    def rule(equation: Equation, seen: Sequence[View | None]) -> list[View]:
        shapes = [each.shape for each in equation.inputs]

        def moved(arrays: Sequence[np.ndarray | float]) -> Sequence[np.ndarray]:
            full = map(np.broadcast_to, arrays, shapes)
            outputs = function(equation.options, equation.outputs[0].shape, *full)
            return [outputs] if isinstance(outputs, np.ndarray) else outputs

        def along(*spans: Span | None) -> list[Span]:
            both = [moved([np.inf if s is None else s.bounds[k] for s in spans]) for k in (0, 1)]
            every = map(_stacked, zip(*both, strict=True))
            found = [(bounds, set[int]()) for bounds in every]
            for axis in frozenset[int]().union(*(span.positions for span in spans if span)):
                places = [
                    np.indices(shape, np.float32, sparse=True)[axis]
                    if span and axis in span.positions
                    else nan
                    for span, shape in zip(spans, shapes, strict=True)
                ]
                for (_, positions), each in zip(found, moved(places), strict=True):
                    positions |= {k for k, size in enumerate(_short(each).shape) if size > 1}
            outputs = []
            for bounds, positions in found:
                shown = {axis for axis, size in enumerate(bounds.shape[1:]) if size > 1}
                # Which part of a split axis they are on shows where they see different pixels.
                # Steps or pieces with one position each are put beside each other.
                beside = not positions and len(spans) > 1
                positions = shown if beside else positions & shown or positions
                outputs.append(Span(bounds, frozenset(positions)))
            return outputs

        points = max(len(view) for view in seen if view is not None)
        spans = zip(*(view or (None,) * points for view in seen), strict=True)
        return [*zip(*(along(*each) for each in spans), strict=True)]

    return rule


def _placed(span: Span, places: Mapping[int, int], rank: int) -> Span:
    """A span whose axes have other places, and the hull over those that have none."""
    gone = tuple(1 + axis for axis in range(span.bounds.ndim - 1) if axis not in places)
    order = np.argsort([places[axis] for axis in sorted(places)])
    bounds = span.bounds.min(gone).transpose(0, *(1 + order))
    bounds = np.expand_dims(bounds, [1 + k for k in range(rank) if k not in places.values()])
    return Span(bounds, frozenset(places[axis] for axis in span.positions if axis in places))


def of_each(rule: Callable[[Equation, Span], Span | None]) -> FieldRule:
    """A rule for equations with one input, axis by axis of the point."""

    def apply(equation: Equation, seen: Sequence[View | None]) -> Views:
        view, *others = seen
        if view is None or any(other is not None for other in others):
            return [UNKNOWN]
        return [tuple(span and rule(equation, span) for span in view)]

    return apply


def reduced(equation: Equation, span: Span) -> Span | None:
    """After a sum or maximum over axes. Over all positions it is a statistic, and sees nothing."""
    axes = equation.options["axes"]
    if span.positions and span.positions <= {*axes}:
        return None
    rest = [axis for axis in range(span.bounds.ndim - 1) if axis not in axes]
    return _placed(span, {axis: place for place, axis in enumerate(rest)}, len(rest))


Window = tuple[int, int, int, tuple[int, int], int]
"""How a window moves along an axis, as `lax.reduce_window` has it: its size, stride, dilation,
padding and base dilation."""


def _windows(span: Span, windows: Mapping[int, Window], shape: Shape) -> Span:
    """The hull over windows along some axes, of which an array of this shape is the outcome."""
    bounds = span.bounds
    for axis, (size, stride, dilation, padding, step) in windows.items():
        if bounds.shape[1 + axis] > 1:
            bounds = _extended(bounds, 1 + axis, padding, step)
            starts, offsets = stride * np.arange(shape[axis]), dilation * np.arange(size)
            bounds = bounds.take(starts[:, None] + offsets, 1 + axis).min(2 + axis)
    return span._replace(bounds=bounds)


def _extended(bounds: np.ndarray, axis: int, padding: tuple[int, int], step: int) -> np.ndarray:
    """Bounds along a padded axis, as if the image went on beyond its border."""
    bounds = np.moveaxis(bounds, axis, 0)
    # Zeros between the entries see nothing, nor do those beside them.
    spread = np.full((step * (len(bounds) - 1) + 1, *bounds.shape[1:]), np.inf, bounds.dtype)
    spread[::step] = bounds

    def beyond(edge: np.ndarray, inner: np.ndarray, count: int) -> np.ndarray:
        finite = np.isfinite(edge) & np.isfinite(inner)
        change = np.subtract(edge, inner, where=finite, out=np.full_like(edge, np.inf))
        steps = np.arange(1, count + 1, dtype=edge.dtype).reshape(-1, *[1] * edge.ndim)
        return np.where(finite, edge, np.inf) + steps * change

    low, high = padding
    before, after = beyond(spread[0], spread[1], low)[::-1], beyond(spread[-1], spread[-2], high)
    inside = spread[max(-low, 0) : len(spread) - max(-high, 0)]
    return np.moveaxis(np.concatenate([before, inside, after]), 0, axis)


def padded(equation: Equation, span: Span) -> Span:
    """After a padding, beyond whose border the image goes on."""
    config = enumerate(equation.options["padding_config"])
    windows = {axis: (1, 1, 1, (a, b), 1 + c) for axis, (a, b, c) in config}
    return _windows(span, windows, equation.outputs[0].shape)


def pooled(equation: Equation, span: Span) -> Span:
    """After a sum or extremum over windows."""
    names = ("window_dimensions", "window_strides", "window_dilation", "padding", "base_dilation")
    every = zip(*(equation.options[name] for name in names), strict=True)
    return _windows(span, dict(enumerate(every)), equation.outputs[0].shape)


def _contracted(view: View, shape: Shape, axes: set[int]) -> tuple[list[Span | None], set[int]]:
    """A view before a product over axes of its value, and the axes of the point that this mixes.

    The axis of colours or features has no positions: a product over it leaves those of the others.
    A product over the positions of each channel mixes them, and its outputs are positions again.
    """
    others = any(span is not None and span.positions - axes for span in view)
    alone = prod(size for axis, size in enumerate(shape) if axis not in axes) == 1
    spans, mixed = list(view), set[int]()
    for point, span in enumerate(view):
        if span is not None and span.positions and span.positions <= axes:
            if others and (span.bounds.sum(0) >= 0).all():  # each entry sees one pixel at most
                spans[point] = None
            elif not alone:
                mixed.add(point)
    return [span and span._replace(positions=span.positions - axes) for span in spans], mixed


def convolved(equation: Equation, seen: Sequence[View | None]) -> Views:
    """Of a convolution, whose kernel may see the point too."""
    (x, kernel), (output,), options = equation.inputs, equation.outputs, equation.options
    view, of_kernel = seen
    if options["batch_group_count"] != 1 or view is None:
        return [UNKNOWN]
    lhs, rhs, out = options["dimension_numbers"]
    groups, width = options["feature_group_count"], output.shape[out[1]]
    places = dict(zip(lhs, out, strict=True))
    # Of a convolution that is depthwise the outputs are channels of the same kind.
    contracted = {lhs[1]} if x.shape[lhs[1]] > groups else set[int]()
    spans, mixed = _contracted(view, x.shape, contracted)
    names = ("window_strides", "rhs_dilation", "padding", "lhs_dilation")
    moves = zip(out[2:], rhs[2:], *(options[name] for name in names), strict=True)
    windows = {place: (kernel.shape[side], *each) for place, side, *each in moves}

    def along(point: int, span: Span) -> Span:
        bounds, positions = _placed(span, places, len(out))
        bounds = np.moveaxis(bounds, 1 + out[1], 0)
        if len(bounds) > 1:
            bounds = bounds.reshape(groups, -1, *bounds.shape[1:]).min(1).repeat(width // groups, 0)
        bounds = np.moveaxis(bounds, 0, 1 + out[1])
        positions |= {out[1]} if point in mixed else set()
        return _windows(Span(bounds, positions), windows, output.shape)

    outcome = tuple(span and along(point, span) for point, span in enumerate(spans))
    all_of_it = tuple(span and _constant(span) for span in of_kernel or outcome)
    return [outcome if of_kernel is None else _hull([outcome, all_of_it], output.shape)]


def multiplied(equation: Equation, seen: Sequence[View | None]) -> Views:
    """Of a product of matrices, of which one or both see the point."""
    over, batch = equation.options["dimension_numbers"]
    (output,), sides = equation.outputs, []
    free = [
        [axis for axis in range(len(each.shape)) if axis not in (*own, *shared)]
        for each, own, shared in zip(equation.inputs, over, batch, strict=True)
    ]
    start = len(batch[0])
    columns = range(start, start + len(free[0])), range(start + len(free[0]), len(output.shape))
    for side, view in enumerate(seen):
        if view is None:
            continue
        other, alone = equation.inputs[1 - side], seen[1 - side] is None
        varying = (span.bounds.shape[1 + axis] > 1 for span in view if span for axis in over[side])
        if alone and not other.leaves and any(varying):
            # Numbers that nobody trains may be zero: a resizing sees its neighbourhood alone.
            return [UNKNOWN]
        spans, mixed = _contracted(view, equation.inputs[side].shape, {*over[side]})
        places = dict(
            zip([*batch[side], *free[side]], [*range(start), *columns[side]], strict=True)
        )
        spans = [span and _placed(span, places, len(output.shape)) for span in spans]
        for point in mixed if alone else ():
            if span := spans[point]:
                spans[point] = span._replace(positions=span.positions | {*columns[1 - side]})
        sides.append(tuple(spans))
    return [_hull(sides, output.shape)]
