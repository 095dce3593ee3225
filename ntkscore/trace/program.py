"""A network as a list of equations, read from a trace of its `apply` at one point.

Functions within functions are written out: the equations of jitted and rematerialised ones stand in
their place, and a loop over layers or steps (`scan`) is unrolled where weights take part in it.
Every value has the leaves of the weights that it depends on, and whether it depends on the point.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.typing import ArrayLike
from jaxtyping import Array, PyTree

from ntkscore.trace.coupling import logits_alone
from ntkscore.trace.layouts import fast_form
from ntkscore.trace.windows import function_of

LONGEST_LOOP = 16
"""Steps of a loop that is unrolled; a longer one stays an equation of its own."""
INLINED = {"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2"}
"""Operations whose inner equations stand in their place."""
Options = Mapping[str, Any]
"""Of an operation, such as a convolution's stride."""
Compute = Callable[..., Sequence[Array]]
"""From an equation's inputs to its outputs."""
Instead = Mapping[int, Compute]
"""Functions that replace equations, by place."""


def shaped(variable: Var | Literal) -> ShapedArray:
    """The shape and dtype of an input or output of JAX's own equations."""
    return cast(ShapedArray, variable.aval)


@dataclass(frozen=True, order=True)
class Value:
    """An array or number that the network is given, computes, or has in an equation itself.

    Attributes:
        number: in the order in which values are made; no two of a program have the same.
        leaves: numbers of the weights' leaves that it depends on.
        of_point: whether it depends on the point.
        constant: what stands in an equation itself, a number or an array of one; else None.
    """

    number: int
    shape: tuple[int, ...] = field(compare=False)
    # A random key has a dtype that is none of NumPy's.
    dtype: Any = field(compare=False)
    leaves: frozenset[int] = field(compare=False)
    of_point: bool = field(compare=False)
    constant: Any = field(default=None, compare=False)


