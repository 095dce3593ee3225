"""The command `ntkscore`."""

import gc
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import ENOSPC
from itertools import zip_longest
from typing import Annotated

import typer

from ntkscore.cli.display import input_errors
from ntkscore.cli.evaluation import evaluate
from ntkscore.cli.looking import correlate, explore, fetch, lookup, predict, verify
from ntkscore.cli.options import registered
from ntkscore.cli.ranking import fits, measure_latency, rank, search
from ntkscore.cli.scoring import score
from ntkscore.cli.training import choose, train
from ntkscore.errors import InputError
from ntkscore.run import devices
from ntkscore.space import Space
from ntkscore.spaces import DEFAULT, is_file, space_class

COMMANDS = (
    *(score, rank, search, correlate, predict, explore, lookup),
    *(train, evaluate, choose, measure_latency, fits, fetch, verify),
)
"""In the order in which help lists them."""


SCORED = {"--cells", "--out", "--target"}
"""Options that `rank` had when it also scored."""
OF_A_RANKING = ("--by", "--reference", "--top", "--plot")
"""Those that `rank` has kept."""
RENAMED = {"--reference": "--among", "--rho": "--at-rho"}
"""Names of before, of options to look at a run with."""
TAKE_A_FILE = ("score", "fits", "measure-latency")
"""Commands that take a file of networks of one's own, which is a space too."""


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """The commands, with the options of the space that the arguments name."""
    named = None
    command, *words = arguments
    if command == "rank" and SCORED.intersection(word.partition("=")[0] for word in words):
        raise InputError(
            "`rank` of a run that `score` made", "options of before", f"run: {_said_today(words)}"
        )
    file = None
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word == "--space" or word.startswith("--space="):
            named = word.partition("=")[2] or following
        elif command in TAKE_A_FILE and is_file(word):
            file = word
    if file is not None and named not in (None, file):
        raise InputError(
            f"no --space beside {file}, whose networks are one", named, "leave one of them out"
        )
    return app(space_class(named or file or DEFAULT))


def _said_today(words: Sequence[str]) -> str:
    """What is written today for a `rank` as it was before version 0.4."""
    options: list[list[str]] = []
    """Each as it was written: its flag, perhaps its value."""
    directory = None
    for word in words:
        if word.startswith("--"):
            options.append([word])
        elif options and len(options[-1]) == 1 and "=" not in options[-1][0]:
            options[-1].append(word)
        else:
            directory = word
    values = {_flag(each): each[-1].removeprefix(f"{_flag(each)}=") for each in options}
    score = [values.get("--cells", "distinct")]
    rank, looks = [directory or values.get("--out", "FOLDER")], []
    for flag, *value in options:
        name = _flag([flag])
        today = [flag.replace(name, RENAMED.get(name, name), 1), *value]
        looks += today if name != "--cells" else []
        if name in OF_A_RANKING:
            rank += today
        elif name not in ("--cells", "--target"):
            score += [flag, *value]
    commands = [["score", *score], ["rank", *rank]]
    if directory is not None:
        commands = [["rank", directory, *filter(None, [values.get("--cells")]), *looks]]
    elif "--target" in values:
        commands = [["fits", values["--target"], *score]]
    return " && ".join(shlex.join(["ntkscore", *each]) for each in commands)


def _flag(option: Sequence[str]) -> str:
    """The flag of an option as it was written."""
    return option[0].partition("=")[0]


def app(space: type[Space]) -> typer.Typer:
    """The commands, with the options of a space."""
    made = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    made.callback()(_start)
    for function in COMMANDS:
        made.command()(registered(function, space))
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command `ntkscore`, by default with the process's own arguments."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    devices.run_alone()
    if arguments is None:
        # What a start makes stays, and by default Python looks through it five hundred times.
        gc.set_threshold(10_000)
    try:
        with input_errors(), _on_a_full_disk():
            try:
                app_for(words)(words, prog_name="ntkscore")
            finally:
                sys.stdout.flush()  # A full disk shows here at the latest.
    except typer.Exit as error:
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


@contextmanager
def _on_a_full_disk() -> Iterator[None]:
    """End with a sentence where what is printed finds no room."""
    try:
        yield
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        # Python writes what is left once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise InputError("room for what is printed", error, "write to another disk") from error


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
