"""Command-line options made from the fields of a config and of the spaces.

A command's parameter of a type in `MAKERS`, such as `Config` or `Space`, stands for all options
that make one.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from cells.space import Space, options
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.cli.output import Format, input_errors
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.spaces import SPACES, space_class
from ntkscore.training.recipe import Recipe

SCORING = "How networks are scored"
TRAINING = "How networks are trained"
NETWORKS = "Search space"
MACHINE = "Devices and processes"

_NAMES = "of NAS-Bench-201 by index (2581), six digits (323133) or genotype string."
Cell = Annotated[str, typer.Argument(help=f"Architecture; {_NAMES}", show_default=False)]
Cells = Annotated[list[str], typer.Argument(help=f"Architectures; {_NAMES}", show_default=False)]
OutputFormat = Annotated[Format, typer.Option("--format", help="What to print on stdout.")]
TablePath = Annotated[
    Path,
    typer.Option("--table", help="A benchmark table, the folder with it, or a .csv of accuracies."),
]
Dataset = Annotated[str, typer.Option(help="Data set of the accuracies.")]


def _scoring(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=SCORING)


def _machine(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=MACHINE)


Data = Annotated[
    str,
    _scoring(
        "Images: synthetic (embedded), cifar10, cifar100, imagenet16-120, or an .npz file.",
        "--data",
    ),
]
DataDir = Annotated[
    Path | None,
    _scoring("Folder with the data sets; else $NTKSCORE_DATA, else the user cache.", "--data-dir"),
]
Seed = Annotated[int, _scoring("Random seed for images, weights and the choice of cells.")]
Seeds = Annotated[int, _scoring("How many seeds to score with, from --seed on.")]
By = Annotated[
    str | None,
    typer.Option(
        help="Score to rank by: KERNEL.SCORE, KERNEL@β.SCORE, params, flops; A+B adds up "
        f"log-ranks. {DEFAULT} if left out.",
    ),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Also draw it: a .png, .svg or .pdf file.")
]
Top = Annotated[int, typer.Option(help="Rows of the printed table.")]
Reference = Annotated[
    Path | None,
    _scoring(
        "Result directory of a whole space that was scored alike, to rank among its networks; "
        "if left out, one in the package, where one fits."
    ),
]
BatchSize = Annotated[
    int | None,
    _machine("Networks per device and call; chosen from the free memory if left out.", "--batch"),
]
Estimate = Annotated[
    bool,
    _machine(
        "Score a few networks of all sizes, keep them, say how long the rest will take, and stop.",
        "--estimate",
    ),
]
Distributed = Annotated[
    bool, _machine("Join the processes that JAX detects (SLURM, TPU…).", "--distributed")
]
Coordinator = Annotated[str | None, _machine("HOST:PORT of the first process.")]
Processes = Annotated[int | None, _machine("How many processes share the cells.")]
Process = Annotated[int | None, _machine("Number of this process, from 0.")]

SpaceName = Annotated[
    str,
    typer.Option(
        "--space",
        help=f"Search space: {', '.join(SPACES)}, or a Python file that defines one.",
        rich_help_panel=NETWORKS,
    ),
]
OwnSpace = Annotated[
    str | None,
    typer.Option(
        "--space",
        help=f"Search space: {', '.join(SPACES)}, or a Python file that defines one; that of a "
        "result directory if left out, else nasbench201.",
    ),
]
SpaceFields = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A field of a space from a file; repeatable.",
        rich_help_panel=NETWORKS,
    ),
]


def _is_sequence(hint: Any) -> bool:
    return get_origin(hint) is tuple


def _kind(hint: Any) -> Any:
    """Type of one value: for a sequence that of its elements, for an optional value its own."""
    if _is_sequence(hint):
        return get_args(hint)[0]
    if get_origin(hint) is UnionType:
        return next(kind for kind in get_args(hint) if kind is not NoneType)
    return hint


def flag_of(field: Field) -> str:
    """The command line's name of a field, without the leading dashes."""
    return (field.metadata["flag"] or field.name).replace("_", "-")


def _help_of(field: Field) -> str:
    """The field's help, with the values that are allowed."""
    allowed = field.metadata["choices"]
    text = field.metadata["help"]
    if allowed is None:
        return text
    *others, last = allowed()
    return f"{text.rstrip('.')}: {', '.join(others)} or {last}."


