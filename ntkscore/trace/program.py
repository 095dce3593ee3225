"""A network as a list of equations, read from a trace of its `apply` at one point.

Functions within functions are written out: the equations of jitted and rematerialised ones stand in
their place, and a loop over layers or steps (`scan`) is unrolled where weights take part in it. Of
every value it is known which leaves of the weights it comes from, and whether the point is in it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array, PyTree

LONGEST_LOOP = 16
"""Steps of a loop that is unrolled; a longer one stays an equation of its own."""
Value = int
"""A value's place in `Program.values`."""
Instead = Mapping[int, Callable[..., Any]]
"""Functions of an equation's inputs that take its place."""


class Constant(NamedTuple):
    """A number or array that stands in an equation itself."""

    value: Any


class Equation(NamedTuple):
    """One operation.

    Attributes:
        name: of the operation, such as `dot_general`.
        inputs: values, or constants.
        outputs: values.
        options: such as a convolution's stride.
        function: from the inputs that are values to the outputs.
    """

    name: str
    inputs: tuple[Value | Constant, ...]
    outputs: tuple[Value, ...]
    options: Mapping[str, Any]
    function: Callable[..., list[Array]]

    def __call__(self, *given: Any) -> list[Array]:
        """The outputs, from all inputs."""
        return self.function(*given)

    @property
    def values(self) -> list[Value]:
        """The inputs that are values."""
        return [each for each in self.inputs if not isinstance(each, Constant)]


class Kind(NamedTuple):
    """What is known of a value.

    Attributes:
        shape, dtype: of the array.
        leaves: places of the weights' leaves that it depends on.
        of_point: whether it depends on the point.
    """

    shape: tuple[int, ...]
    dtype: Any
    leaves: frozenset[int]
    of_point: bool

    @property
    def of_weights_alone(self) -> bool:
        return bool(self.leaves) and not self.of_point

    @property
    def differentiable(self) -> bool:
        return jnp.issubdtype(self.dtype, jnp.inexact)


