"""Command-line options: what commands share, and those that the fields of a dataclass make.

A command's parameter of a type in `PANELS`, such as `Config` or `Space`, stands for one option for
each of its fields. Which fields a space has is known when `--space` has been read.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from ntkscore.cli.display import Format, input_errors
from ntkscore.config import Config
from ntkscore.data.datasets import DATASETS, SAMPLES
from ntkscore.errors import InputError
from ntkscore.options import option, options
from ntkscore.paths import local
from ntkscore.space import Architecture, Space
from ntkscore.spaces import SPACES, is_file
from ntkscore.text import format_rho, parse_fraction
from ntkscore.training.recipe import Recipe

if TYPE_CHECKING:
    from ntkscore.data.images import ImageSet
    from ntkscore.run.scoring import Scoring

SCORING = "How networks are scored"
TRAINING = "How networks are trained"
NETWORKS = "Search space"
MACHINE = "Devices and machines"

_NAMES = (
    "of NAS-Bench-201 by index (2581), six digits (323133) or genotype string; of darts by "
    "published name (AdvRush), digits or the string that papers print."
)
RUN = "Result directory, or a URL of object storage such as s3://bucket/run"
PLACE = "DIR|URL"
"""How help shows the place of results. What is a `Path` is on this machine: a URL is refused."""
Cell = Annotated[str, typer.Argument(help=f"Architecture; {_NAMES}")]
Cells = Annotated[list[str], typer.Argument(help=f"Architectures; {_NAMES}")]
Networks = Annotated[
    list[str],
    typer.Argument(
        help="Networks: a set, such as random:64, distinct (no two compute the same), all, table "
        f"or table:64, of darts also published; a text file with one a line; names {_NAMES} Or a "
        "Python file with a function networks(images), which returns your own networks by name."
    ),
]
NetworksTable = Annotated[
    Path | None, typer.Option("--table", help="Benchmark table, for the networks `table`.")
]
By = Annotated[
    str | None,
    typer.Option(
        help="Score to rank by: KERNEL.SCORE, KERNEL@β.SCORE, params, flops; A+B adds up "
        "log-ranks. The space's own sum if left out."
    ),
]
Among = Annotated[
    str | None,
    typer.Option(
        help="A run over a whole space with the same settings: networks get a percentile among its "
        "networks. If left out, one of the package, where the settings match.",
        metavar=PLACE,
    ),
]
OutputFormat = Annotated[Format, typer.Option("--format", help="What to print on stdout.")]
_TABLE: Any = typer.Option(
    "--table", help="A benchmark table, the folder with it, or a .csv of accuracies."
)
TablePath = Annotated[Path, _TABLE]
TableOption = Annotated[Path | None, _TABLE]
Costs = Annotated[
    Path | None,
    typer.Option(
        help="Costs that somebody has measured: a .csv of networks and numbers, or the folder that "
        "`ntkscore fetch hw-nas-bench` prints. They rank, bound and are shown as params are."
    ),
]
AtMost = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=NUMBER: bound on a cost or count of the networks that would be trained, such as "
        "params=3e5, flops=5e7 or, with --costs, pixel3_latency=13; repeatable."
    ),
]
Pareto = Annotated[
    str | None,
    typer.Option(
        help="Costs or counts, such as params,pixel3_latency: only networks that no other beats in "
        "the score (of `predict`: the mean) and in these, of which less is better.",
        metavar="NAME[,NAME…]",
    ),
]
Dataset = Annotated[str, typer.Option(help="Data set of the accuracies.")]
_DATA = f"Images: {', '.join(DATASETS)}, or an .npz file; synthetic ones need no download."
_DATA_DIR = "Folder with the data sets; else $NTKSCORE_DATA, else the user cache."
Data = Annotated[str, typer.Option(help=_DATA)]
DataDir = Annotated[Path | None, typer.Option(help=_DATA_DIR)]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Also draw it: a .png, .svg or .pdf file.")
]
AtRho = Annotated[
    str | None, typer.Option(help="Radius of the scores that count, for runs with several.")
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed of weights, order and attacks.")]
Top = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="How many rows to print; if left out, the first few in a table, all in JSON and CSV.",
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch",
        help="Networks per device and call; chosen from the free memory if left out.",
        rich_help_panel=MACHINE,
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Address of a Dask scheduler, such as tcp://host:8786, whose workers compute; the "
        "devices of this machine if left out.",
        rich_help_panel=MACHINE,
    ),
]
SpaceName = Annotated[
    str | None,
    typer.Option(
        "--space",
        help=f"Search space: {', '.join(SPACES)}, or a Python file that defines one; if left out, "
        "that of the run, else nasbench201. `score --space darts --help` shows DARTS' options.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The images and seeds that networks are scored on."""

    samples: int = option(SAMPLES, "Images that a network is scored on.")
    balanced: bool = option(False, "Draw the classes equally often.")
    data: str = option("synthetic", _DATA)
    data_dir: Path | None = option(None, _DATA_DIR)
    seed: int = option(0, "Random seed for images, weights and the choice of networks.")
    seeds: int | None = option(
        None, "How many seeds to score with, from --seed on; the space's own number if left out."
    )

    @property
    def images(self) -> "ImageSet":
        """The images to draw from."""
        from ntkscore.data.images import load_images

        return load_images(self.data, self.data_dir, samples=self.samples, balanced=self.balanced)

    def scoring(self, config: Config, space: Space) -> "Scoring":
        """What is scored."""
        from ntkscore.run.scoring import Scoring

        return Scoring.of(self.images, config, space=space, seeds=self.seeds, first=self.seed)


