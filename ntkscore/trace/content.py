"""A network's function, known by what it computes.

What a function captures can change from call to call: an attribute, a NumPy array, a global. Two
functions can be equal to Python and compute different things. So a program is never found again by
the function that it came from, but by the function's trace.
"""

import hashlib
import itertools
import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, jaxprs_in_params
from jaxtyping import Array, PyTree

from ntkscore.errors import InputError
from ntkscore.trace.windows import all_equations

ADDRESS = re.compile(r"0x[0-9a-f]+")
JAX, *_ = jax.__path__
Shaped = Array | jax.ShapeDtypeStruct


class Function:
    """A function of a network; equal to another one that has the same trace.

    Args:
        apply: logits of (params, points).
        params: the weights, of which the form counts.
        traces: of the function, at the shapes that the program is for.

    Attributes:
        inputs, logits: the shapes and dtypes of its arrays.
    """

    def __init__(self, apply: Callable[..., Array], params: PyTree, *traces: ClosedJaxpr) -> None:
        self.apply = apply
        self.inputs, self.logits = traces[0].in_avals, traces[0].out_avals
        self._content = jax.tree.structure(params), *map(_content, traces)
        self._hash = hash(self._content)

    def __call__(self, params: PyTree, points: Array) -> Array:
        return self.apply(params, points)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self._content == other._content

    def __hash__(self) -> int:
        return self._hash


def _shapes(arrays: Iterable[Any]) -> list[tuple[Any, Any]]:
    return [(array.shape, array.dtype) for array in arrays]


def traced(
    apply: Callable[..., Array], params: PyTree, points: Shaped
) -> tuple[Function, jax.ShapeDtypeStruct]:
    """A network's function as it is now, and the shape of its logits; nothing is computed.

    Args:
        apply: logits of (params, points).
        params: the weights, or their shapes.
        points: of the shape and dtype of those that it will be given.
    """
    if isinstance(apply, Function):
        shapes = [jax.typeof(leaf) for leaf in jax.tree.leaves(params)]
        if _shapes([*shapes, points]) == _shapes(apply.inputs):
            return apply, *apply.logits  # as it was a moment ago
    # A function of its own, since JAX remembers the trace of one that it has seen.
    once = lambda *inputs: apply(*inputs)  # noqa: E731
    trace, shape = jax.make_jaxpr(once, return_shape=True)(params, points)
    if not _has_own_derivatives(trace.jaxpr):
        return _known(Function(apply, params, trace)), shape

    def pulled_back(params: PyTree, points: Array) -> PyTree:
        logits, pullback = jax.vjp(apply, params, points)
        return pullback(logits)

    back = jax.make_jaxpr(pulled_back)(params, points)
    return _known(Function(apply, params, trace, back)), shape


_KNOWN = WeakKeyDictionary[Function, ReferenceType[Function]]()


def _known(function: Function) -> Function:
    """The one that is equal, which a program may hold, and which calls this function from now on.

    A program for other shapes traces it again, and what the former function captures may differ
    by then.
    """
    known = _KNOWN.setdefault(function, ref(function))() or function
    known.apply = function.apply
    return known


_LOGITS = WeakKeyDictionary[Callable[..., Any], dict[Any, Any]]()
"""Shapes of the logits of functions, by those of the weights and points."""


def logits_like(apply: Callable[..., Array], params: PyTree, points: Shaped) -> Any:
    """The shape of the logits of a function that nobody changes, for which it is traced once.

    Args:
        apply, params, points: as for `traced`.
    """
    try:
        known = _LOGITS.setdefault(apply, {})
    except TypeError:  # nothing may refer to it weakly
        known = {}
    leaves, tree = jax.tree.flatten((params, points))
    form = tree, *_shapes(leaves)
    if form not in known:
        known[form] = jax.eval_shape(apply, params, points)
    return known[form]


def classes_of(logits: Any, count: int) -> int:
    """The number of classes of some points' logits, arrays or their shapes; refuses anything else.

    Raises:
        InputError: if they are no logits of so many points.
    """
    shape = getattr(logits, "shape", type(logits).__name__)
    if len(shape) != 2 or shape[0] != count:
        raise InputError(
            f"logits of shape ({count}, classes) of {count} points from the model",
            shape,
            "give a function of (params, whole batch) that returns one array",
        )
    return int(shape[1])


def captured_by(apply: Callable[..., Array], params: PyTree, points: Shaped) -> str:
    """A text of the arrays that a network's function, or one within it, captures; empty for none.

    Args:
        apply, params, points: as for `traced`.
    """
    trace = jax.make_jaxpr(lambda *inputs: apply(*inputs))(params, points)
    options = [each.params for each in all_equations(trace.jaxpr)]
    inner = [each for each in jax.tree.leaves(options) if isinstance(each, ClosedJaxpr)]
    return "".join(str(_digest(array)) for each in [trace, *inner] for array in each.consts)


def _has_own_derivatives(jaxpr: Jaxpr) -> bool:
    """Whether a derivative is a rule of its own, which a trace of the function does not show.

    JAX's own rules, such as that of its ReLU, are always the same.
    """
    return any(
        not str(inner.debug_info.func_filename).startswith(JAX)
        for equation in all_equations(jaxpr)
        if equation.primitive.name.startswith("custom_")
        for inner in jaxprs_in_params(equation.params)
    )


_CONTENTS = WeakKeyDictionary[ClosedJaxpr | Jaxpr, Hashable]()
"""Of functions within functions: JAX hands out the same ones again for what is jitted."""


def _content(function: ClosedJaxpr | Jaxpr) -> Hashable:
    """What a function computes: equal for functions with the same equations and arrays."""
    if function not in _CONTENTS:
        jaxpr = function.jaxpr if isinstance(function, ClosedJaxpr) else function
        inputs = [*jaxpr.constvars, *jaxpr.invars]
        numbers = {variable: number for number, variable in enumerate(inputs)}

        def operand(variable: Var | Literal) -> Hashable:
            if isinstance(variable, Literal):
                return variable.aval, _value(variable.val)
            return numbers[variable]

        equations = []
        for equation in jaxpr.eqns:
            operands = tuple(map(operand, equation.invars))
            options = tuple((name, _value(each)) for name, each in equation.params.items())
            results = tuple(variable.aval for variable in equation.outvars)
            numbers |= zip(equation.outvars, itertools.count(len(numbers)))
            equations.append((equation.primitive.name, operands, options, results))
        _CONTENTS[function] = (
            tuple(variable.aval for variable in inputs),
            tuple(equations),
            tuple(map(operand, jaxpr.outvars)),
            tuple(map(_value, getattr(function, "consts", ()))),
        )
    return _CONTENTS[function]


def _value(value: object) -> Hashable:
    """An option of an equation, or an array, as a value that can be compared."""
    if isinstance(value, ClosedJaxpr | Jaxpr):
        return _content(value)
    if isinstance(value, tuple | list):
        return tuple(map(_value, value))
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _digest(value)
    return ADDRESS.sub("", f"{type(value).__name__} {value}")


def _digest(array: Any) -> Hashable:
    """Shape, dtype and a hash of an array's values."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    values = np.asarray(array)
    return values.shape, str(values.dtype), hashlib.blake2b(values.tobytes()).hexdigest()
