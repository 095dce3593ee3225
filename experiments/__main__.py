"""Studies by name: `python -m experiments NAME`, `python -m experiments list`."""

import time
from pathlib import Path
from typing import Annotated

import typer

from experiments import page, recordings
from experiments.data import RECORDED, Data
from experiments.frame import Study
from experiments.further import FURTHER
from experiments.paper import PAPER
from experiments.theory.studies import STUDIES as THEORY
from ntkscore.cli.display import input_errors
from ntkscore.errors import InputError, check_choice
from ntkscore.paths import data_home

GROUPS = {"paper": PAPER, "theory": THEORY, "further": FURTHER}
STUDIES = PAPER | THEORY | FURTHER

DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder with tables and images; else $NTKSCORE_DATA, else the user cache."),
]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command("list")
def list_studies() -> None:
    """Names of the studies, with their titles, and of the recordings that they read."""
    for name, study in STUDIES.items():
        typer.echo(f"{name:24} {study.title}")
    typer.echo(f"recordings: {', '.join(recordings.RECORDINGS)}")


def chosen_settings(study: Study, texts: list[str], full: bool) -> dict[str, object]:
    """The settings that a command line names, those of the full size first.

    Raises:
        InputError: if a text is no NAME=VALUE of this study, or it has one size only.
    """
    if full and not study.full:
        raise InputError(
            f"no --full beside {study.title}, which has one size", "--full", "leave it out"
        )
    found: dict[str, object] = dict(study.full if full else {})
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in study.settings:
            usual = ", ".join(f"{key}={value}" for key, value in study.settings.items())
            raise InputError(f"settings of {usual or 'none'}", repr(text), "correct it")
        found[name] = page.read_setting(value, study.settings[name])
    return found


def _register(name: str, study: Study) -> None:
    about = f"{study.title}. " + (
        f"Settings: {', '.join(study.settings)}." if study.settings else "It has no settings."
    )

    @app.command(name, help=about)
    def command(
        settings: Annotated[
            list[str] | None, typer.Argument(help="Settings as NAME=VALUE, or NAME=VALUE,VALUE.")
        ] = None,
        results: Annotated[
            list[Path] | None,
            typer.Option(help="A folder that `ntkscore score` wrote, in place of our recordings."),
        ] = None,
        out: Annotated[Path, typer.Option(help="Folder for figure, data and record.")] = page.CASES,
        data_dir: DataDir = None,
        full: Annotated[bool, typer.Option("--full", help="Sizes for an accelerator.")] = False,
    ) -> None:
        start = time.monotonic()
        with input_errors():
            given = chosen_settings(study, settings or [], full)
            if results and "runs" not in study.settings:
                raise InputError(
                    f"no --results beside {name}, which reads no runs", "--results", "leave it out"
                )
            if results:
                given["runs"] = tuple(map(str, results))
            data = Data(data_home(data_dir))
            for path in page.write_files(name, study.at(**given), data, out):
                typer.echo(path)
        typer.echo(f"{time.monotonic() - start:.1f} s", err=True)


for _name, _study in STUDIES.items():
    _register(_name, _study)


@app.command("report")
def report(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"Studies, or {', '.join(GROUPS)}: all of a group; else all."),
    ] = None,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option(help="The page; figures and tables come beside it.")] = (
        page.PAGE
    ),
) -> None:
    """Run studies and replace their sections of the page.

    What is missing costs its study alone. The exit code is 2 where no study could run.
    """
    with input_errors():
        chosen: list[str] = []
        for name in names or GROUPS:
            check_choice(name, (*GROUPS, *STUDIES), "the study")
            chosen += GROUPS.get(name, [name])
        lacking = page.report(STUDIES, chosen, data_home(data_dir), out)
    typer.echo(f"{out}: {len(chosen) - len(lacking)} of {len(chosen)} studies")
    if len(lacking) == len(chosen):
        raise typer.Exit(2)


@app.command("record")
def make_recordings(
    names: Annotated[
        list[str],
        typer.Argument(help="Names of recordings, or beginnings of names; `list` prints them."),
    ],
    data_dir: DataDir = None,
    work: Annotated[Path, typer.Option(help="Folder for the full result directories.")] = Path(
        "runs/recordings"
    ),
    out: Annotated[Path, typer.Option(help="Folder for the part that figures use.")] = RECORDED,
) -> None:
    """Compute the scores that the experiments read. Run the same command again to resume."""
    with input_errors():
        for name in recordings.recordings_named(names):
            typer.echo(recordings.record(name, data_home(data_dir), work, out))


@app.command("ship")
def ship() -> None:
    """Put the recorded scores of all cells into the package, which `open_run` opens."""
    typer.echo(recordings.ship())


@app.command()
def rerun(
    record: Annotated[Path, typer.Argument(help="A JSON that a study left.")],
    out: Annotated[Path, typer.Option(help="Folder for the new files.")],
    data_dir: DataDir = None,
) -> None:
    """Run a study again from its record, and say if what it read has changed."""
    with input_errors():
        name, settings, checksums = page.read_record(record)
        check_choice(name, STUDIES, "the record's study")
        data = Data(data_home(data_dir))
        for path in page.write_files(name, STUDIES[name].at(**settings), data, out):
            typer.echo(path)
        if data.read != checksums:
            typer.echo("tables or recordings are not those of the record", err=True)


if __name__ == "__main__":
    app()
