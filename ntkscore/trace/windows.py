"""Sums over windows, kept from a simplification of XLA's that computes some of them wrongly.

XLA on CPUs takes a sum over windows of an array of length one that was padded for that array's
entry everywhere: `cumsum(pad(a, 2, 2))` is all ones where zeros belong before the entry. Running
sums and poolings are such sums, and a gradient through a slice is such a padding. A barrier before
and behind each of them, forward and backward, keeps the two operations apart
(https://github.com/jax-ml/jax/issues/39120).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    jaxpr_as_fun,
    jaxprs_in_params,
)
from jax.typing import ArrayLike
from jaxtyping import Array, PyTree

WINDOWS = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "reduce_window")
"""How the names of operations over windows begin."""


def all_equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """The equations of a function, each followed by those of the functions within it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from all_equations(inner)


def has_windows(jaxpr: Jaxpr) -> bool:
    """Whether a function has an operation over windows, or one within it has."""
    return any(each.primitive.name.startswith(WINDOWS) for each in all_equations(jaxpr))


def function_of(equation: JaxprEqn, jaxpr: Jaxpr) -> Callable[..., list[Array]]:
    """A function's equation as a function of all its inputs; windows are kept from each other."""
    primitive, options = equation.primitive, _options_apart(equation.params)
    if not any("jaxpr" in name for name in options):

        def bind(*inputs: ArrayLike) -> list[Array]:
            out = primitive.bind(*inputs, **options)
            return list(out) if primitive.multiple_results else [out]

        return _apart(bind) if primitive.name.startswith(WINDOWS) else bind
    # What holds functions of its own, such as a rule for its derivative, is left to JAX as a whole.
    places = {v: k for k, v in enumerate(equation.invars) if not isinstance(v, Literal)}
    alone = jaxpr.replace(
        constvars=[],
        invars=[*places],
        outvars=equation.outvars,
        eqns=[equation.replace(params=options)],
        debug_info=jaxpr.debug_info.with_unknown_names(),
    )
    function = jaxpr_as_fun(ClosedJaxpr(alone, ()))
    return lambda *inputs: list(function(*(inputs[k] for k in places.values())))


def _apart(function: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    return lambda *inputs: list(
        lax.optimization_barrier(function(*lax.optimization_barrier(inputs)))
    )


def _options_apart(options: Mapping[str, Any]) -> dict[str, Any]:
    """An equation's options, with the windows of the functions among them kept apart."""

    def changed(option: Any) -> Any:
        if isinstance(option, tuple):
            # Some are tuples with names.
            return getattr(type(option), "_make", tuple)(map(changed, option))
        if isinstance(option, ClosedJaxpr) and has_windows(option.jaxpr):
            return jax.make_jaxpr(lambda *inputs: _evaluate(option, inputs))(*option.in_avals)
        return option

    return {name: changed(option) for name, option in options.items()}


def with_windows_apart(apply: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """A function in which every sum over windows is kept apart; as it is where there is none."""

    def run(*inputs: PyTree) -> PyTree:
        closed, shape = jax.make_jaxpr(apply, return_shape=True)(*inputs)
        if not has_windows(closed.jaxpr):
            return apply(*inputs)
        outputs = _evaluate(closed, jax.tree.leaves(inputs))
        return jax.tree.unflatten(jax.tree.structure(shape), outputs)

    return run


def _evaluate(closed: ClosedJaxpr, inputs: Sequence[Array]) -> list[ArrayLike]:
    """The outputs of a function, computed equation by equation."""
    jaxpr = closed.jaxpr
    arrays: dict[Var, ArrayLike] = dict(zip(jaxpr.invars, inputs, strict=True))
    arrays |= zip(jaxpr.constvars, closed.consts, strict=True)

    def read(atom: Var | Literal) -> ArrayLike:
        return atom.val if isinstance(atom, Literal) else arrays[atom]

    for equation in jaxpr.eqns:
        outputs = function_of(equation, jaxpr)(*map(read, equation.invars))
        arrays |= zip(equation.outvars, outputs, strict=True)
    return list(map(read, jaxpr.outvars))
