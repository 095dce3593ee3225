"""Where output goes: the forms of what is printed on stdout, and messages on stderr."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

import typer
from rich.console import Console

from ntkscore.errors import InputError

stderr = Console(stderr=True, highlight=False)


class Format(StrEnum):
    """Forms in which a command prints on stdout."""

    table = "table"
    json = "json"
    csv = "csv"


@contextmanager
def input_errors() -> Iterator[None]:
    """End on bad input with its one sentence and exit code 2."""
    try:
        yield
    except InputError as error:
        text = str(error).replace("[", r"\[")
        stderr.print(f"[red]error:[/red] {text}", soft_wrap=True)
        raise typer.Exit(2) from None


@contextmanager
def interruptible(left: Callable[[], str]) -> Iterator[None]:
    """End on an interrupt with exit code 130, and say what is on disk.

    Args:
        left: what the command leaves, as the beginning of a sentence.
    """

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        stderr.print(f"stopped; {left()}, and the same command goes on from there")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
