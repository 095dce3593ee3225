"""Executors: the workers of a Dask cluster are one, and any may be lost."""

from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import contextmanager
from pickle import PicklingError
from typing import Any, TypeVar

from attacks.lazy import jax
from ntkscore.errors import InputError
from ntkscore.text import one_line

CONNECT_SECONDS = 10
RETRIES = 3
"""How often the scheduler hands a chunk to another worker when its own was lost."""
NOT_SENT = (PicklingError, AttributeError, TypeError)
"""What pickle and Dask raise of what they cannot send, in a message that says so."""
T = TypeVar("T")


def leave_devices() -> None:
    """Leave this process's own GPU or TPU, if any, to a worker; before JAX has used it."""
    jax.config.update("jax_platforms", "cpu")


@contextmanager
def connected(address: str | None) -> Iterator[Executor | None]:
    """The workers of a scheduler, such as `tcp://host:8786`; None where none is given."""
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
    leave_devices()
    try:
        yield client.get_executor(retries=RETRIES)
    finally:
        client.close(timeout=2)


def unless_lost(function: Callable[..., T], *arguments: Any) -> T:
    """What a function of an executor returns; refuses lost workers and what cannot be sent."""
    try:
        return function(*arguments)
    except (Exception, CancelledError) as error:
        for each in (error, error.__cause__):  # Dask's own error is of what it could not unpickle
            if isinstance(each, ModuleNotFoundError):
                raise InputError(
                    "the modules of your networks and functions on every worker and the scheduler",
                    f"but one lacks {each.name or one_line(each)}",
                    "install it there or put its folder on PYTHONPATH, and start them again; a "
                    "FILE.py that is named goes to them by itself, but not what it imports",
                ) from error
            if isinstance(each, NOT_SENT) and "pickle" in str(each):
                raise InputError(
                    "networks and functions that can be pickled, which workers are sent",
                    f"but {one_line(each)}",
                    "write functions at the top of a module that workers have too; an executor of "
                    "Dask's also sends those that are written elsewhere",
                ) from error
        foreign = type(error).__module__.partition(".")[0] == "distributed"
        if not (foreign or isinstance(error, BrokenExecutor | CancelledError)):
            raise
        raise InputError(
            "the executor's workers and scheduler to stay until the run ends",
            f"but they are lost ({one_line(error) or type(error).__name__})",
            "start them again and run the same command: all that was finished is on disk",
        ) from error
