"""The views of values whose entries an equation moves, and changes in nothing else."""

from collections.abc import Callable, Sequence

import numpy as np

from ntkscore.trace.view import (
    UNKNOWN,
    Operand,
    Options,
    Shape,
    View,
    Views,
    all_positions,
    compact_view,
    differ,
    slice_view,
    with_axes_moved,
    without_axes,
)

FieldRule = Callable[[Options, Sequence[Operand], Sequence[Shape]], Views]


def of_one(rule: Callable[[Options, View, Shape, Shape], View | None]) -> FieldRule:
    """A rule for equations with one input that counts, and one output."""

    def apply(options: Options, inputs: Sequence[Operand], shapes: Sequence[Shape]) -> Views:
        first, *others = inputs
        if first.view is None or any(each.view is not None for each in others):
            return [UNKNOWN] * len(shapes)
        return [rule(options, first.view, first.shape, shape) for shape in shapes]

    return apply


def reshape_view(options: Options, view: View, before: Shape, after: Shape) -> View | None:
    if options.get("dimensions") is not None:
        return UNKNOWN
    full, out, blocks = [], [], _blocks(before, after)
    for old, new in blocks:
        varies = any(view.bounds.shape[axis + 2] > 1 for axis in old)
        full += [before[axis] if varies else 1 for axis in old]
        out += [after[axis] if varies else 1 for axis in new]
    bounds = np.broadcast_to(view.bounds, (*view.bounds.shape[:2], *full)).reshape(
        *view.bounds.shape[:2], *out
    )
    # Which part of a split axis the positions are on shows where they differ, and else nowhere.
    shown = [differ(bounds, axis) for axis in range(len(after))]
    positions = []
    for point, old_axes in enumerate(view.positions):
        new_axes = set[int]()
        for old, new in blocks:
            if not old_axes.isdisjoint(old):
                new_axes |= {axis for axis in new if shown[axis][point]} or {*new}
        positions.append(new_axes)
    return compact_view(bounds, positions, after)


def _blocks(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]]:
    """Axes before and after a reshape that hold the same entries, in the smallest groups."""
    blocks: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        old, new, sizes = [], [], [1, 1]
        while not (old or new) or sizes[0] != sizes[1]:
            if (sizes[0] <= sizes[1] and i < len(before)) or j == len(after):
                old, sizes[0], i = [*old, i], sizes[0] * before[i], i + 1
            else:
                new, sizes[1], j = [*new, j], sizes[1] * after[j], j + 1
        blocks.append((old, new))
    return blocks


def transpose_view(options: Options, view: View, before: Shape, after: Shape) -> View | None:
    order = options["permutation"]
    bounds = view.bounds.transpose(0, 1, *(axis + 2 for axis in order))
    return with_axes_moved(view, {axis: place for place, axis in enumerate(order)}, bounds, after)


def broadcast_view(options: Options, view: View, before: Shape, after: Shape) -> View | None:
    places = dict(enumerate(options["broadcast_dimensions"]))
    sizes = [1] * len(after)
    for axis, place in places.items():
        sizes[place] = view.bounds.shape[axis + 2]
    return with_axes_moved(view, places, view.bounds.reshape(*view.bounds.shape[:2], *sizes), after)


def squeeze_view(options: Options, view: View, before: Shape, after: Shape) -> View | None:
    return without_axes(view, options["dimensions"], after)


def cut_view(options: Options, view: View, before: Shape, after: Shape) -> View | None:
    starts, stops = options["start_indices"], options["limit_indices"]
    cuts = zip(starts, stops, options["strides"] or [1] * len(starts), strict=True)
    return slice_view(view, [slice(*each) for each in cuts], after)


def split_view(options: Options, inputs: Sequence[Operand], shapes: Sequence[Shape]) -> Views:
    view, axis, start, parts = inputs[0].view, options["axis"], 0, []
    assert view is not None
    for size, shape in zip(options["sizes"], shapes, strict=True):
        cuts = [slice(None)] * len(shape)
        cuts[axis] = slice(start, start + size)
        parts.append(slice_view(view, cuts, shape))
        start += size
    return parts


def reverse_view(options: Options, view: View, before: Shape, after: Shape) -> View | None:
    bounds = np.flip(view.bounds, tuple(axis + 2 for axis in options["dimensions"]))
    return compact_view(bounds, view.positions, after)


def concatenate_view(options: Options, inputs: Sequence[Operand], shapes: Sequence[Shape]) -> Views:
    axis, found = int(options["dimension"]), [each.view for each in inputs if each.view is not None]
    count, rank = len(found[0].bounds), len(shapes[0])
    nothing = np.full((count, 2, *[1] * rank), np.inf, np.float32)
    parts = [nothing if each.view is None else each.view.bounds for each in inputs]
    common = np.broadcast_shapes(*(part.take([0], axis + 2).shape for part in parts))
    full = []
    for part, each in zip(parts, inputs, strict=True):
        sizes = list(common)
        sizes[axis + 2] = each.shape[axis]
        full.append(np.broadcast_to(part, sizes))
    bounds, positions = np.concatenate(full, axis + 2), all_positions(found)
    # Steps or pieces with one position each are put beside each other; channels are not.
    positions = [
        axes | {axis} if differs and not axes else axes
        for axes, differs in zip(positions, differ(bounds, axis), strict=True)
    ]
    return [compact_view(bounds, positions, shapes[0])]


def stacked(steps: Sequence[Operand], axis: int) -> View | None:
    """The view of arrays of one shape, side by side along a new axis."""
    if all(each.view is None for each in steps) or any(each.view is UNKNOWN for each in steps):
        return UNKNOWN if any(each.view is UNKNOWN for each in steps) else None
    parts = []
    for shape, view, of_weights in steps:
        grown = (*shape[:axis], 1, *shape[axis:])
        options = {"broadcast_dimensions": [k for k in range(len(grown)) if k != axis]}
        view = None if view is None else broadcast_view(options, view, shape, grown)
        parts.append(Operand(grown, view, of_weights))
    shape = (*steps[0].shape[:axis], len(steps), *steps[0].shape[axis:])
    return concatenate_view({"dimension": axis}, parts, [shape])[0]


def stack_view(options: Options, inputs: Sequence[Operand], shapes: Sequence[Shape]) -> Views:
    return [stacked(inputs, int(options["axis"]))]


def step_of(each: Operand, step: int) -> View | None:
    """The view of the entry of an array that a loop's step takes."""
    if each.view is None or each.view is UNKNOWN:
        return each.view
    cuts = [slice(step, step + 1), *[slice(None)] * (len(each.shape) - 1)]
    view = slice_view(each.view, cuts, (1, *each.shape[1:]))
    return None if view is None else without_axes(view, [0], each.shape[1:])


def through_view(options: Options, inputs: Sequence[Operand], shapes: Sequence[Shape]) -> Views:
    return [each.view for each in inputs]