PANELS: dict[Any, str] = {Config: SCORING, Drawn: SCORING, Recipe: TRAINING, Space: NETWORKS}
"""Types of parameters that stand for their fields, and the section of the help for these."""


def select(
    scoring: "Scoring", networks: Sequence[str], table: Path | None
) -> tuple[Architecture, ...]:
    """The networks that a command line names; a Python file alone stands for all of its own.

    The first seed chooses those that are drawn at random.
    """
    from ntkscore.data.tables import load_table

    accuracies = None if table is None else load_table(table, scoring.data.name)
    named = [word for word in networks if not is_file(word)] or ["all"]
    return scoring.select(",".join(named), accuracies, scoring.seeds[0])


def bounds_of(texts: Sequence[str] | None) -> dict[str, float]:
    """Bounds by name, from texts such as `params=3e5`."""
    bounds = {}
    for text in texts or ():
        name, _, number = text.partition("=")
        try:
            bounds[name.strip()] = float(number)
        except ValueError:
            raise InputError(
                "NAME=NUMBER such as params=3e5", repr(text), "write a name and a number"
            ) from None
    return bounds


def names_in(text: str | None) -> list[str]:
    """Names that a text joins with commas."""
    return [name.strip() for name in text.split(",") if name.strip()] if text else []


def radius_of(text: str | None) -> float | None:
    """A radius from an option's text, such as 8/255; None where it is left out."""
    return None if text is None else parse_fraction(text)


def flag_of(field: Field) -> str:
    """The command line's name of a field, without the leading dashes."""
    return (field.metadata["flag"] or field.name).replace("_", "-")


def _kind(hint: Any) -> Any:
    """Type of one value: for a sequence that of its elements, for an optional value its own."""
    if get_origin(hint) in (tuple, UnionType):
        return next(kind for kind in get_args(hint) if kind is not NoneType)
    return hint


def _text(number: float) -> str:
    """A number as a person would write it, exactly."""
    texts = (f"{number:g}", format_rho(number), repr(number))
    return next(text for text in texts if parse_fraction(text) == number)


def _parameter(field: Field, hint: Any, panel: str) -> inspect.Parameter:
    """The parameter of a command that stands for a field; numbers are text, such as 8/255."""
    kind, help = _kind(hint), field.metadata["help"]
    default: Any = field.default
    if kind is float and default is not None:
        default = list(map(_text, default)) if get_origin(hint) is tuple else _text(default)
    flag, choices = flag_of(field), field.metadata["choices"]
    declared = typer.Option(
        f"--{flag}/--no-{flag}" if default is True else f"--{flag}",
        help=help,
        rich_help_panel=panel,
        metavar="|".join(choices()) if choices else "NUMBER" if kind is float else None,
    )
    kind = str if kind is float else kind
    kind = list[kind] if get_origin(hint) is tuple else kind | None if default is None else kind
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, declared],
    )


def _value(hint: Any, value: Any) -> Any:
    """A field's value from that of its parameter."""
    if value is None:
        return None
    parse = parse_fraction if _kind(hint) is float else lambda each: each
    return tuple(map(parse, value)) if get_origin(hint) is tuple else parse(value)


def registered(function: Callable[..., None], space: type[Space]) -> Callable[..., None]:
    """A command as Typer reads it: parameters of a type in `PANELS` become options.

    Bad input ends with its one sentence and exit code 2.
    """
    made, parameters = {}, []
    for parameter in inspect.signature(function).parameters.values():
        kind = parameter.annotation
        if kind not in PANELS:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        cls = space if kind is Space else kind
        hints = get_type_hints(cls)
        made[parameter.name] = cls, {f.name: hints[f.name] for f in options(cls)}
        parameters += [_parameter(field, hints[field.name], PANELS[kind]) for field in options(cls)]

    def run(**values: Any) -> None:
        with input_errors():
            for value in values.values():
                for path in value if isinstance(value, list) else [value]:
                    if isinstance(path, Path):
                        local(path)
            arguments: dict[str, Any] = {}
            for name, (cls, hints) in made.items():
                choices = {field: _value(hint, values.pop(field)) for field, hint in hints.items()}
                arguments[name] = cls(**choices)
            function(**arguments, **values)

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
