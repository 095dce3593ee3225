"""Executors: the workers of a Dask cluster are one, and any may be lost."""

from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import contextmanager
from typing import Any, TypeVar

from attacks.lazy import jax
from ntkscore.errors import InputError
from ntkscore.text import one_line

CONNECT_SECONDS = 10
RETRIES = 3
"""How often the scheduler hands a chunk to another worker when its own was lost."""
T = TypeVar("T")


@contextmanager
def connected(address: str | None) -> Iterator[Executor | None]:
    """The workers of a scheduler, such as `tcp://host:8786`; None where none is given.

    This process leaves its own GPU or TPU, if any, to a worker.
    """
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(
            "the package distributed for --scheduler",
            f"but it is not installed ({one_line(error)})",
            "run pip install 'ntkscore[cluster]'",
        ) from error
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            "a Dask scheduler that can be reached",
            f"but {address} cannot be ({one_line(error)})",
            "start it, or give the address that it prints",
        ) from error
    jax.config.update("jax_platforms", "cpu")
    try:
        yield client.get_executor(retries=RETRIES)
    finally:
        client.close(timeout=2)


def unless_lost(function: Callable[..., T], *arguments: Any) -> T:
    """What a function of an executor returns; refuses lost workers and those without a module."""
    try:
        return function(*arguments)
    except (Exception, CancelledError) as error:
        for each in (error, error.__cause__):  # Dask's own error is of what it could not unpickle
            if isinstance(each, ModuleNotFoundError):
                raise InputError(
                    "the modules of your space and functions on every worker and the scheduler",
                    f"but one lacks {each.name or one_line(each)}",
                    "install it there or put its folder on PYTHONPATH, and start them again; a "
                    "file that is named, --space FILE.py, goes to them by itself",
                ) from error
        foreign = type(error).__module__.partition(".")[0] == "distributed"
        if not (foreign or isinstance(error, BrokenExecutor | CancelledError)):
            raise
        raise InputError(
            "the executor's workers and scheduler to stay until the run ends",
            f"but they are lost ({one_line(error) or type(error).__name__})",
            "start them again and run the same command: all that was finished is on disk",
        ) from error
