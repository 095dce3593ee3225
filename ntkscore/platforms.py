"""The platform that a program is traced for: this machine's, or another's."""

from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from attacks.lazy import jax


@lru_cache
def _context() -> Any:
    # JAX keeps traces apart by this value.
    return jax.make_user_context(None)


def _named() -> str | None:
    # With a new context JAX traces every function anew, so that there is none until it is needed.
    return _context().value if _context.cache_info().currsize else None


def platform() -> str:
    """`cpu`, `gpu` or `tpu`: where the program that is traced now will run.

    Example:
        >>> with traced_for("tpu"):
        ...     platform()
        'tpu'
    """
    return _named() or jax.default_backend()


def is_foreign() -> bool:
    """Tell whether a program is traced for another machine."""
    return _named() is not None


def traced_for(platform: str) -> AbstractContextManager[None]:
    """The context in which programs are traced for a platform: `cpu`, `gpu` or `tpu`."""
    return _context()(platform)