class Program:
    """The equations of a network at one point.

    Args:
        apply: logits of (params, points).
        params: the weights.
        point: of the shape and dtype of one point.
        fixed: places of leaves that count as constants.

    Attributes:
        values: what is known of each value.
        equations: in the order in which they can be computed.
        leaves: the values of the weights' leaves, as `jax.tree.leaves` has them.
        paths: their paths.
        point: the point's value.
        logits: the value of the logits (o,); or a constant where they depend on nothing.
        constants: arrays that the network closes over, by value.
    """

    def __init__(
        self,
        apply: Callable[[PyTree, Array], Array],
        params: PyTree,
        point: Any,
        fixed: frozenset[int] = frozenset(),
    ) -> None:
        self.values: list[Kind] = []
        self.equations: list[Equation] = []
        self.constants: dict[Value, Array] = {}
        self._made_by: dict[Value, int] = {}
        paths, leaves = zip(*jax.tree_util.tree_leaves_with_path(params), strict=True)
        self.paths: tuple[tuple, ...] = paths
        tree = jax.tree.structure(params)

        def one(leaves: Sequence[Array], point: Array) -> Array:
            return apply(jax.tree.unflatten(tree, leaves), point[None])[0]

        closed = jax.make_jaxpr(one)(list(leaves), point)
        *weights, last = closed.jaxpr.invars
        self.leaves = tuple(
            self._new(each.aval, frozenset([k]) - fixed, False) for k, each in enumerate(weights)
        )
        self.point = self._new(last.aval, frozenset(), True)
        (self.logits,) = self._inline(closed, [*self.leaves, self.point])

    def _new(self, like: Any, leaves: frozenset[int], of_point: bool) -> Value:
        self.values.append(Kind(like.shape, like.dtype, leaves, of_point))
        return len(self.values) - 1

    def _constant(self, array: Any) -> Value | Constant:
        """An array that the network closes over."""
        array = jnp.asarray(array)
        numeric = not jnp.issubdtype(array.dtype, jax.dtypes.extended)
        if array.size == 1 and numeric and not isinstance(array, Tracer):
            return Constant(array)
        value = self._new(array, frozenset(), False)
        self.constants[value] = array
        return value

    def _known(self, atom: Value | Constant) -> Constant | None:
        """The number or array that stands there, if it is one."""
        if isinstance(atom, Constant):
            return atom
        array = self.constants.get(atom)
        return None if array is None or isinstance(array, Tracer) else Constant(array)

    def _inline(
        self, closed: ClosedJaxpr, given: Sequence[Value | Constant]
    ) -> list[Value | Constant]:
        """Append a function's equations; its outputs."""
        known: dict[Any, Value | Constant] = dict(zip(closed.jaxpr.invars, given, strict=True))
        for variable, constant in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            known[variable] = self._constant(constant)

        def read(atom: Any) -> Value | Constant:
            return Constant(atom.val) if isinstance(atom, Literal) else known[atom]

        for equation in closed.jaxpr.eqns:
            inputs = [read(atom) for atom in equation.invars]
            outputs = self._append(equation, closed.jaxpr, inputs)
            known |= zip(equation.outvars, outputs, strict=True)
        return [read(atom) for atom in closed.jaxpr.outvars]

    def _append(
        self, equation: Any, jaxpr: Jaxpr, inputs: list[Value | Constant]
    ) -> list[Value | Constant]:
        name, options = equation.primitive.name, equation.params
        if name in ("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2"):
            inner = options.get("jaxpr", options.get("call_jaxpr"))
            closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
            return self._inline(closed, inputs)
        kinds = [self.values[each] for each in inputs if not isinstance(each, Constant)]
        given = [self._known(each) for each in inputs]
        small = all(variable.aval.size == 1 for variable in equation.outvars)
        if inputs and None not in given and small:
            # Numbers that functions are given are read as if they stood there themselves.
            with jax.ensure_compile_time_eval():
                return [Constant(out) for out in _function(equation, jaxpr)(*map(_value, given))]
        if name == "cond" and isinstance(inputs[0], Constant):
            return self._inline(options["branches"][int(inputs[0].value)], inputs[1:])
        leaves = frozenset[int]().union(*(kind.leaves for kind in kinds))
        of_point = any(kind.of_point for kind in kinds)
        if name == "scan" and leaves and of_point and options["length"] <= LONGEST_LOOP:
            return self._unroll(options, inputs)
        outputs = [self._new(variable.aval, leaves, of_point) for variable in equation.outvars]
        place = len(self.equations)
        self._made_by |= dict.fromkeys(outputs, place)
        function = _function(equation, jaxpr)
        made = Equation(name, tuple(inputs), tuple(outputs), options, function)
        self.equations.append(made)
        return list(outputs)

    def _unroll(
        self, options: Mapping[str, Any], inputs: list[Value | Constant]
    ) -> list[Value | Constant]:
        """Write out a loop, each step with its own part of what the loop goes over."""
        consts, carried = options["num_consts"], options["num_carry"]
        fixed, carry = inputs[:consts], inputs[consts : consts + carried]
        over = inputs[consts + carried :]
        steps = range(options["length"])
        handed_out: list[list[Value | Constant]] = []
        for step in reversed(steps) if options["reverse"] else steps:
            own = [self._apply(lambda a, k=step: lax.index_in_dim(a, k, 0, False), a) for a in over]
            out = self._inline(options["jaxpr"], [*fixed, *carry, *own])
            carry = out[:carried]
            handed_out.append(out[carried:])
        if options["reverse"]:
            handed_out.reverse()
        stack = lambda *steps: jnp.stack(steps)  # noqa: E731
        return [*carry, *(self._apply(stack, *each) for each in zip(*handed_out, strict=True))]

    def _apply(self, function: Callable[..., Array], *inputs: Value | Constant) -> Value | Constant:
        """Append the equations of a function of arrays."""
        like = [
            jnp.asarray(each.value)
            if isinstance(each, Constant)
            else jax.ShapeDtypeStruct(self.values[each].shape, self.values[each].dtype)
            for each in inputs
        ]
        return self._inline(jax.make_jaxpr(function)(*like), inputs)[0]

    def maker(self, value: Value) -> Equation | None:
        """The equation that a value comes from; None for leaves, constants and the point."""
        place = self.place(value)
        return None if place is None else self.equations[place]

    def place(self, value: Value) -> int | None:
        """The place of the equation that a value comes from, likewise."""
        return self._made_by.get(value)

    @cached_property
    def users(self) -> dict[Value, list[int]]:
        """Places of the equations that take a value."""
        found: dict[Value, list[int]] = {}
        for place in sorted(self.live):
            for value in dict.fromkeys(self.equations[place].values):
                found.setdefault(value, []).append(place)
        return found

    @cached_property
    def live(self) -> frozenset[int]:
        """Places of the equations that the logits depend on."""
        wanted = {self.logits}
        places = []
        for place in reversed(range(len(self.equations))):
            equation = self.equations[place]
            if not wanted.isdisjoint(equation.outputs):
                wanted |= set(equation.values)
                places.append(place)
        return frozenset(places)

    def of_point(self) -> Iterator[tuple[int, Equation]]:
        """The equations that the point takes part in and the logits depend on, by place."""
        for place in self._with_points:
            yield place, self.equations[place]

    def derive(
        self,
        leaves: Sequence[Array],
        instead: Instead | None = None,
        wanted: Collection[Value] | None = None,
    ) -> dict[Value, Array]:
        """The values that no point takes part in, from the weights' leaves.

        Args:
            leaves: as `jax.tree.leaves` has them.
            instead: functions that replace equations, by place.
            wanted: values that are asked for; all if left out.
        """
        found = {**self.constants, **dict(zip(self.leaves, leaves, strict=True))}
        for place in self._without_points if wanted is None else self.needed(wanted):
            equation = self.equations[place]
            compute = (instead or {}).get(place, equation)
            given = [read(found, each) for each in equation.inputs]
            found |= zip(equation.outputs, compute(*given), strict=True)
        return found

    def run(
        self,
        found: Mapping[Value, Array],
        point: Array,
        zeros: Mapping[Value, Array] | None = None,
        instead: Instead | None = None,
        cut: Collection[Value] = (),
    ) -> dict[Value, Array]:
        """All values at a point.

        Args:
            found: values that no point takes part in.
            point: the point.
            zeros: what is added to values.
            instead: functions that replace equations, by place.
            cut: values from which no gradient goes further back, but to their zeros.
        """
        known = {**found, self.point: point}
        before: dict[Value, Array] = {}
        for place, equation in self.of_point():
            given = [read(known, each) for each in equation.inputs]
            out = (instead or {}).get(place, equation)(*given)
            for value, array in zip(equation.outputs, out, strict=True):
                before[value] = array
                start = lax.stop_gradient(array) if value in cut else array
                known[value] = start + zeros[value] if zeros and value in zeros else start
        return {**known, **{value: before[value] for value in cut}}

    @cached_property
    def _with_points(self) -> list[int]:
        return [k for k in sorted(self.live) if self._takes_point(self.equations[k])]

    @cached_property
    def _without_points(self) -> list[int]:
        """Places of the equations that no point takes part in."""
        return [k for k in sorted(self.live) if not self._takes_point(self.equations[k])]

    def _takes_point(self, equation: Equation) -> bool:
        return self.values[equation.outputs[0]].of_point

    def needed(self, wanted: Collection[Value]) -> list[int]:
        """Places of the equations that some values come from, in order."""
        pending, places = list(wanted), set[int]()
        while pending:
            place = self._made_by.get(pending.pop())
            if place is not None and place not in places:
                places.add(place)
                pending += self.equations[place].values
        return sorted(places)


def _function(equation: Any, jaxpr: Jaxpr) -> Callable[..., list[Array]]:
    """An equation as a function of its inputs, in the order in which they stand."""
    primitive, options = equation.primitive, equation.params
    if not any("jaxpr" in name for name in options):

        def bind(*given: Any) -> list[Array]:
            out = primitive.bind(*given, **options)
            return list(out) if primitive.multiple_results else [out]

        return bind
    # What holds functions of its own, such as a rule for its derivative, is left to JAX as a whole.
    places = {v: k for k, v in enumerate(equation.invars) if not isinstance(v, Literal)}
    alone = jaxpr.replace(
        constvars=[],
        invars=[*places],
        outvars=equation.outvars,
        eqns=[equation],
        debug_info=jaxpr.debug_info.with_unknown_names(),
    )
    function = jaxpr_as_fun(ClosedJaxpr(alone, ()))
    return lambda *given: list(function(*(given[k] for k in places.values())))


def _value(constant: Constant | None) -> Any:
    assert constant is not None
    return constant.value


def read(found: Mapping[Value, Any], atom: Value | Constant) -> Any:
    """A value, or the constant itself."""
    return atom.value if isinstance(atom, Constant) else found[atom]