class Equation(NamedTuple):
    """One operation.

    Attributes:
        name, options: of the operation, such as `dot_general`.
        function: from all inputs to the outputs.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    options: Options
    function: Compute

    @property
    def values(self) -> list[Value]:
        """The inputs that do not stand in the equation itself."""
        return [each for each in self.inputs if each.constant is None]

    @property
    def points(self) -> list[Value]:
        """The inputs that depend on the point."""
        return [each for each in self.values if each.of_point]

    @property
    def weights(self) -> list[Value]:
        """The inputs that depend on weights."""
        return [each for each in self.values if each.leaves]

    @property
    def scales(self) -> bool:
        """Whether it multiplies one value by a number, or divides it by one."""
        return len(self.values) == 1 and (
            self.name == "mul" or (self.name == "div" and self.inputs[1].constant is not None)
        )


class Program:
    """The equations of a network at one point.

    Args:
        apply: logits of (params, points).
        point: of the shape and dtype of one point.
        fixed: places of leaves that count as constants.
        inner: whether the point is what other weights made, as in a piece of a network.

    Raises:
        NotAlone: if the network does not take a batch of one point.

    Attributes:
        equations: in the order in which they can be computed.
        leaves: the values of the weights' leaves, as `jax.tree.leaves` has them.
        paths: their paths.
        point: the point's value.
        logits: the value of the logits (o,).
        constants: arrays that the network closes over, by value.
    """

    def __init__(
        self,
        apply: Callable[[PyTree, Array], Array],
        params: PyTree,
        point: Array | jax.ShapeDtypeStruct,
        fixed: frozenset[int] = frozenset(),
        inner: bool = False,
    ) -> None:
        paths, leaves = zip(*jax.tree_util.tree_leaves_with_path(params), strict=True)

        def one(leaves: Sequence[Array], point: Array) -> Array:
            tree = jax.tree.structure(params)
            return logits_alone(apply, jax.tree.unflatten(tree, leaves), point)

        self._read(jax.make_jaxpr(one)(list(leaves), point), paths, fixed, inner)

    def _read(
        self, closed: ClosedJaxpr, paths: tuple[tuple, ...], fixed: frozenset[int], inner: bool
    ) -> None:
        """Read the equations of a function of leaves and a point."""
        self.source = closed, paths, fixed, inner
        self.paths = paths
        self.equations: list[Equation] = []
        self.constants: dict[Value, Array] = {}
        self._numbers = count()
        self._made_by: dict[Value, int] = {}
        *weights, last = closed.jaxpr.invars
        self.leaves = tuple(
            self._new(shaped(each), frozenset([k]) - fixed, False) for k, each in enumerate(weights)
        )
        self.point = self._new(shaped(last), frozenset([-1] if inner else []), True)
        (self.logits,) = self._inline(closed, [*self.leaves, self.point])

    def _new(
        self,
        like: Array | ShapedArray,
        leaves: frozenset[int] = frozenset(),
        of_point: bool = False,
        constant: Any = None,
    ) -> Value:
        return Value(next(self._numbers), like.shape, like.dtype, leaves, of_point, constant)

    def _constant(self, array: ArrayLike) -> Value:
        """An array that the network closes over."""
        if not isinstance(array, Tracer):
            # An outer trace would make a tracer of it, which stands for one architecture's arrays.
            with jax.ensure_compile_time_eval():
                array = jnp.asarray(array)
        numeric = not jnp.issubdtype(array.dtype, jax.dtypes.extended)
        if array.size == 1 and numeric and not isinstance(array, Tracer):
            # NumPy's, since a comparison with one of JAX's is a tracer under an outer trace.
            return self._new(array, constant=np.asarray(array))
        value = self._new(array)
        self.constants[value] = array
        return value

    def known(self, value: Value) -> Any:
        """The number or array that a value is for all networks of a trace; None for others."""
        array = self.constants.get(value, value.constant)
        return None if isinstance(array, Tracer) else array

    def _inline(self, closed: ClosedJaxpr, inputs: Sequence[Value]) -> list[Value]:
        """Append a function's equations; return its outputs."""
        values: dict[Var, Value] = dict(zip(closed.jaxpr.invars, inputs, strict=True))
        for variable, constant in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            values[variable] = self._constant(constant)

        def value(variable: Var | Literal) -> Value:
            if isinstance(variable, Literal):
                return self._new(shaped(variable), constant=variable.val)
            return values[variable]

        for equation in closed.jaxpr.eqns:
            outputs = self._append(equation, closed.jaxpr, [*map(value, equation.invars)])
            values |= zip(equation.outvars, outputs, strict=True)
        return [*map(value, closed.jaxpr.outvars)]

    def _append(self, equation: JaxprEqn, jaxpr: Jaxpr, inputs: list[Value]) -> list[Value]:
        name, options = equation.primitive.name, equation.params
        if name in INLINED:
            inner = options["jaxpr" if "jaxpr" in options else "call_jaxpr"]
            closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
            return self._inline(closed, inputs)
        dtypes = {shaped(variable).dtype for variable in (*equation.invars, *equation.outvars)}
        function = fast_form(function_of(equation, jaxpr), name, options, dtypes)
        known = [constant for each in inputs if (constant := self.known(each)) is not None]
        small = all(shaped(variable).size == 1 for variable in equation.outvars)
        if inputs and len(known) == len(inputs) and small:
            # Numbers that functions are given are read as if they stood there themselves.
            with jax.ensure_compile_time_eval():
                return [self._constant(out) for out in function(*known)]
        if name == "cond" and inputs[0].constant is not None:
            return self._inline(options["branches"][int(inputs[0].constant)], inputs[1:])
        if name == "scan" and self._unrolls(options["length"], inputs):
            return self._unroll(options, inputs)
        return self._add(equation, inputs, equation.outvars, function)

    def _add(
        self, like: JaxprEqn, inputs: Sequence[Value], outputs: Sequence[Var], function: Compute
    ) -> list[Value]:
        """Append an equation like one of JAX's; return its outputs."""
        leaves = frozenset[int]().union(*(each.leaves for each in inputs))
        of_point = any(each.of_point for each in inputs)
        new = tuple(self._new(shaped(variable), leaves, of_point) for variable in outputs)
        self._made_by |= dict.fromkeys(new, len(self.equations))
        name, options = like.primitive.name, like.params
        self.equations.append(Equation(name, tuple(inputs), new, options, function))
        return [*new]

    def _unrolls(self, length: int, inputs: Sequence[Value]) -> bool:
        """Whether a loop of this length is written out."""
        of_both = any(each.leaves for each in inputs) and any(each.of_point for each in inputs)
        return of_both and 0 < length <= LONGEST_LOOP

    def _unroll(self, options: Options, inputs: list[Value]) -> list[Value]:
        """Write out a loop, each step with its own slice of what the loop goes over."""
        if "num_consts" in options:  # JAX below 0.11
            consts, carried = options["num_consts"], options["num_carry"]
        else:
            consts, carried = map(len, options["ft_in"].unpack()[:2])
        fixed, carry = inputs[:consts], inputs[consts : consts + carried]
        steps: list[list[Value]] = []
        order = -1 if options["reverse"] else 1
        for step in range(options["length"])[::order]:
            take = lambda a, k=step: lax.index_in_dim(a, k, 0, False)  # noqa: E731
            slices = [self._apply(take, array) for array in inputs[consts + carried :]]
            outputs = self._inline(options["jaxpr"], [*fixed, *carry, *slices])
            carry = outputs[:carried]
            steps.append(outputs[carried:])
        stack = lambda *arrays: jnp.stack(arrays)  # noqa: E731
        return [*carry, *(self._apply(stack, *each) for each in zip(*steps[::order], strict=True))]

    def _apply(self, function: Callable[..., Array], *inputs: Value) -> Value:
        """Append the equations of a function of arrays."""
        like = [
            jax.ShapeDtypeStruct(each.shape, each.dtype)
            if each.constant is None
            else jnp.asarray(each.constant)
            for each in inputs
        ]
        return self._inline(jax.make_jaxpr(function)(*like), inputs)[0]

    def place(self, value: Value) -> int | None:
        """The place of the equation that a value comes from; None for those that are given."""
        return self._made_by.get(value)

    def maker(self, value: Value) -> Equation | None:
        """The equation that a value comes from; None for those that are given."""
        place = self.place(value)
        return None if place is None else self.equations[place]

    def before(self, value: Value, names: Collection[str]) -> Value:
        """The value that operations of some names, which take no other value, start from."""
        while (equation := self.maker(value)) and equation.name in names:
            if len(equation.values) != 1:
                break
            (value,) = equation.values
        return value

    @cached_property
    def users(self) -> dict[Value, list[int]]:
        """Places of the equations that take a value."""
        found: dict[Value, list[int]] = {}
        for place in self.live:
            for value in dict.fromkeys(self.equations[place].values):
                found.setdefault(value, []).append(place)
        return found

    @cached_property
    def live(self) -> list[int]:
        """Places of the equations that the logits depend on."""
        return self.needed([self.logits])

    @cached_property
    def point_equations(self) -> dict[int, Equation]:
        """Of these, the equations that the point takes part in, by place."""
        places = (place for place in self.live if self.equations[place].outputs[0].of_point)
        return {place: self.equations[place] for place in places}

    def needed(self, wanted: Collection[Value]) -> list[int]:
        """Places of the equations that some values come from, in order."""
        return self.back(wanted, lambda value, equation: True)[1]

    def back(
        self, values: Collection[Value], through: Callable[[Value, Equation], bool]
    ) -> tuple[set[Value], list[int]]:
        """The values at which the way back from some values ends, and the places on it.

        Args:
            through: whether it goes on, from a value and the equation that makes it.
        """
        pending, ends, places = [*values], set[Value](), set[int]()
        while pending:
            value = pending.pop()
            place = self.place(value)
            if place is None or not through(value, self.equations[place]):
                ends.add(value)
            elif place not in places:
                places.add(place)
                pending += self.equations[place].values
        return ends, sorted(places)

    def derive(
        self,
        leaves: Sequence[Array],
        instead: Instead | None = None,
        wanted: Collection[Value] | None = None,
    ) -> dict[Value, Array]:
        """The values that no point takes part in, from the weights' leaves.

        Args:
            instead: functions that replace equations.
            wanted: values to compute; all if left out.
        """
        arrays = {**self.constants, **dict(zip(self.leaves, leaves, strict=True))}
        everything = [place for place in self.live if place not in self.point_equations]
        for place in everything if wanted is None else self.needed(wanted):
            equation = self.equations[place]
            compute = (instead or {}).get(place, equation.function)
            outputs = compute(*(value_of(arrays, each) for each in equation.inputs))
            arrays |= zip(equation.outputs, outputs, strict=True)
        return arrays

    def run(
        self,
        derived: Mapping[Value, Array],
        point: Array,
        zeros: Mapping[Value, Array] | None = None,
        instead: Instead | None = None,
        stop_at: Collection[Value] = (),
    ) -> dict[Value, Array]:
        """All values at a point.

        Args:
            derived: the values that no point takes part in.
            zeros: arrays that are added to values.
            instead: functions that replace equations.
            stop_at: values through which no gradient passes, except to their zeros.
        """
        arrays = {**derived, self.point: point}
        before: dict[Value, Array] = {}
        for place, equation in self.point_equations.items():
            compute = (instead or {}).get(place, equation.function)
            outputs = compute(*(value_of(arrays, each) for each in equation.inputs))
            for value, array in zip(equation.outputs, outputs, strict=True):
                before[value] = array
                start = lax.stop_gradient(array) if value in stop_at else array
                arrays[value] = start + zeros[value] if zeros and value in zeros else start
        return {**arrays, **{value: before[value] for value in stop_at}}


def value_of(arrays: Mapping[Value, Array], value: Value) -> Array:
    """A value's array, or the constant itself."""
    return arrays[value] if value.constant is None else value.constant
