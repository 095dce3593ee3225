"""Counts on a network's trace: its size, its cost, its layers, its receptive field.

Published proxies correlate with these counts, which take neither weights nor images: read a proxy's
agreement with accuracies beside that of the counts.
"""

from collections.abc import Hashable, Sequence
from math import nan, prod

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from ntkscore.trace import activations
from ntkscore.trace.operations import (
    PRODUCTS,
    UNCHANGED,
    multiply_adds,
    program_multiply_adds,
    views_after,
)
from ntkscore.trace.program import Program, Value
from ntkscore.trace.receptive_field import View, point_view, width

MOVING = UNCHANGED | {"broadcast_in_dim", "mul", "div"}
"""Operations on a weight, and numbers that are none, after which it is the same layer's."""


def counts(program: Program) -> dict[str, float]:
    """The counts on a network at one point.

    Of branches that are chosen between while the network runs (`cond`), the one with the most
    multiply-adds counts. A loop counts as often as it runs; where only the numbers decide how often
    that is (`while`), and layers or products are in it, `flops`, `depth` and `shortest_path` are
    NaN, and so they are where a kernel's inside is not in the trace.

    Args:
        program: the network; leaves that it holds constant, as statistics, are no parameters.

    Returns:
        `params`: entries of the leaves that the logits depend on.
        `flops`: multiply-adds of convolutions and matrix products for one point, those of two
            values of the point, as in attention, among them. A pixel of the padding counts as any
            other; zeros between the entries of a transposed convolution do not. Operations on
            single numbers, poolings and normalisations count nothing.
        `layers`: convolutions and matrix products by weights; one whose weights are used several
            times counts once.
        `rectifiers`: as the activation scores count them.
        `depth`, `shortest_path`: the most and the fewest layers on a path from the point to the
            logits, one that is used several times counting each time.
        `field`: the receptive field of the features, in pixels, along the longer side. It is how
            many pixels wide the part of the image is that one position of the features sees, the
            widest of all features that have positions: of those before the global pooling or before
            positions and channels are flattened together. Padding counts as if the image went on,
            so that the field may be larger than the image. A product over positions, as in
            attention, sees all of them, whatever its mask. Statistics over all positions, as in
            normalisations and gates, widen nothing. Without features that have positions, as in a
            dense network, it is the longest axis of the point; NaN where an equation on positions
            is not understood.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> def apply(params, x):
        ...     z = jax.lax.conv(x, params[0], (1, 1), "SAME")
        ...     return jnp.mean(jax.nn.relu(z), (2, 3)) @ params[1]
        >>> params = [jnp.ones((8, 3, 5, 5)), jnp.ones((8, 10))]
        >>> counts(Program(apply, params, jnp.ones((3, 32, 32))))  # doctest: +NORMALIZE_WHITESPACE
        {'params': 680, 'flops': 614480, 'layers': 2, 'rectifiers': 1, 'depth': 2,
         'shortest_path': 2, 'field': 5.0}
    """
    names = ("params", "flops", "layers", "rectifiers", "depth", "shortest_path", "field")
    if not program.logits.of_point:
        return dict.fromkeys(names, 0)
    network = _WrittenOut(program)
    point, logits, sources = network.point, network.logits, _sources(network)
    flops: float = 0
    layers, widths = set[Hashable](), [0.0]
    views: dict[Value, View] = {point: point_view(point.shape)}
    paths: dict[Value, tuple[float, float]] = {point: (0, 0)}
    for equation in network.point_equations.values():
        inputs, outputs = equation.inputs, equation.outputs
        shapes = [each.shape for each in inputs]
        flops += multiply_adds(equation.name, equation.options, shapes, outputs[0].shape)
        shortest, longest = zip(*(paths[each] for each in equation.points), strict=True)
        # The sums make NaN of all where one is.
        path = min(shortest) + 0 * sum(shortest), max(longest) + 0 * sum(longest)
        weights = [each for each in equation.weights if not each.of_point]
        if equation.name in PRODUCTS and weights:
            layers.add(sources[weights[0]])
            path = path[0] + 1, path[1] + 1
        if equation.name == "while":
            before, after, *_ = (paths[each] if each.of_point else None for each in inputs)
            path = path if before == after else (nan, nan)
            flops += nan if program_multiply_adds(equation.options["body_jaxpr"].jaxpr) else 0
        paths |= dict.fromkeys(outputs, path)
        seen = views_after(
            equation, [views.get(each) if each.of_point else None for each in inputs]
        )
        for output, view in zip(outputs, seen, strict=True):
            if view is not None:
                views[output] = view
                widths += [width(view)] if path[1] >= 1 else []
    fewest, most = paths[logits]
    field = float(np.max(widths)) or float(max(point.shape, default=1))
    params = sum(prod(network.leaves[leaf].shape) for leaf in logits.leaves)
    rectifiers = len(activations.rectifiers(program))
    found = params, flops, len(layers), rectifiers, most, fewest, field
    return dict(zip(names, found, strict=True))


class _WrittenOut(Program):
    """A network of which all functions within functions, loops and branches are written out.

    Of branches it is the one with the most multiply-adds, of a loop that numbers end one step. Each
    of their outputs goes through one more equation, with that which decides on it.
    """

    def __init__(self, program: Program) -> None:
        self._read(*program.source)

    def _unrolls(self, length: int, inputs: Sequence[Value]) -> bool:
        return length > 0

    def _append(self, equation: JaxprEqn, jaxpr: Jaxpr, inputs: list[Value]) -> list[Value]:
        name, options = equation.primitive.name, equation.params
        if name == "cond" and inputs[0].constant is None:
            largest = max(options["branches"], key=lambda each: program_multiply_adds(each.jaxpr))
            decided = [(inputs[0], each) for each in self._inline(largest, inputs[1:])]
        elif name == "while":
            tests, consts = options["cond_nconsts"], options["body_nconsts"]
            outputs = self._inline(options["body_jaxpr"], inputs[tests:])
            changes = zip(inputs[tests + consts :], outputs, strict=True)
            decided = [(*each, *inputs) for each in changes]
        else:
            # A function with a derivative of its own, for one, stands for the whole equation.
            own = [each for each in options.values() if isinstance(each, ClosedJaxpr)]
            if name != "scan" and len(own) == 1 and len(own[0].in_avals) == len(inputs):
                return self._inline(own[0], inputs)
            return super()._append(equation, jaxpr, inputs)
        every = zip(decided, equation.outvars, strict=True)
        return [self._add(equation, each, [output], lambda *_: [])[0] for each, output in every]


def _sources(network: Program) -> dict[Value, Hashable]:
    """Which weights the values are that no point takes part in: the same for one made again."""
    names: dict[Hashable, int] = {}
    found: dict[Value, Hashable] = {each: each for each in (*network.leaves, *network.constants)}
    for equation in (network.equations[place] for place in network.live):
        if equation.outputs[0].of_point:
            continue
        weights = equation.weights
        if len(weights) == 1 and equation.name in MOVING:
            found |= dict.fromkeys(equation.outputs, found[weights[0]])
            continue
        inputs = (
            str(each.constant) if each.constant is not None else found[each]
            for each in equation.inputs
        )
        made = equation.name, str(sorted(equation.options.items())), *inputs
        for k, output in enumerate(equation.outputs):
            found[output] = names.setdefault((made, k), len(names))
    return found
