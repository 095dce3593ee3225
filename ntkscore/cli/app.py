"""The command `ntkscore`."""

import gc
import platform
import sys
from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated

import typer

from ntkscore.cli.display import input_errors
from ntkscore.cli.looking import correlate, explore, fetch, lookup, predict, verify
from ntkscore.cli.options import registered
from ntkscore.cli.ranking import rank, search
from ntkscore.cli.scoring import score
from ntkscore.cli.training import choose, evaluate, train
from ntkscore.space import Space
from ntkscore.spaces import DEFAULT, space_class

COMMANDS = (
    *(score, rank, search, correlate, predict, lookup),
    *(verify, fetch, explore, train, evaluate, choose),
)
"""In the order in which help lists them."""


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """The commands, with the options of the space that the arguments name.

    Raises:
        InputError: if there is no such space.
    """
    named = None
    for word, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        if word == "--space" or word.startswith("--space="):
            named = word.partition("=")[2] or following
    return app(space_class(named or DEFAULT))


def app(space: type[Space]) -> typer.Typer:
    """The commands, with the options of a space."""
    made = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    made.callback()(_start)
    for function in COMMANDS:
        made.command()(registered(function, space))
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command `ntkscore`.

    Args:
        arguments: of the command; the process's own if left out. Without any it prints the help.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if arguments is None:
        # What a start makes stays, and by default Python looks through it five hundred times.
        gc.set_threshold(10_000)
    try:
        with input_errors():
            run = app_for(words)
        run(words, prog_name="ntkscore")
    except typer.Exit as error:
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


def _version(version: bool) -> bool:
    """Print versions and devices, and end."""
    if not version:
        return version
    import jax

    from ntkscore.results.result_set import provenance

    ours, *others = (f"{name} {number}" for name, number in provenance()["packages"].items())
    print(ours)
    print(f"Python {platform.python_version()}, {', '.join(others)}")
    print(", ".join(f"{device.platform} {device.device_kind}" for device in jax.devices()))
    raise typer.Exit


def _start(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print versions and devices.", is_eager=True, callback=_version
        ),
    ] = False,
) -> None:
    """Score neural networks by their neural tangent kernels, without training."""
