"""JAX under its usual names, imported at its first use.

Importing JAX takes most of a second, and help, look-ups and refusals of bad input need none of it:
they need the names in registries. So a module with a registry, and what such a module imports, has
JAX from here and uses it inside functions only. Every other module imports it as usual.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any


class Lazy:
    """A module that is imported at its first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:
    import jax as jax
    import jax.numpy as jnp
    from jax import Array as Array
    from jax import lax as lax
    from jaxtyping import PyTree as PyTree
else:
    jax, jnp, lax = Lazy("jax"), Lazy("jax.numpy"), Lazy("jax.lax")

    class ArrayType(type):
        """The type of `Array`, which asks JAX what is one."""

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, jax.Array)

    class Array(metaclass=ArrayType):
        """The arrays of JAX and what it traces, for annotations."""

    PyTree = Any


@lru_cache
def as_one(function: Callable[..., Any], *static: str) -> Callable[..., Any]:
    """A function whose operations are one program, which JAX would compile one by one.

    In a program around it they are operations like any other.

    Args:
        function: of arrays.
        static: names of the arguments that are none.

    Example:
        >>> as_one(lambda x: 2 * x + 1)(3.0)
        Array(7., dtype=float32, weak_type=True)
    """
    return jax.jit(function, inline=True, static_argnames=static)
