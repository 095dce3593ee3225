"""Threads of the linear algebra on the host, and of programs that leave cores idle."""

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from contextvars import copy_context
from functools import lru_cache
from typing import Any, TypeVar

from attacks.lazy import jax

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], count: int
) -> Generator[Result, None, None]:
    """Results of a function of JAX's programs, in the order of its items, computed in threads.

    JAX runs what one thread asks for one by one, and few programs keep all cores busy.

    Args:
        function: of an item. JAX's precisions and device are those of the thread that asks for the
            first result.
        items: taken so many ahead of the results.
        count: of threads.
    """
    settings = {
        "jax_enable_x64": jax.enable_x64,
        "jax_default_matmul_precision": jax.default_matmul_precision,
        "jax_default_device": jax.default_device,
    }
    here = {name: getattr(jax.config, name) for name in settings}

    def call(item: Item) -> Result:
        with ExitStack() as stack:
            for name, change in settings.items():
                if getattr(jax.config, name) != here[name]:
                    stack.enter_context(change(here[name]))
            return jax.block_until_ready(function(item))

    under_way: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(count) as pool:
        for item in items:
            if len(under_way) == count:
                yield under_way.popleft().result()
            under_way.append(pool.submit(copy_context().run, call, item))
        while under_way:
            yield under_way.popleft().result()


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