def _parameter(
    name: str, field: Field, hint: Any, panel: str, optional: bool = False
) -> inspect.Parameter:
    """The parameter of a command that stands for a field.

    Args:
        name: of the parameter.
        field, hint: the field and its type.
        panel: the help's section.
        optional: whether it is None if left out, so that one can tell; the help says the default.
    """
    show, help = field.metadata["show"], _help_of(field)
    kind: Any = str if field.metadata["parse"] else _kind(hint)
    default: Any = field.default
    if optional:
        help, default = f"{help.rstrip('.')}; {show(default)} if left out.", None
    elif _is_sequence(hint):
        kind, default = list[kind], [show(value) for value in default]
    option = typer.Option(
        f"--{flag_of(field)}", help=help, rich_help_panel=panel, show_default=default is not None
    )
    annotation = Annotated[kind | None if default is None else kind, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _value(field: Field, hint: Any, given: Any) -> Any:
    """A field's value from that of its parameter."""
    parse = field.metadata["parse"] or (lambda value: value)
    if given is None:
        return None
    return tuple(parse(one) for one in given) if _is_sequence(hint) else parse(given)


Maker = tuple[Callable[[], list[inspect.Parameter]], Callable[[dict[str, Any]], Any]]
"""A command's parameters that stand for a value, and the value from what was given for them."""


def of_fields(cls: Any, panel: str) -> Maker:
    """The options that stand for a dataclass, one for each of its fields.

    Args:
        cls: its fields are declared with `cells.space.option`.
        panel: the help's section.
    """
    hints, fields = get_type_hints(cls), options(cls)

    def parameters() -> list[inspect.Parameter]:
        return [_parameter(f.name, f, hints[f.name], panel) for f in fields]

    def make(given: dict[str, Any]) -> Any:
        return cls(**{f.name: _value(f, hints[f.name], given.pop(f.name)) for f in fields})

    return parameters, make


def _space_options() -> dict[str, tuple[Field, Any, list[str]]]:
    """Fields of all named spaces: each with its type and the spaces that have it."""
    fields: dict[str, tuple[Field, Any, list[str]]] = {}
    for name, cls in SPACES.items():
        hints = get_type_hints(cls)
        for field in options(cls):
            fields.setdefault(field.name, (field, hints[field.name], []))[2].append(name)
    return fields


def _space_parameters() -> list[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    default = next(iter(SPACES))
    return [
        inspect.Parameter("space", keyword, default=default, annotation=SpaceName),
        *(
            _parameter(f"space_{name}", field, hint, f"{NETWORKS} {' and '.join(spaces)}", True)
            for name, (field, hint, spaces) in _space_options().items()
        ),
        inspect.Parameter("space_fields", keyword, default=None, annotation=SpaceFields),
    ]


def _assignments(texts: list[str] | None) -> dict[str, str]:
    """Name and value of each `NAME=VALUE`."""
    pairs = [text.partition("=") for text in texts or ()]
    if wrong := [name for name, sign, _ in pairs if not sign]:
        raise InputError(f"expected NAME=VALUE after --set, got {wrong[0]!r}; write it that way")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _make_space(given: dict[str, Any]) -> Space:
    """The space of a command line.

    Raises:
        InputError: if there is none of the name, or an option is not one of its fields.
    """
    name = given.pop("space")
    cls = space_class(name)
    values = {n: given.pop(f"space_{n}") for n in _space_options()}
    values = {n: value for n, value in values.items() if value is not None}
    values |= _assignments(given.pop("space_fields"))
    fields, hints = {field.name: field for field in options(cls)}, get_type_hints(cls)
    for unknown in values.keys() - fields.keys():
        raise InputError(
            f"expected a field of the space {cls.name}: {', '.join(fields) or 'it has none'}, got "
            f"{unknown}; leave it out or choose another --space"
        )
    return cls(**{n: _field_value(fields[n], hints[n], value) for n, value in values.items()})


def _field_value(field: Field, hint: Any, given: Any) -> Any:
    """A space's field from an option's value, or from the text after --set.

    Raises:
        InputError: if the text is no value of the field's type.
    """
    if field.metadata["parse"] is not None or not isinstance(given, str):
        return _value(field, hint, given)
    kind = _kind(hint)
    truths: Mapping[str, bool] = {"true": True, "yes": True, "1": True}
    truths = {**truths, "false": False, "no": False, "0": False}
    try:
        return truths[given.lower()] if kind is bool else kind(given)
    except (KeyError, ValueError):
        raise InputError(
            f"expected {field.name} to be of the type {kind.__name__}, got {given!r}; correct it"
        ) from None


class Given:
    """Which of a command's parameters were on the command line."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __contains__(self, name: str) -> bool:
        source = self._context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    def refuse_others(self, *allowed: str) -> None:
        """Refuse what has no meaning beside a run that is ranked as it is.

        Raises:
            InputError: if a parameter was given that is none of the allowed.
        """
        for parameter in self._context.command.params:
            if parameter.name not in allowed and parameter.name in self:
                raise InputError(
                    f"expected no {parameter.opts[0]} beside a run that is ranked as it is, got "
                    "one; leave it out, or name a folder with --out instead of the run"
                )


def _context_parameter() -> list[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter("context", keyword, annotation=typer.Context)]


MAKERS: dict[Any, Maker] = {
    Given: (_context_parameter, lambda given: Given(given.pop("context"))),
    Config: of_fields(Config, SCORING),
    Recipe: of_fields(Recipe, TRAINING),
    Space: (_space_parameters, _make_space),
}


def command(app: typer.Typer) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command; its parameters of a type in `MAKERS` become options.

    Bad input ends with its one sentence and exit code 2.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function).parameters.values()
        made = {p.name: MAKERS[p.annotation] for p in own if p.annotation in MAKERS}
        parameters = [
            each for p in own for each in (made[p.name][0]() if p.name in made else [_keyword(p)])
        ]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            with input_errors():
                values = {name: make(given) for name, (_, make) in made.items()}
                function(**values, **given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        del run.__wrapped__
        return app.command()(run)

    return register


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
