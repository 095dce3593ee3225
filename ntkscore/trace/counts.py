"""Counts on a network's trace: its size, its cost, its layers, its receptive field.

Published proxies correlate with these counts, which take neither weights nor images: read a proxy's
agreement with accuracies beside that of the counts.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from math import inf, isnan, nan, prod
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import Jaxpr, Literal, jaxprs_in_params

from ntkscore.trace import activations, moves
from ntkscore.trace.operations import PRODUCTS, UNCHANGED, multiply_adds, views
from ntkscore.trace.program import Constant, Program, loop_sizes
from ntkscore.trace.view import UNKNOWN, Operand, Shape, View, point_view, width

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
    if isinstance(program.logits, Constant) or not program.logits.of_point:
        names = ("params", "flops", "layers", "rectifiers", "depth", "shortest_path", "field")
        return dict.fromkeys(names, 0)
    reader, found = _Reader(), dict[Any, Known]()
    for value in (*program.leaves, *program.constants):
        leaf = bool(value.leaves)
        found[value] = Known(value.shape, None, leaf, False, value if leaf else None)
    point = program.point.shape
    found[program.point] = Known(point, point_view(point), False, True, None, 0, 0)
    reader.run(_of_program(program), found)
    logits = found[program.logits]
    widest = reader.widest
    return {
        "params": sum(prod(program.leaves[leaf].shape) for leaf in program.logits.leaves),
        "flops": reader.flops,
        "layers": len(reader.layers),
        "rectifiers": len(activations.rectifiers(program)),
        "depth": logits.most,
        "shortest_path": logits.fewest,
        "field": widest if widest != 0 else float(max(point, default=1)),
    }


class Known(NamedTuple):
    """The properties of a value that are counted with.

    Attributes:
        shape: of the array.
        view: the pixels of the point that it sees.
        of_weights: whether it depends on weights.
        of_point: whether it depends on the point.
        source: which weight it is, if it is one.
        fewest, most: layers on a path to it from the point.
    """

    shape: Shape
    view: View | None
    of_weights: bool
    of_point: bool
    source: Hashable = None
    fewest: float = inf
    most: float = -inf

    @property
    def operand(self) -> Operand:
        return Operand(self.shape, self.view, self.of_weights)


class Step(NamedTuple):
    """An equation of a program, or of a function within one.

    Attributes:
        name: of the operation.
        inputs: values, or numbers.
        outputs: values.
        options: such as a convolution's stride.
        shapes: of the outputs.
    """

    name: str
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    options: Mapping[str, Any]
    shapes: tuple[Shape, ...]


def _of_program(program: Program) -> Iterator[Step]:
    for name, inputs, outputs, options, _ in (program.equations[place] for place in program.live):
        yield Step(name, inputs, outputs, options, tuple(each.shape for each in outputs))


def _of_function(jaxpr: Jaxpr) -> Iterator[Step]:
    for equation in jaxpr.eqns:
        shapes = tuple(each.aval.shape for each in equation.outvars)  # pyright: ignore
        name = equation.primitive.name
        yield Step(name, equation.invars, equation.outvars, equation.params, shapes)


def _read(found: Mapping[Any, Known], atom: Any) -> Known:
    """The properties of a value or number."""
    if isinstance(atom, Constant | Literal):
        return _number(np.shape(atom.value if isinstance(atom, Constant) else atom.val))
    return found[atom]


def _number(shape: Shape) -> Known:
    return Known(shape, None, False, False)


class _Reader:
    """Counts along some equations.

    Attributes:
        flops: multiply-adds.
        layers: the weights of layers.
        widest: of the features' views, in pixels; 0 where no features have positions.
    """

    def __init__(self, sources: dict[Hashable, int] | None = None) -> None:
        self.flops: float = 0
        self.layers: set[Hashable] = set()
        self.widest = 0.0
        self._names: dict[Hashable, int] = {} if sources is None else sources

    def _source(self, *made_of: Hashable) -> int:
        """A short name for a weight, the same for one that is made again in the same way."""
        return self._names.setdefault(made_of, len(self._names))

    def add(self, other: "_Reader") -> None:
        """Add what was counted apart."""
        self.flops += other.flops
        self.layers |= other.layers
        self.widest = float(np.maximum(self.widest, other.widest))

    def run(self, steps: Iterable[Step], found: dict[Any, Known]) -> None:
        """Add the outputs of equations to the values found, and count."""
        for step in steps:
            given = [_read(found, each) for each in step.inputs]
            outputs = self._step(step, given)
            found |= zip(step.outputs, outputs, strict=True)
            for each in outputs:
                if each.of_point and each.most >= 1:
                    self.widest = float(np.maximum(self.widest, width(each.view)))

    def _step(self, step: Step, given: list[Known]) -> list[Known]:
        if step.name == "cond":
            return self._choice(step, given)
        if step.name == "scan":
            return self._loop(step, given)
        if step.name == "while":
            return self._while(step, given)
        for jaxpr in jaxprs_in_params(step.options):
            if _stands_for(jaxpr, step, given):
                return self._function(jaxpr, given)
        return self._operation(step, given)

    def _function(self, jaxpr: Jaxpr, given: Sequence[Known]) -> list[Known]:
        found: dict[Any, Known] = dict(zip(jaxpr.invars, given, strict=True))
        found |= {each: _number(each.aval.shape) for each in jaxpr.constvars}  # pyright: ignore
        self.run(_of_function(jaxpr), found)
        return [_read(found, each) for each in jaxpr.outvars]

    def _choice(self, step: Step, given: list[Known]) -> list[Known]:
        """The branch with the most multiply-adds, and of those with the most layers."""
        index, *inputs = given
        read = []
        for branch in step.options["branches"]:
            reader = _Reader(self._names)
            outputs = reader._function(branch.jaxpr, inputs)
            read.append((reader, outputs))
        largest, outputs = max(read, key=lambda each: (each[0].flops, len(each[0].layers)))
        self.add(largest)
        return [self._besides(each, index) for each in outputs]

    def _besides(self, output: Known, index: Known) -> Known:
        """An output that another value decides on."""
        if not index.of_point:
            return output
        fewest, most = min(output.fewest, index.fewest), max(output.most, index.most)
        view = UNKNOWN if index.view is not None else output.view
        return output._replace(of_point=True, fewest=fewest, most=most, view=view)

    def _loop(self, step: Step, given: list[Known]) -> list[Known]:
        options = step.options
        consts, carried = loop_sizes(options)
        fixed, carry = given[:consts], given[consts : consts + carried]
        steps: list[list[Known]] = []
        order = -1 if options["reverse"] else 1
        for k in range(options["length"])[::order]:
            slices = [
                each._replace(
                    shape=each.shape[1:],
                    view=moves.step_of(each.operand, k),
                    source=None if each.source is None else self._source(each.source, k),
                )
                for each in given[consts + carried :]
            ]
            outputs = self._function(options["jaxpr"].jaxpr, [*fixed, *carry, *slices])
            carry = outputs[:carried]
            steps.append(outputs[carried:])
        if not steps:
            return [*carry, *(_number(shape) for shape in step.shapes[carried:])]
        return [*carry, *(self._together(each) for each in zip(*steps[::order], strict=True))]

    def _together(self, steps: Sequence[Known]) -> Known:
        """The outputs of a loop's steps as one array."""
        return Known(
            (len(steps), *steps[0].shape),
            moves.stacked([each.operand for each in steps], 0),
            any(each.of_weights for each in steps),
            any(each.of_point for each in steps),
            self._source("steps", *(each.source for each in steps)),
            min(each.fewest for each in steps),
            max(each.most for each in steps),
        )

    def _while(self, step: Step, given: list[Known]) -> list[Known]:
        """One run of the body, which runs an unknown number of times."""
        tests, consts = step.options["cond_nconsts"], step.options["body_nconsts"]
        reader = _Reader(self._names)
        outputs = reader._function(step.options["body_jaxpr"].jaxpr, given[tests:])
        carried = given[tests + consts :]
        self.add(reader)
        if reader.flops:
            self.flops = nan
        known = []
        for before, after in zip(carried, outputs, strict=True):
            of_point = any(each.of_point for each in given)
            of_weights = any(each.of_weights for each in given)
            same = after.view is before.view
            now = after._replace(
                view=after.view if same else UNKNOWN, of_point=of_point, of_weights=of_weights
            )
            known.append(now._replace(fewest=nan, most=nan) if reader.layers else now)
        return known

    def _operation(self, step: Step, given: list[Known]) -> list[Known]:
        of_weights = any(each.of_weights for each in given)
        if not any(each.of_point for each in given):
            sources = self._sources(step, given) if of_weights else [None] * len(step.outputs)
            return [
                Known(shape, None, of_weights, False, source)
                for shape, source in zip(step.shapes, sources, strict=True)
            ]
        shapes = [each.shape for each in given]
        self.flops += multiply_adds(step.name, step.options, shapes, step.shapes[0])
        points = [each for each in given if each.of_point]
        fewest = _least(each.fewest for each in points)
        most = -_least(-each.most for each in points)
        if step.name in PRODUCTS:
            weights = [each for each in given if each.of_weights and not each.of_point]
            if weights:
                self.layers.add(weights[0].source)
                fewest, most = fewest + 1, most + 1
        seen = views(step.name, step.options, [each.operand for each in given], step.shapes)
        return [
            Known(shape, view, of_weights, True, None, fewest, most)
            for shape, view in zip(step.shapes, seen, strict=True)
        ]

    def _sources(self, step: Step, given: list[Known]) -> list[Hashable]:
        """Which weights the outputs are."""
        weights = [each for each in given if each.of_weights]
        outputs = range(len(step.outputs))
        if len(weights) == 1 and step.name in MOVING:
            return [weights[0].source for _ in outputs]
        sources = [each.source for each in weights]
        if len(weights) < len(given):
            # Other numbers take part, of which it is not known whether they are the same elsewhere.
            return [self._source(each, *sources) for each in step.outputs]
        options = tuple((name, str(value)) for name, value in sorted(step.options.items()))
        return [self._source(step.name, options, *sources, k) for k in outputs]


def _stands_for(jaxpr: Jaxpr, step: Step, given: Sequence[Known]) -> bool:
    """Tell whether a function within an equation is all of it, and not a reduction's, say."""
    before, after = (
        tuple(each.aval.shape for each in some)  # pyright: ignore
        for some in (jaxpr.invars, jaxpr.outvars)
    )
    return before == tuple(each.shape for each in given) and after == step.shapes


def _least(numbers: Iterable[float]) -> float:
    """The least number, or NaN where one is."""
    found = [*numbers]
    return nan if any(map(isnan, found)) else min(found)
