"""Experiments that are not yet studies of the frame, by name; it goes with the last of them."""

import time
from pathlib import Path
from typing import Annotated

import typer

from experiments import report
from experiments.study import (
    DATASET,
    RECORDED,
    Experiment,
    Study,
    check_data,
    write_outcome,
)
from experiments.theory.studies import THEORY
from ntkscore.cli.display import input_errors
from ntkscore.paths import data_home

ALL = THEORY

PAGES = {
    "theory": (THEORY, "the theory's statements beside our measurements", ("mnist", DATASET)),
}
"""Pages by name: their experiments, what they are about, and the data that they read."""

Full = Annotated[
    bool, typer.Option("--full", help="Sizes for an accelerator, of experiments that have them.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder with the tables; else $NTKSCORE_DATA, else the user cache."),
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Results = Annotated[Path, typer.Option(help="Folder of the recordings.")]


def _register(app: typer.Typer, name: str, experiment: Experiment) -> None:
    @app.command(name, help=experiment.title + ".")
    def command(
        out: Annotated[Path, typer.Option(help="Folder for figure, data and record.")] = Path(
            "runs/experiments"
        ),
        data_dir: DataDir = None,
        seed: Seed = 0,
        results: Results = RECORDED,
        full: Full = False,
    ) -> None:
        start = time.monotonic()
        with input_errors():
            study = Study(data_home(data_dir), seed, results, full)
            outcome = experiment.outcome(study)
            paths = write_outcome(outcome, study, name, out)
        for line in (*outcome.remarks, *paths):
            typer.echo(line)
        typer.echo(f"{time.monotonic() - start:.1f} s", err=True)


def _register_page(
    app: typer.Typer,
    name: str,
    experiments: dict[str, Experiment],
    about: str,
    data: tuple[str, ...],
) -> None:
    usual = RECORDED.parent / f"{name.upper()}.md"

    @app.command(
        name, help=f"Run experiments and write one page: {about}. Reads {', '.join(data)}."
    )
    def command(
        data_dir: DataDir = None,
        seed: Seed = 0,
        results: Results = RECORDED,
        full: Full = False,
        out: Annotated[Path, typer.Option(help="The page; figures/ comes beside it.")] = usual,
    ) -> None:
        with input_errors():
            study = Study(data_home(data_dir), seed, results, full)
            # What some of them read late would be missing after minutes, or an hour.
            check_data(study.data_dir, data)
            report.write_page(name, study, experiments, out)
        typer.echo(out)


def register(app: typer.Typer) -> None:
    """Add the commands of all of them."""
    for name, experiment in ALL.items():
        _register(app, name, experiment)
    for name, page in PAGES.items():
        _register_page(app, f"{name}-page", *page)
