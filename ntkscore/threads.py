"""Threads of the linear algebra on the host."""

from contextlib import AbstractContextManager


def one_thread() -> AbstractContextManager[object]:
    """Keeps NumPy's and SciPy's linear algebra on one thread, for matrices of some hundred rows.

    Several threads wait for each other there, all the more while JAX computes on every core.

    Example:
        >>> import numpy as np
        >>> with one_thread():
        ...     print(np.linalg.eigvalsh(np.eye(3)))
        [1. 1. 1.]
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)
