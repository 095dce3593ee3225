"""The platform that a program is traced for: this machine's, or another's."""

from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from ntkscore.lazy import jax


@lru_cache
def _chosen() -> Any:
    # JAX keeps traces apart by this value.
    return jax.make_user_context(None)


def platform() -> str:
    """`cpu`, `gpu` or `tpu`: where the program that is traced now will run.

    Example:
        >>> with traced_for("tpu"):
        ...     platform()
        'tpu'
    """
    return _chosen().value or jax.default_backend()


def is_foreign() -> bool:
    """Tell whether a program is traced for another machine."""
    return _chosen().value is not None


def traced_for(platform: str) -> AbstractContextManager[None]:
    """The context in which programs are traced for a platform: `cpu`, `gpu` or `tpu`."""
    return _chosen()(platform)
