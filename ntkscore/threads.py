"""Threads of the linear algebra on the host."""

import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any


def one_thread() -> AbstractContextManager[object]:
    """Keeps NumPy's and SciPy's linear algebra on one thread, for matrices of some hundred rows.

    Several threads wait for each other there, all the more while JAX computes on every core.

    Example:
        >>> import numpy as np
        >>> with one_thread():
        ...     print(np.linalg.eigvalsh(np.eye(3)))
        [1. 1. 1.]
    """
    # SciPy brings a library of its own.
    return _libraries("scipy.linalg" in sys.modules).limit(limits=1)


@lru_cache
def _libraries(scipy: bool) -> Any:
    """The libraries of linear algebra in this process; looking for them takes 10 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
