"""The optional door to neural-tangents, which current JAX would otherwise refuse to open.

The last release of neural-tangents (0.6.5, 2023) imports names that JAX has since moved to
`jax.extend.core` or dropped. Its infinite-width kernels, its Jacobian contraction and its
NTK-vector products still work once it is imported; its structured derivatives do not. So the
missing names are lent to JAX for the length of that one import, and JAX is then as it was.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import jax.core
import jax.extend.core
import jax.interpreters.ad

from ntkscore.errors import InputError

MOVED = ("Jaxpr", "JaxprEqn", "Literal", "Primitive", "Var")
"""Names that neural-tangents takes from `jax.core` and that `jax.extend.core` has now."""


def _safe_map(function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
    return [function(*row) for row in zip(*arguments, strict=True)]


def _safe_zip(*arguments: Iterable[Any]) -> list[tuple[Any, ...]]:
    return list(zip(*arguments, strict=True))


@contextmanager
def _lent_names() -> Iterator[None]:
    """JAX with the names that neural-tangents misses; what JAX has itself is left alone."""
    wanted = [(jax.core, name, getattr(jax.extend.core, name)) for name in MOVED]
    # It is only a key of a table of rules: nothing binds this primitive any more.
    wanted.append((jax.interpreters.ad, "zeros_like_p", jax.extend.core.Primitive("zeros_like")))
    # `vars`, because `hasattr` on a name that JAX deprecates would warn.
    lent = [entry for entry in wanted if entry[1] not in vars(entry[0])]
    for module, name, value in lent:
        setattr(module, name, value)
    util = ModuleType("jax.util")
    vars(util).update(safe_map=_safe_map, safe_zip=_safe_zip)
    lends_util = importlib.util.find_spec(util.__name__) is None
    if lends_util:
        sys.modules[util.__name__] = util
    try:
        yield
    finally:
        for module, name, _ in lent:
            delattr(module, name)
        if lends_util:
            del sys.modules[util.__name__]


def neural_tangents() -> ModuleType:
    """The module `neural_tangents`, imported so that it works on current JAX.

    Raises:
        InputError: if it, or TensorFlow, which it imports, is not installed.

    Source: Novak et al. (2020), "Neural Tangents: fast and easy infinite neural networks".
    """
    try:
        with _lent_names():
            import neural_tangents as module  # type: ignore[import-not-found]
    except ModuleNotFoundError as error:
        raise InputError(
            "neural-tangents to be installed",
            f"no module named {error.name!r}",
            "run pip install 'ntkscore[tangents]'",
        ) from error
    return module
